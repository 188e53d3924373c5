"""Families in GGUF files, with the tensors' names and the fields of llama.cpp's own library, are those of folders."""

import gguf
import numpy as np
import pytest

from gradloom.models.adapters.language.gguf_lora import load_gguf_lora, write_gguf_lora
from gradloom.models.adapters.language.merged import Merged, write_folder, write_gguf
from gradloom.models.adapters.lora import fresh_lora
from gradloom.models.files.language.checkpoint import open_checkpoint
from gradloom.models.files.language.gguf_families import ARCHITECTURES, architecture_of
from gradloom.systems.text.reference.llama import Llama

from ....language import add_sizes
from .test_families import HELD, TOKENS, written

#: What a GGUF file of Gemma 3 cannot say otherwise.
_GEMMA = {"query_pre_attn_scalar": 16, "sliding_window_pattern": 6, "rope_local_base_freq": 10000.0}
CASES = [
    ("qwen2", 0, "QWEN2", {}),
    ("qwen3", 1, "QWEN3", {}),
    ("olmo2", 0, "OLMO2", {}),
    ("gemma3_text", 1, "GEMMA3", _GEMMA),
]


def converted(folder, path, arch):
    """A folder's model as llama.cpp's converter writes it."""
    source, kind = open_checkpoint(folder), getattr(gguf.MODEL_ARCH, arch)
    model, names = source.model, gguf.get_tensor_name_map(kind, source.model.layers)
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[kind])
    add_sizes(writer, model, 32)
    writer.add_key_length(model.head_dim)
    writer.add_value_length(model.head_dim)
    writer.add_vocab_size(model.vocab)
    if arch == "GEMMA3":
        writer.add_sliding_window(model.context)
    for name in model.tensors:
        own = names.get_name(name, try_suffixes=(".weight", ".bias"))
        values = source.tensor(name)
        if name == "model.embed_tokens.weight":
            values = values / np.float32(source.form.embedding)
        if not (name == "lm_head.weight" and source.form.tied):
            writer.add_tensor(own, np.ascontiguousarray(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return source, open_checkpoint(path)


@pytest.mark.parametrize(("kind", "number", "arch", "change"), CASES)
def test_a_file_has_the_model_of_its_folder(kind, number, arch, change, tmp_path):
    folder = written(tmp_path, HELD["models"][kind][number], change)
    source, found = converted(folder, tmp_path / "m.gguf", arch)
    wanted, logits = (Llama(each.model, each.tensor, dtype=np.float64).logits(TOKENS) for each in (source, found))
    np.testing.assert_allclose(logits, wanted, rtol=1e-5, atol=1e-5)
    # Its own file again, and a folder of its family.
    with (tmp_path / "again.gguf").open("wb") as file:
        write_gguf(file, found, Merged(found.model, found.tensor, {}), "f32", lambda *_: None)
    (tmp_path / "merged").mkdir()
    write_folder(tmp_path / "merged", Merged(found.model, found.tensor, {}), lambda *_: None)
    for path in ("again.gguf", "merged"):
        again = open_checkpoint(tmp_path / path)
        for name in found.model.tensors:
            np.testing.assert_allclose(again.tensor(name), found.tensor(name), rtol=3e-7, atol=1e-7, err_msg=name)


@pytest.mark.parametrize(("kind", "arch"), [("qwen3", "qwen3"), ("llama", "llama"), ("gemma3_text", "gemma3")])
def test_an_adapter_is_of_its_family(kind, arch, tmp_path):
    model = open_checkpoint(written(tmp_path, HELD["models"][kind][0])).model
    random = np.random.default_rng(1)
    adapters = {
        name: each.taking({"a": each.a, "b": random.normal(0, 1, each.b.shape).astype(np.float32)})
        for name, each in fresh_lora(model, rank=2, targets=("q_proj", "v_proj")).items()
    }
    with (tmp_path / "a.gguf").open("wb") as file:
        write_gguf_lora(file, model, adapters)
    assert gguf.GGUFReader(tmp_path / "a.gguf").fields["general.architecture"].contents() == arch
    for name, each in load_gguf_lora(tmp_path / "a.gguf", model).items():
        np.testing.assert_array_equal(each.b, adapters[name].b)


def test_a_family_without_files_is_refused(tmp_path):
    model = open_checkpoint(written(tmp_path, HELD["models"]["phi3"][0])).model
    families = "llama, qwen2, qwen3, olmo2, gemma3, smollm3, granite"
    with pytest.raises(ValueError, match=f"a GGUF adapter is of {families}, whose parts this"):
        architecture_of(model, "a GGUF adapter")


def test_of_six_layers_of_gemma_one_sees_all():
    gemma, fields = ARCHITECTURES["gemma3"], {"context_length": 90, "attention.sliding_window": 12}
    found = gemma.constants(13, 64, lambda key, default: fields.get(key, default))
    assert found == {
        "score": 0.125,
        "context": 12,
        "local": (0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 12),
        "local_theta": 10000.0,
    }
    assert gemma.embedding(16) == 4.0 and ARCHITECTURES["llama"].embedding(16) == 1.0
    assert ARCHITECTURES["llama"].constants(62, 64, fields.get) == {} and len(gemma.constants(61, 64, fields.get)) == 4
    with pytest.raises(ValueError, match="^block_count=62: Gemma 3 of 27 B has another factor of its scores"):
        gemma.constants(62, 64, fields.get)
    assert {name: each.paired for name, each in ARCHITECTURES.items() if each.paired} == {"llama": True}
