"""An adapter that we write changes llama.cpp's logits as it changes ours; the golden file is llama.cpp's."""

import sys
from pathlib import Path

import numpy as np
import pytest

from gradloom.models.adapters.language.gguf_lora import load_gguf_lora, write_gguf_lora
from gradloom.models.adapters.lora import fresh_lora
from gradloom.models.files.language.checkpoint import open_checkpoint
from gradloom.models.language import PROJECTIONS
from gradloom.systems.text.reference.llama import KeyValueCache, Llama

from ...conftest import TINY
from ...files.language.test_language import write_gguf

GOLDEN = Path(__file__).parents[3] / "golden" / "gguf_lora" / "logits.npz"


def write(folder):
    """The model and the adapter of all its linears that the golden file is of."""
    random = np.random.default_rng(41)

    def vocabulary(writer):
        writer.add_tokenizer_model("no_vocab")
        writer.add_vocab_size(TINY.vocab)

    tensors = {
        name: random.normal(1 if len(shape) == 1 else 0, 0.2, shape).astype(np.float32)
        for name, shape in TINY.tensors.items()
    }
    write_gguf(folder / "model.gguf", tensors, "F32", (vocabulary,), tokens=False)
    adapters = {}
    for name, each in fresh_lora(TINY, rank=4, alpha=6, targets=PROJECTIONS, seed=1).items():
        adapters[name] = each.taking({"a": each.a, "b": random.normal(0, 0.2, each.b.shape).astype(np.float32)})
    with (folder / "adapter.gguf").open("wb") as file:
        write_gguf_lora(file, TINY, adapters)


@pytest.mark.parametrize("which", ["base", "adapted"])
def test_logits_are_those_of_llama_cpp(tmp_path, which):
    write(tmp_path)
    held = np.load(GOLDEN)
    checkpoint = open_checkpoint(tmp_path / "model.gguf")
    adapters = None if which == "base" else load_gguf_lora(tmp_path / "adapter.gguf", checkpoint.model)
    llama, cache = Llama(checkpoint.model, checkpoint.tensor), KeyValueCache()
    found = np.array([llama.expect([int(token)], cache, adapters) for token in held["tokens"]])
    assert np.linalg.norm(found - held[which]) <= 1e-5 * np.linalg.norm(held[which])
    assert np.linalg.norm(held["adapted"] - held["base"]) > 0.1 * np.linalg.norm(held["base"])


if __name__ == "__main__":
    write(Path(sys.argv[1]))
