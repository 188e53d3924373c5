"""A language model with an adapter merged into its weights, held against the library of GGUF."""

import json
from pathlib import Path

import numpy as np
import pytest

from gradloom.models.adapters.language.lora_xs import fresh_cores, save_cores
from gradloom.models.adapters.language.methods import IA3, LAYERNORM
from gradloom.models.adapters.language.vectors import fresh_vectors, save_vectors
from gradloom.models.adapters.lora import fresh_lora, save_lora
from gradloom.models.files.language.checkpoint import open_checkpoint
from gradloom.systems.text.answer import learnt_of
from gradloom.systems.text.quantized import Quantized
from gradloom.systems.text.reference.llama import Llama

from ...models.conftest import TINY
from ...models.files.language.test_language import write_gguf

gguf = pytest.importorskip("gguf")


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A model as llama.cpp's converter writes it, in a folder that we are in."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(2)
    tensors = {
        name: random.normal(1 if len(shape) == 1 else 0, 0.2, shape).astype(np.float32)
        for name, shape in TINY.tensors.items()
    }
    write_gguf(tmp_path / "m.gguf", tensors, "F16", (lambda writer: writer.add_file_type(1),))
    return Quantized(open_checkpoint(tmp_path / "m.gguf"))


def learnt(kind, source):
    """An adapter of a method in ``adapter``, and what it is."""
    random, model = np.random.default_rng(3), source.model

    def moved(found, size):
        made = {}
        for name, each in found.items():
            parts = {key: part + random.normal(0, size, part.shape) for key, part in each.parts.items()}
            made[name] = each.taking({key: part.astype(np.float32) for key, part in parts.items()})
        return made

    if kind == "lora":
        save_lora("adapter", model, moved(fresh_lora(model, rank=2, targets=("q_proj", "k_proj", "down_proj")), 0.1))
    elif kind == "lora-xs":
        save_cores("adapter", model, moved(fresh_cores(model, source.tensor, rank=2), 0.2))
    else:
        method = {"ia3": IA3, "layernorm": LAYERNORM}[kind]
        save_vectors("adapter", model, method, moved(fresh_vectors(model, method, source.tensor), 0.2))
    return learnt_of(Path("adapter"), source)


@pytest.mark.parametrize("kind", ["lora", "lora-xs", "ia3", "layernorm"])
@pytest.mark.parametrize("output", ["out.gguf", "out"])
def test_the_merged_model_is_the_fine_tuned_one(run, source, kind, output):
    adapters = learnt(kind, source)
    code, out, err = run("merge", "adapter", "--model", "m.gguf", "-o", output, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert (told["weights"], told["error"], told["learnt"]) == ("f32", 0, len(adapters))
    found = open_checkpoint(output)
    tokens = (3, 14, 15, 9, 2, 6)
    expected = Llama(source.model, source.tensor).loss(tokens, adapters)
    assert Llama(source.model, source.tensor).loss(tokens) != pytest.approx(expected, rel=1e-4)
    assert Llama(found.model, found.tensor).loss(tokens) == pytest.approx(expected, rel=2e-6)


def test_a_gguf_file_is_read_by_its_library(run, source):
    """Metadata and other tensors as they were; q and k in llama.cpp's order; Q8_0 as its own code makes it."""
    adapters = learnt("lora", source)
    made = {}
    for weights in ("f32", "q8_0"):
        options = ("--model", "m.gguf", "-o", f"{weights}.gguf", "--weights", weights)
        code, out, err = run("merge", "adapter", *options, "--json")
        assert code == 0, err
        made[weights] = json.loads(out)
    before, exact, coded = (gguf.GGUFReader(f"{name}.gguf") for name in ("m", "f32", "q8_0"))
    assert list(before.fields) == list(exact.fields) == list(coded.fields)
    assert [each.fields["general.file_type"].contents() for each in (before, exact, coded)] == [1, 0, 7]
    names = [[each.name for each in file.tensors] for file in (before, exact, coded)]
    assert names[0] == names[1] == names[2]
    for old, one, other in zip(before.tensors, exact.tensors, coded.tensors):
        if "blk" not in old.name or "norm" in old.name:
            assert old.tensor_type == one.tensor_type == other.tensor_type
            assert np.array_equal(old.data, one.data) and np.array_equal(old.data, other.data)
        else:
            assert (one.tensor_type.name, other.tensor_type.name) == ("F32", "Q8_0")
            assert np.array_equal(gguf.quants.quantize(one.data, other.tensor_type), other.data)
    name = "model.layers.1.self_attn.q_proj"
    each = adapters[name]
    expected = source.tensor(f"{name}.weight") + np.float32(each.scale) * (each.b @ each.a)
    assert np.array_equal(open_checkpoint("f32.gguf").tensor(f"{name}.weight"), expected)
    assert made["q8_0"]["bytes"] < made["f32"]["bytes"] and 0 < made["q8_0"]["error"] < 0.01


@pytest.mark.parametrize(
    "words, named",
    [
        (("--weights", "q4"), "weights=q4: must be one of f32, q8_0"),
        (("-o", "folder", "--weights", "q8_0"), "weights=q8_0: must be f32 for a folder; or name a .gguf file"),
        (("--model", "plain"), "output=x.gguf: must be a folder, plain is no .gguf file with a tokenizer"),
        (("--model", "none.gguf"), "none.gguf: no such file"),
    ],
)
def test_one_line_says_what_is_wrong(run, source, words, named):
    learnt("lora", source)
    if "plain" in words:
        assert run("merge", "adapter", "--model", "m.gguf", "-o", "plain")[0] == 0
    code, out, err = run("merge", "adapter", "--model", "m.gguf", "-o", "x.gguf", *words)
    assert code == 2 and named in " ".join(err.split()), err
    code, out, err = run("merge", "nothing", "--model", "m.gguf", "-o", "x.gguf")
    assert code == 2 and "nothing" in err
    assert not Path("x.gguf").exists() and not Path("folder").exists()
