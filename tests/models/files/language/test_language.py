"""A model is read as it was written, from either format; a file that is damaged or not what it says is refused."""

import json
import struct

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from gradloom.models.files.language.checkpoint import find_model, open_checkpoint
from gradloom.models.files.language.gguf import GgufFile
from gradloom.models.language import BUILT_IN, LanguageModel

from ....language import add_sizes
from ...conftest import TINY

SHORT = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.layers": "blk",
}


def write_gguf(path, tensors, kind="Q4_1", change=None, architecture="llama", encode=None, model=TINY, tokens=True):
    """A model as llama.cpp's converter writes it, by its own library.

    ``kind`` may be a function of a matrix' name; ``encode`` then gives its bytes by that name.
    """
    writer = gguf.GGUFWriter(path, architecture)
    add_sizes(writer, model, model.context)
    if tokens:
        writer.add_token_list([f"t{i}" for i in range(model.vocab)])
    for add in change or ():
        add(writer)
    for own, values in tensors.items():
        name = own
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = model.heads if "q_proj" in name else model.kv_heads
            values = values.reshape(heads, 2, len(values) // heads // 2, -1).swapaxes(1, 2).reshape(values.shape)
        for long, short in SHORT.items():
            name = name.replace(long, short)
        if encode is not None and values.ndim == 2:
            writer.add_tensor(name, encode(own), raw_dtype=kind(own))
            continue
        stored = kind if values.ndim == 2 else "F32"
        type_ = gguf.GGMLQuantizationType[stored]
        writer.add_tensor(name, gguf.quants.quantize(values, type_), raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def small(tmp_path, tensors):
    return write_gguf(tmp_path / "tiny.gguf", tensors)


def test_tinyllama_has_the_parameters_that_are_published():
    model = BUILT_IN["tinyllama-1.1b"]
    assert (model.parameters, model.linear_parameters) == (1_100_048_384, 968_884_224)
    assert len(model.linears) == 154


def test_linears_come_in_the_order_of_a_forward_pass(tiny):
    names = [linear.projection for linear in tiny.linears]
    assert names == 2 * ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    assert tiny.linears[7].name == "model.layers.1.self_attn.q_proj"


@pytest.mark.parametrize(
    "change, message",
    [
        ({"kv_heads": 3}, "kv_heads=3"),
        ({"head_dim": 33}, "head_dim=33"),
        ({"layers": 0}, "layers=0"),
        ({"hidden": 64.0}, "hidden=64.0"),
        ({"norm_eps": float("nan")}, "norm_eps=NaN"),
        ({"vocab": True}, "vocab=true"),
    ],
)
def test_an_impossible_model_is_refused(tiny, change, message):
    fields = {name: getattr(tiny, name) for name in tiny.__dataclass_fields__}
    with pytest.raises(ValueError, match=message):
        LanguageModel(**fields | change)


def test_a_folder_reads_as_written(tiny, folder, tensors):
    checkpoint = open_checkpoint(folder)
    assert checkpoint.model == tiny
    for name, values in tensors.items():
        np.testing.assert_array_equal(checkpoint.tensor(name), values)
    np.testing.assert_array_equal(checkpoint.tensor("lm_head.weight"), tensors["model.embed_tokens.weight"])
    assert open_checkpoint(folder / "model.safetensors").model == tiny


def test_shards_read_as_one(folder, tensors):
    names = list(tensors)
    (folder / "model.safetensors").unlink()
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, held in shards.items():
        save_file({name: tensors[name] for name in held}, folder / file)
    index = {"weight_map": {name: file for file, held in shards.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    checkpoint = open_checkpoint(folder)
    for name, values in tensors.items():
        np.testing.assert_array_equal(checkpoint.tensor(name), values)
    (folder / "b.safetensors").unlink()
    with pytest.raises(ValueError, match=r"b\.safetensors: no such file"):
        open_checkpoint(folder)


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0", "Q4_0", "Q4_1", "BF16"])
def test_gguf_tensors_are_what_its_own_library_decodes(tiny, tmp_path, tensors, kind):
    path = write_gguf(tmp_path / "tiny.gguf", tensors, kind)
    checkpoint = open_checkpoint(path)
    assert checkpoint.model == tiny
    witness = {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in gguf.GGUFReader(path).tensors
    }
    file = GgufFile(path)
    assert set(witness) == set(file.tensors)
    for name, values in witness.items():
        np.testing.assert_array_equal(file.tensor(name), values.reshape(file.tensors[name].shape))
    step = {"F32": 0, "F16": 1e-3, "BF16": 1e-2, "Q8_0": 1e-2, "Q4_0": 0.2, "Q4_1": 0.2}[kind]
    for name, values in tensors.items():
        assert np.abs(checkpoint.tensor(name) - values).max() <= step * np.abs(values).max(), name


def test_a_folder_may_hold_a_gguf_file(tmp_path, small):
    assert open_checkpoint(tmp_path).model == open_checkpoint(small).model
    small.with_name("b.gguf").write_bytes(small.read_bytes())
    with pytest.raises(ValueError, match=r"2 \.gguf files"):
        open_checkpoint(tmp_path)


def test_a_gguf_file_cut_anywhere_is_refused_in_one_line(small, tmp_path):
    content = small.read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in [*range(4, 1200, 53), len(content) // 2, len(content) - 1]:
        cut.write_bytes(content[:length])
        with pytest.raises(ValueError, match=rf"cut\.gguf: is truncated: .* the file at {length}") as refused:
            open_checkpoint(cut)
        assert "\n" not in str(refused.value)


def test_a_gguf_header_with_any_byte_changed_reads_or_is_refused(small, tmp_path):
    content, other = small.read_bytes(), tmp_path / "other.gguf"
    random = np.random.default_rng(0)
    for at in random.integers(4, 1400, 150):
        changed = bytearray(content)
        changed[at] ^= 1 << int(random.integers(8))
        other.write_bytes(changed)
        try:
            open_checkpoint(other)
        except ValueError as error:
            assert "other.gguf" in str(error)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"PK\3\4" + bytes(60), "is a ZIP archive"),
        (b"junk", "begins with b'junk'"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "no field general.architecture"),
        (b"", "is empty"),
    ],
)
def test_what_is_no_gguf_file_is_refused(tmp_path, content, message):
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        open_checkpoint(path)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.YARN), 'llama.rope.scaling.type="yarn"'),
        (lambda w: w.add_rope_dimension_count(16), "rope.dimension_count=16"),
        (lambda w: w.add_key_length(64), "q_proj.*\\[64, 64\\].*\\[128, 64\\]"),
        (lambda w: w.add_tensor("blk.0.attn_q.bias", np.zeros(64, np.float32)), "layers.0.self_attn.q_proj.bias"),
    ],
)
def test_a_gguf_model_that_is_another_is_refused(tmp_path, tensors, change, message):
    with pytest.raises(ValueError, match=message):
        open_checkpoint(write_gguf(tmp_path / "m.gguf", tensors, change=[change]))


def test_another_architecture_is_refused(tmp_path, tensors):
    with pytest.raises(ValueError, match="architecture='mamba': must be 'llama' or 'qwen2' or"):
        open_checkpoint(write_gguf(tmp_path / "m.gguf", tensors, architecture="mamba"))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"model_type": "gpt2"}, 'model_type="gpt2": must be one of llama, mistral'),
        ({"hidden_act": "gelu"}, 'hidden_act="gelu"'),
        ({"attention_bias": True}, "attention_bias=true"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling.factor: is missing"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type must be one of default, linear, llama3"),
        ({"quantization_config": {"load_in_8bit": True}}, "quantization_config.quant_method=null"),
        ({"hidden_size": "64"}, 'hidden_size="64"'),
        ({"num_hidden_layers": None}, "num_hidden_layers=null: must be an integer from 1 to 1024"),
        ({"vocab_size": 0}, "vocab_size=0"),
        ({"num_key_value_heads": 3}, "num_key_value_heads=3: must divide num_attention_heads=2"),
        ({"rms_norm_eps": False}, "rms_norm_eps=false: must be a number above 0"),
        ({"num_attention_heads": 0}, "heads=0"),
        ({"intermediate_size": 256}, r"gate_proj.*\[128, 64\].*\[256, 64\]"),
        ({"num_hidden_layers": 3}, "no tensor model.layers.2"),
        ({"num_hidden_layers": 1}, "model.layers.1.*no place"),
        ({"tie_word_embeddings": False}, "no tensor lm_head.weight"),
    ],
)
def test_a_config_that_belies_its_weights_is_refused(config, folder, change, message):
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ValueError, match=message):
        open_checkpoint(folder)


def test_newer_configs_keep_the_angles_elsewhere(config, folder):
    config = {key: value for key, value in config.items() if key != "rope_theta"}
    config["rope_parameters"] = {"rope_theta": 500.0, "rope_type": "default"}
    (folder / "config.json").write_text(json.dumps(config))
    assert open_checkpoint(folder).model.rope_theta == 500.0


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda f: (f / "config.json").unlink(), "no config.json"),
        (lambda f: (f / "config.json").write_text("{"), "is not JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "must be an object of JSON, not "),
        (lambda f: (f / "config.json").write_text("{}"), "no model_type"),
        (lambda f: (f / "config.json").write_text('{"model_type": "llama"}'), "no num_attention_heads"),
        (lambda f: (f / "model.safetensors").unlink(), "model.safetensors: no such file"),
        (
            lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-9]),
            "cannot be read as a safetensors file",
        ),
        (lambda f: (f / "model.safetensors").write_bytes(b"GGUF" + bytes(99)), "cannot be read as a safetensors"),
    ],
)
def test_a_damaged_folder_is_refused(folder, damage, message):
    damage(folder)
    with pytest.raises(ValueError, match=message):
        open_checkpoint(folder)


def test_a_weight_that_is_not_finite_is_named(folder, tensors):
    broken = dict(tensors)
    broken["model.norm.weight"] = np.full(64, np.inf, np.float32)
    save_file(broken, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"model\.norm\.weight\[0\] is inf"):
        open_checkpoint(folder).tensor("model.norm.weight")


def test_what_is_not_there_is_answered_with_the_known_names(tmp_path):
    with pytest.raises(ValueError, match="no such file or folder.*tinyllama-1.1b"):
        find_model(str(tmp_path / "nothing"))
    (tmp_path / "m.bin").write_bytes(b"")
    with pytest.raises(ValueError, match="must be a folder or end in"):
        find_model(str(tmp_path / "m.bin"))


def test_smollm2_is_the_model_that_is_built_in(smollm2):
    import dataclasses

    checkpoint = open_checkpoint(smollm2)
    assert dataclasses.replace(checkpoint.model, name="smollm2-135m") == BUILT_IN["smollm2-135m"]
    w = checkpoint.tensor("model.layers.29.self_attn.q_proj.weight")
    assert w.shape == (576, 576) and w.dtype == np.float32


def test_an_embedding_may_have_rows_behind_the_vocabulary(tiny, folder, config, tensors, tmp_path):
    name = "model.embed_tokens.weight"
    padded = tensors | {name: np.pad(tensors[name], ((0, 5), (0, 0)), constant_values=9)}
    save_file(padded, folder / "model.safetensors")
    for path in (folder, write_gguf(tmp_path / "tiny.gguf", padded, "F32")):
        checkpoint = open_checkpoint(path)
        assert checkpoint.model == tiny
        np.testing.assert_array_equal(checkpoint.tensor(name), tensors[name])
    save_file(tensors | {name: tensors[name][1:]}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"embed_tokens.* has shape \[95, 64\]: \[96, 64\] is needed"):
        open_checkpoint(folder)


def test_a_head_beside_a_tied_embedding_must_be_the_same(folder, tensors):
    head = tensors["model.embed_tokens.weight"].copy()
    save_file(tensors | {"lm_head.weight": head}, folder / "model.safetensors")
    open_checkpoint(folder)
    head[3, 4] += 1
    save_file(tensors | {"lm_head.weight": head}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"tie_word_embeddings=true, but lm_head\.weight differs"):
        open_checkpoint(folder)


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda f: (f / "config.json").write_text(POINTER), r"config\.json: is a Git LFS pointer"),
        (lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"), "pytorch_model.bin can run code"),
        (lambda f: (f / "model.safetensors").rename(f / "m.gguf"), r"no such file; name the file .*m\.gguf"),
        (
            lambda f: (f / "model.safetensors").rename(f / "model-00001-of-00002.safetensors"),
            "but not model.safetensors.index.json, which says",
        ),
        (
            lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": "b.safetensors"}}'),
            r"b\.safetensors: no such file; it is one of 1 parts",
        ),
        (lambda f: (f / "config.json").rename(f / "adapter_config.json"), "has adapter_config.json: is an adapter"),
        (lambda f: (f / "config.json").rename(f / "model_index.json"), "is a pipeline of diffusers: name its folder"),
        (lambda f: (f / "config.json").write_text('{"_class_name": "X"}'), '_class_name="X": is a model of diffusers'),
        (lambda f: (f / "config.json").write_text('{"num_local_experts": 8}'), "num_local_experts=8: a mixture of"),
    ],
)
def test_a_folder_of_another_kind_is_refused_by_what_it_is(folder, change, message):
    change(folder)
    with pytest.raises(ValueError, match=message):
        open_checkpoint(folder)


def test_a_part_of_a_folders_weights_is_named(folder):
    part = (folder / "model.safetensors").rename(folder / "model-00002-of-00003.safetensors")
    with pytest.raises(ValueError, match=r"is part 2 of 3 of a model: name the folder"):
        open_checkpoint(part)


def test_a_split_gguf_file_is_named_with_the_remedy(tmp_path, tensors):
    def parts(w):
        w.add_uint16("split.no", 0)
        w.add_uint16("split.count", 2)

    path = write_gguf(tmp_path / "m-00001-of-00002.gguf", tensors, change=[parts])
    for each in (path, tmp_path):
        with pytest.raises(ValueError, match=r"is part 1 of 2 of a model.*llama-gguf-split --merge"):
            open_checkpoint(each)
        path.with_name("m-00002-of-00002.gguf").write_bytes(b"GGUF")


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda w: w.add_type("adapter"), "is a LoRA adapter"),
        (lambda w: w.add_expert_count(8), "expert_count=8: a mixture of experts"),
        (lambda w: w.add_tensor("rope_freqs.weight", np.ones(16, np.float32)), "has scaled positions"),
    ],
)
def test_a_gguf_file_of_another_kind_is_refused_by_what_it_is(tmp_path, tensors, change, message):
    with pytest.raises(ValueError, match=message):
        open_checkpoint(write_gguf(tmp_path / "m.gguf", tensors, change=[change]))


@pytest.mark.parametrize(
    "names", [(b"blk.0.ffn_norm.weight", b"blk.1.ffn_norm.weight"), (b"general.aaaa", b"general.bbbb")]
)
def test_what_is_twice_in_a_gguf_file_is_refused(tmp_path, tensors, names):
    fields = [lambda w: w.add_uint32("general.aaaa", 1), lambda w: w.add_uint32("general.bbbb", 2)]
    path = write_gguf(tmp_path / "m.gguf", tensors, change=fields)
    path.write_bytes(path.read_bytes().replace(*names))
    with pytest.raises(ValueError, match=rf"{names[1].decode()} is there twice"):
        open_checkpoint(path)


def test_a_tensor_that_does_not_follow_the_one_before_is_refused(tmp_path, small):
    content = bytearray(small.read_bytes())
    at = content.index(b"blk.0.attn_norm.weight") + len(b"blk.0.attn_norm.weight") + 4 + 8 + 4
    offset = int.from_bytes(content[at : at + 8], "little")
    content[at : at + 8] = (offset + 32).to_bytes(8, "little")
    (tmp_path / "moved.gguf").write_bytes(content)
    with pytest.raises(ValueError, match=r"blk\.0\.attn_norm\.weight begins at byte \d+, the one before it ends"):
        open_checkpoint(tmp_path / "moved.gguf")
