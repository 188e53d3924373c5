"""Adapters for other tools, held against the tools' own readers and formulas."""

import dataclasses
import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file

from gradloom.models.adapters.language.gguf_lora import load_gguf_lora, write_gguf_lora
from gradloom.models.adapters.language.instant import fresh_instant, save_instant
from gradloom.models.adapters.language.lora_xs import fresh_cores, save_cores
from gradloom.models.adapters.language.methods import IA3
from gradloom.models.adapters.language.vectors import fresh_vectors, save_vectors
from gradloom.models.adapters.lora import fresh_lora, load_lora, save_lora
from gradloom.models.files.language.checkpoint import open_checkpoint
from gradloom.models.language import PROJECTIONS
from gradloom.systems.text.answer import learnt_of
from gradloom.systems.text.quantized import Quantized

from ...models.conftest import TINY
from ...models.files.language.test_language import write_gguf
from ..small import MODEL

SHORT = dict(zip(PROJECTIONS, ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")))


def moved(found, size=0.1):
    random = np.random.default_rng(3)
    made = {}
    for name, each in found.items():
        parts = {
            key: (part + random.normal(0, size, part.shape)).astype(np.float32) for key, part in each.parts.items()
        }
        made[name] = each.taking(parts)
    return made


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder that we are in, with a model ``m.gguf`` and an adapter of all its linears."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(2)
    tensors = {
        name: random.normal(1 if len(shape) == 1 else 0, 0.2, shape).astype(np.float32)
        for name, shape in TINY.tensors.items()
    }
    write_gguf(tmp_path / "m.gguf", tensors, "F16")
    save_lora("adapter", TINY, moved(fresh_lora(TINY, rank=4, alpha=6, targets=PROJECTIONS)))
    return tmp_path


def exported(run, *words):
    code, out, err = run("export", *words, "--model", "m.gguf", "--json")
    assert code == 0, err
    return json.loads(out)


def written(path, adapters, model=TINY):
    with Path(path).open("wb") as file:
        write_gguf_lora(file, model, adapters)
    return path


def test_a_gguf_adapter_is_what_llama_cpp_expects(run, place):
    told = exported(run, "adapter", "-o", "a.gguf")
    assert (told["format"], told["adapters"], told["rank"]) == ("gguf", 14, 4)
    assert told["bytes"] == Path("a.gguf").stat().st_size
    reader = gguf.GGUFReader("a.gguf")
    fields = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert fields[gguf.Keys.General.TYPE] == gguf.GGUFType.ADAPTER == "adapter"
    assert fields[gguf.Keys.General.ARCHITECTURE] == "llama" and fields[gguf.Keys.Adapter.TYPE] == "lora"
    assert fields[gguf.Keys.Adapter.LORA_ALPHA] == 6
    assert reader.fields[gguf.Keys.Adapter.LORA_ALPHA].types == [gguf.GGUFValueType.FLOAT32]
    held = {each.name: each for each in reader.tensors}
    adapters = load_lora("adapter", TINY)
    expected = {}
    for name, each in adapters.items():
        _, _, layer, _, projection = name.split(".")
        b, heads = each.b, {"q_proj": 2, "k_proj": 1}.get(projection)
        if heads:
            # As convert_hf_to_gguf orders the rows of q and k.
            b = b.reshape(heads, 2, 16, 4).swapaxes(1, 2).reshape(b.shape)
        expected[f"blk.{layer}.{SHORT[projection]}.weight.lora_a"] = each.a
        expected[f"blk.{layer}.{SHORT[projection]}.weight.lora_b"] = b
    assert set(held) == set(expected)
    for name, array in expected.items():
        assert held[name].tensor_type == gguf.GGMLQuantizationType.F32
        assert np.array_equal(held[name].data, array), name
    # llama.cpp adds alpha / rank of the product to the weights of its own file.
    assert run("merge", "a.gguf", "--model", "m.gguf", "-o", "merged.gguf")[0] == 0
    quantized, assembled = Quantized(open_checkpoint("m.gguf")), gguf.GGUFReader("merged.gguf")
    merged = {each.name: each.data for each in assembled.tensors}
    for name in ("blk.1.attn_q.weight", "blk.0.attn_k.weight", "blk.1.ffn_down.weight"):
        own = next(key for key, value in quantized.source.names.items() if value == name)
        base = quantized.tensor(own)
        heads = {"q_proj": 2, "k_proj": 1}.get(own.split(".")[-2])
        if heads:
            base = base.reshape(heads, 2, 16, 64).swapaxes(1, 2).reshape(base.shape)
        change = 6 / 4 * held[f"{name}.lora_b"].data @ held[f"{name}.lora_a"].data
        np.testing.assert_allclose(merged[name], base + change, atol=1e-6)


def test_a_gguf_adapter_reads_back(run, place):
    exported(run, "adapter", "-o", "a.gguf")
    expected, found = load_lora("adapter", TINY), learnt_of(Path("a.gguf"), Quantized(open_checkpoint("m.gguf")))
    assert list(found) == list(expected)
    for name, each in expected.items():
        assert found[name].scale == each.scale
        assert np.array_equal(found[name].a, each.a) and np.array_equal(found[name].b, each.b)
    exported(run, "a.gguf", "--to", "peft", "-o", "again")
    files = ("adapter_model.safetensors", "adapter_config.json")
    assert Path("again", files[0]).read_bytes() == Path("adapter", files[0]).read_bytes()
    told, first = (json.loads(Path(each, files[1]).read_text()) for each in ("again", "adapter"))
    assert told | {"base_model_name_or_path": "tiny"} == first


def test_verbs_take_a_gguf_adapter_as_they_take_its_folder(run, here):  # noqa: F811
    save_lora("folder", MODEL, moved(fresh_lora(MODEL, rank=4, targets=("q_proj", "v_proj"))))
    assert run("export", "folder", "--model", "small", "-o", "a.gguf")[0] == 0
    tuned = (
        "finetune",
        "small",
        "--data",
        "text.txt",
        "--engine",
        "float",
        "--steps",
        "1",
        "--seq",
        "30",
        "--rank",
        "4",
    )
    said = []
    for adapter in ("folder", "a.gguf"):
        code, out, err = run(*tuned, "--adapter", adapter, "-o", f"{adapter}-out", "--json")
        assert code == 0, err
        code, text, err = run("infer", "small", "--prompt", "the warp", "--tokens", "4", "--adapter", adapter, "--json")
        assert code == 0, err
        said.append((json.loads(out)["loss"], json.loads(text)["tokens"]))
    assert said[0] == said[1]
    code, _, err = run(*tuned[:-1], "8", "--adapter", "a.gguf", "-o", "out")
    assert code == 2 and "attn_q.weight.lora_a has rank 4: rank 8 is needed" in " ".join(err.split())


@pytest.mark.parametrize("seed", range(4))
def test_a_gguf_adapter_with_any_byte_changed_reads_or_is_refused(tmp_path, seed):
    content = written(tmp_path / "a.gguf", moved(fresh_lora(TINY, rank=2))).read_bytes()
    random, other = np.random.default_rng(seed), tmp_path / "other.gguf"
    for at in random.integers(4, 1300, 60):
        changed = bytearray(content)
        changed[at] ^= 1 << int(random.integers(8))
        other.write_bytes(changed)
        try:
            found = load_gguf_lora(other, TINY)
        except ValueError as error:
            assert "other.gguf" in str(error) and "\n" not in str(error)
        else:
            assert all(np.isfinite(each.b).all() and np.isfinite(each.scale) for each in found.values())


def test_adapters_of_several_scales_keep_their_products(tmp_path):
    adapters = moved(fresh_lora(TINY, rank=4, alpha=6))
    names = list(adapters)
    adapters[names[1]] = dataclasses.replace(adapters[names[1]], scale=0.3)
    adapters[names[2]] = dataclasses.replace(
        adapters[names[2]], a=adapters[names[2]].a[:2], b=adapters[names[2]].b[:, :2], scale=3.0
    )
    found = load_gguf_lora(written(tmp_path / "a.gguf", adapters), TINY)
    for name, each in adapters.items():
        np.testing.assert_allclose(found[name].scale * found[name].b, each.scale * each.b, rtol=1e-6)
    # Rank 2 with the same alpha has its own scale.
    assert found[names[2]].scale == 3.0 and np.array_equal(found[names[2]].b, adapters[names[2]].b)


def test_alpha_0_is_a_scale_of_1(tmp_path):
    adapters = moved(fresh_lora(TINY, rank=4, alpha=6))
    path = written(tmp_path / "a.gguf", adapters)
    content = path.read_bytes()
    at = content.index(b"adapter.lora.alpha") + len("adapter.lora.alpha") + 4
    path.write_bytes(content[:at] + bytes(4) + content[at + 4 :])
    assert {each.scale for each in load_gguf_lora(path, TINY).values()} == {1.0}


def adapter_file(path, *, fields=(), tensors=()):
    """An adapter of q of layer 0, by gguf's own writer, with other fields or tensors."""
    writer = gguf.GGUFWriter(path, dict(fields).get("general.architecture", "llama"))
    told = {"general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": 8.0} | dict(fields)
    for key, value in told.items():
        if key == "general.architecture":
            continue
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_array(key, value)
    held = {"blk.0.attn_q.weight.lora_a": (4, 64), "blk.0.attn_q.weight.lora_b": (64, 4)} | dict(tensors)
    for name, shape in held.items():
        if shape is not None:
            writer.add_tensor(name, np.full(shape, 0.5, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    "fields, tensors, message",
    [
        ({"general.type": "model"}, {}, 'general.type="model": must be "adapter"'),
        ({"general.architecture": "qwen2"}, {}, 'general.architecture="qwen2": must be "llama"'),
        ({"adapter.type": "ia3"}, {}, 'adapter.type="ia3": must be "lora"'),
        ({"adapter.lora.alpha": -1.0}, {}, "adapter.lora.alpha=-1.0: must be 0"),
        ({"adapter.alora.invocation_tokens": [1, 2]}, {}, r"adapter.alora.invocation_tokens=\[1, 2\]: this key"),
        ({"adapter.lora.prompt_prefix": "x"}, {}, 'adapter.lora.prompt_prefix="x": must be ""'),
        ({}, {"blk.0.attn_q.weight.lora_b": None}, "attn_q.weight.lora_a, but not its other half"),
        ({}, {"blk.0.attn_norm.weight": (64,)}, r"has blk.0.attn_norm.weight \(1 that tiny has no place for\)"),
        ({}, {"blk.2.attn_q.weight.lora_a": (4, 64)}, "has blk.2.attn_q.weight.lora_a"),
        ({}, {"output.weight.lora_a": (4, 64)}, "has output.weight.lora_a"),
        ({}, {"blk.0.attn_q.weight.lora_b": (64, 5)}, r"lora_b has shape \[64, 5\]: expected \[64, 4\]"),
        ({}, {"blk.0.attn_k.weight.lora_a": (4, 32), "blk.0.attn_k.weight.lora_b": (32, 4)}, r"expected \[4, 64\]"),
    ],
)
def test_a_gguf_adapter_that_is_not_understood_is_refused(tmp_path, fields, tensors, message):
    path = adapter_file(tmp_path / "a.gguf", fields=fields, tensors=tensors)
    with pytest.raises(ValueError, match=rf"a\.gguf: .*{message}") as refused:
        load_gguf_lora(path, TINY)
    assert "\n" not in str(refused.value)


def test_a_plain_one_of_its_own_writer_is_taken(tmp_path):
    found = load_gguf_lora(adapter_file(tmp_path / "a.gguf", fields={"adapter.lora.task_name": "rhymes"}), TINY)
    assert [(name, each.rank, each.scale) for name, each in found.items()] == [
        ("model.layers.0.self_attn.q_proj", 4, 2)
    ]


def test_mlx_adds_the_same_product(run, place):
    told = exported(run, "adapter", "--to", "mlx", "-o", "mlx")
    assert told["adapters"] == 14 and told["bytes"] == sum(each.stat().st_size for each in Path("mlx").glob("adapter*"))
    config = json.loads(Path("mlx/adapter_config.json").read_text())
    lora = config["lora_parameters"]
    assert (config["fine_tune_type"], config["num_layers"], lora["rank"], lora["dropout"]) == ("lora", 2, 4, 0.0)
    assert lora["keys"] == [f"{module}.{name}" for name, module in PROJECTIONS.items()]
    tensors, x = load_file("mlx/adapters.safetensors"), np.random.default_rng(4)
    for name, each in load_lora("adapter", TINY).items():
        given = x.normal(size=(3, each.a.shape[1]))
        theirs = lora["scale"] * (given @ tensors[f"{name}.lora_a"]) @ tensors[f"{name}.lora_b"]
        np.testing.assert_allclose(theirs, each.scale * given @ each.a.T @ each.b.T, rtol=1e-6, atol=1e-9)


def test_mlx_counts_layers_from_the_last(run, place):
    save_lora("upper", TINY, moved(fresh_lora(TINY, rank=2, layers=[1])))
    exported(run, "upper", "--to", "mlx", "-o", "mlx")
    assert json.loads(Path("mlx/adapter_config.json").read_text())["num_layers"] == 1


def test_lora_xs_becomes_plain_lora(run, place):
    source = Quantized(open_checkpoint("m.gguf"))
    save_cores("cores", TINY, moved(fresh_cores(TINY, source.tensor, rank=2), 0.2))
    exported(run, "cores", "-o", "a.gguf")
    for name, each in learnt_of(Path("cores"), source).items():
        found = load_gguf_lora("a.gguf", TINY)[name]
        np.testing.assert_allclose(
            found.scale * found.b @ found.a, each.plain.scale * each.plain.b @ each.plain.a, atol=1e-6
        )


@pytest.mark.parametrize(
    "words, message",
    [
        (("adapter", "-o", "x"), "to: is needed, one of onnx, gguf, mlx, peft, kohya, comfyui: output=x does"),
        (("adapter", "-o", "x.onnx"), "to=onnx: must be gguf or mlx or peft, adapter holds a language model's adapter"),
        (("adapter", "-o", "x", "--to", "ollama"), "to=ollama: must be one of onnx"),
        (("adapter", "-o", "x", "--to", "gguf"), "output=x: must name a file that ends in .gguf"),
        (
            ("vectors", "-o", "x.gguf"),
            'vectors: peft_type="IA3": has no A and B, which this format is made of; merge it',
        ),
        (("instant", "-o", "x.gguf"), "has no A and B, which this format is made of; infer takes it as --adapter"),
        (("nowhere", "-o", "x.gguf"), "nowhere: no such file or folder"),
        ((".", "-o", "x.onnx"), ".: has no adapter_config.json of a fine-tune, nor network.json of an import"),
        (("m.gguf", "-o", "x", "--to", "peft"), "m.gguf: general.type=null"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(run, place, words, message):
    save_vectors("vectors", TINY, IA3, fresh_vectors(TINY, IA3, open_checkpoint("m.gguf").tensor))
    save_instant("instant", TINY, fresh_instant(TINY, rank=2))
    code, out, err = run("export", *words, "--model", "m.gguf")
    assert (code, out, err.count("\n")) == (2, "", 1) and message in err
    assert not Path(words[2]).exists()


def test_the_model_is_the_runs(run, place):
    Path("adapter/metrics.json").write_text(json.dumps({"request": {"model": "m.gguf"}}))
    assert run("export", "adapter", "-o", "a.gguf")[0] == 0
    Path("adapter/metrics.json").write_text(json.dumps({"request": {"model": "gone.gguf"}}))
    code, _, err = run("export", "adapter", "-o", "b.gguf")
    assert code == 2 and "model=gone.gguf: that of the run is not here; name it by --model" in err
