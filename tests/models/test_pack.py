"""What is packed is bitsandbytes' quantisation of the model, the same bytes every time, and is checked when read."""

import dataclasses
import hashlib
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gradloom.models.files.language.checkpoint import open_checkpoint
from gradloom.models.files.quantized import quantize_file
from gradloom.models.pack import PackedModel, quantize_linear, raw_parts, write_pack
from gradloom.rtl.formats.codebook import pack_nibbles
from gradloom.rtl.formats.weights.weight_stream import BOOKS


@pytest.fixture
def packed(folder, tmp_path):
    out = tmp_path / "packed"
    out.mkdir()
    return PackedModel(out) if write_pack(open_checkpoint(folder), out) else None


def test_linears_are_the_bytes_that_quantize_writes_for_bitsandbytes(packed, folder, tmp_path):
    quantize_file(folder / "model.safetensors", tmp_path / "q.safetensors", double=True)
    wanted = load_file(tmp_path / "q.safetensors")
    for linear in packed.model.linears:
        held, name = packed.linear(linear.name), f"{linear.name}.weight"
        np.testing.assert_array_equal(pack_nibbles(held.codes.reshape(-1)), wanted[name].ravel())
        np.testing.assert_array_equal(held.scale_codes, wanted[f"{name}.absmax"])
        np.testing.assert_array_equal(held.absmax2, wanted[f"{name}.nested_absmax"])
        state = json.loads(wanted[f"{name}.quant_state.bitsandbytes__nf4"].tobytes())
        assert float(held.offset) == state["nested_offset"]


@pytest.mark.parametrize("bits, error", [(4, 0.11), (3, 0.21), (2, 0.6)])
def test_every_tensor_is_there_within_its_format(folder, tensors, tmp_path, bits, error):
    write_pack(open_checkpoint(folder), tmp_path, bits=bits)
    packed = PackedModel(tmp_path)
    assert dataclasses.replace(packed.model, name="tiny") == open_checkpoint(folder).model
    for name, values in tensors.items():
        found = packed.tensor(name)
        if name.endswith("proj.weight"):
            assert 0 < np.linalg.norm(found - values) < error * np.linalg.norm(values)
        else:
            np.testing.assert_array_equal(found, values.astype(np.float16) if "embed" in name else values)
    np.testing.assert_array_equal(packed.tensor("lm_head.weight"), packed.tensor("model.embed_tokens.weight"))
    np.testing.assert_array_equal(
        np.frombuffer(packed.read("table.levels"), "<f4"), np.asarray(BOOKS[bits].levels, np.float32)
    )


def test_the_same_model_gives_the_same_bytes(folder, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        write_pack(open_checkpoint(folder), tmp_path / name)
    for file in ("weights.bin", "manifest.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_the_manifest_says_what_is_where(packed):
    content = (packed.path / "weights.bin").read_bytes()
    entries = sorted(packed.manifest["linears"] + packed.manifest["tensors"], key=lambda entry: entry["offset"])
    end = 0
    for entry in entries:
        assert entry["offset"] == -(-end // 64) * 64
        end = entry["offset"] + entry["bytes"]
        assert hashlib.sha256(content[entry["offset"] : end]).hexdigest() == entry["sha256"]
    assert packed.manifest["bytes"] == len(content) == -(-end // 64) * 64
    assert [entry["name"] for entry in packed.manifest["linears"]] == [each.name for each in packed.model.linears]


def test_raw_parts_are_what_is_written_raw(packed):
    written = {
        entry["name"]: entry["bytes"] for entry in packed.manifest["tensors"] if not entry["name"].startswith("table.")
    }
    assert dict(raw_parts(packed.model, "float16")) == written


@pytest.mark.parametrize("tied", [True, False])
def test_a_head_may_be_a_stream(folder, config, tensors, tmp_path, tied):
    head = tensors["model.embed_tokens.weight"] if tied else tensors["model.embed_tokens.weight"][::-1].copy()
    if not tied:
        save_file(tensors | {"lm_head.weight": head}, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    write_pack(open_checkpoint(folder), tmp_path, head="nf")
    packed = PackedModel(tmp_path)
    np.testing.assert_array_equal(packed.tensor("lm_head.weight"), quantize_linear(head).weight())
    assert packed.manifest["linears"][-1]["shape"] == [96, 64]  # padded to 128 rows in the stream
    assert {name for name, _ in raw_parts(packed.model, "nf")} == {
        entry["name"] for entry in packed.manifest["tensors"] if not entry["name"].startswith("table.")
    }


def test_an_untied_head_is_float16_by_default(folder, config, tensors, tmp_path):
    save_file(tensors | {"lm_head.weight": -tensors["model.embed_tokens.weight"]}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    write_pack(open_checkpoint(folder), tmp_path)
    packed = PackedModel(tmp_path)
    np.testing.assert_array_equal(packed.tensor("lm_head.weight"), -packed.tensor("model.embed_tokens.weight"))


def test_a_damaged_byte_is_found_when_its_section_is_read(packed):
    entry = packed.manifest["linears"][3]
    content = bytearray((packed.path / "weights.bin").read_bytes())
    content[entry["offset"] + 100] ^= 1
    (packed.path / "weights.bin").write_bytes(content)
    packed.linear(packed.model.linears[2].name)
    with pytest.raises(ValueError, match=f"section {entry['name']} at byte {entry['offset']} is damaged"):
        packed.linear(entry["name"])


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda d: (d / "weights.bin").write_bytes(b"x"), "has 1 bytes: its manifest says"),
        (lambda d: (d / "weights.bin").unlink(), "has 0 bytes"),
        (lambda d: (d / "manifest.json").unlink(), "name a directory that gradloom pack made"),
        (lambda d: (d / "manifest.json").write_text("{"), "manifest.json: cannot be read"),
        (lambda d: (d / "manifest.json").write_text('{"format": "cake", "version": 1}'), "'cake' version 1"),
        (lambda d: (d / "manifest.json").write_text('{"format": "gradloom-weights", "version": 1}'), "model"),
    ],
)
def test_a_damaged_pack_is_refused(packed, damage, message):
    damage(packed.path)
    with pytest.raises(ValueError, match=message):
        PackedModel(packed.path)


def test_what_is_not_in_a_pack_is_refused(packed):
    with pytest.raises(ValueError, match="no quantised linear lm_head"):
        packed.linear("lm_head")
    with pytest.raises(ValueError, match="no section nothing"):
        packed.tensor("nothing")


def test_an_embedding_beyond_float16_is_refused(folder, tensors, tmp_path):
    large = tensors | {"model.embed_tokens.weight": np.full((96, 64), 1e5, np.float32)}
    save_file(large, folder / "model.safetensors")
    with pytest.raises(ValueError, match="embed_tokens.weight reaches 100000: float16 holds 65504"):
        write_pack(open_checkpoint(folder), tmp_path)


def test_the_verb_packs(run, folder, tmp_path, tensors):
    code, out, _ = run("pack", folder, "-o", tmp_path / "out", "--bits", "3", "--json")
    said = json.loads(out)
    assert code == 0 and said["bits"] == 3 and said["linears"] == 14
    assert said["bytes"] == (tmp_path / "out" / "weights.bin").stat().st_size
    assert PackedModel(tmp_path / "out").manifest["frozen_bytes"] == said["frozen_bytes"]
    code, out, _ = run("pack", folder, "-o", tmp_path / "out")  # over its own earlier result
    assert code == 0 and PackedModel(tmp_path / "out").bits == 4 and "bits a parameter" in out


def test_a_plan_takes_the_shapes_of_a_file(run, folder):
    code, out, _ = run("plan", folder, "--seq", "16", "--json")
    said, model = json.loads(out), open_checkpoint(folder).model
    assert code == 0 and said["fill"]["shapes"] == {"head_dim": [32, 64]}
    linears = dataclasses.replace(model, head_dim=64).linears
    assert said["frozen_bytes"] == sum(each.outputs * each.inputs * 33 // 64 + 8 for each in linears)
    code, _, err = run("plan", folder)
    assert code == 2 and "seq=64: must be from 2 to 32 (the model's context); give --seq 32" in err


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("tinyllama-1.1b",), "tinyllama-1.1b: is known by its shapes only"),
        (("nowhere",), "nowhere: no such file or folder"),
        (("tiny", "--bits", "5"), "bits=5: must be one of 4, 3, 2"),
        (("tiny", "--head", "gold"), "head"),
    ],
)
def test_what_cannot_be_packed_is_refused_and_leaves_nothing(run, folder, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("pack", *arguments, "-o", "out")
    assert code == 2 and message in err and not out and "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_blocks_that_would_cross_rows_are_refused_by_name(run, folder, config, tensors, tmp_path):
    random = np.random.default_rng(0)
    narrow = dict(tensors)
    for i in range(2):
        narrow[f"model.layers.{i}.mlp.gate_proj.weight"] = random.normal(size=(100, 64)).astype(np.float32)
        narrow[f"model.layers.{i}.mlp.up_proj.weight"] = random.normal(size=(100, 64)).astype(np.float32)
        narrow[f"model.layers.{i}.mlp.down_proj.weight"] = random.normal(size=(64, 100)).astype(np.float32)
    save_file(narrow, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 100}))
    code, _, err = run("pack", folder, "-o", tmp_path / "out")
    assert code == 2 and "model.layers.0.mlp.down_proj: inputs=100: K must be a multiple of 64" in err


def test_smollm2_packs_whole(run, smollm2, tmp_path):
    code, out, _ = run("pack", smollm2, "-o", tmp_path / "out", "--json")
    assert code == 0 and json.loads(out)["frozen_bytes"] == 54_770_040
    packed = PackedModel(tmp_path / "out")
    name = "model.layers.12.mlp.down_proj"
    wanted = quantize_linear(open_checkpoint(smollm2).tensor(f"{name}.weight"))
    np.testing.assert_array_equal(packed.linear(name).codes, wanted.codes)
    np.testing.assert_array_equal(packed.tensor(f"{name}.weight"), wanted.weight())


@pytest.mark.parametrize("rows", [300, 257])
def test_parts_of_a_linear_have_its_values(rows):
    """Rows behind the last are zeros; a group of scales is never parted."""
    held = quantize_linear(np.random.default_rng(1).normal(size=(rows, 128)).astype(np.float32))
    parts = [held.part(first, 128) for first in (0, 128, 256)]
    made = np.concatenate([each.weight() for each in parts])
    np.testing.assert_array_equal(made[:rows], held.weight())
    assert made.shape == (384, 128) and not made[rows:].any()
    assert all(len(each.absmax2) == each.shape.groups for each in parts)
    with pytest.raises(ValueError, match="first=64: parts a group of 256 scales"):
        held.part(64, 64)
