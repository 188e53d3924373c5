"""An adapter, a base and keys, made once."""

import numpy as np
import pytest

import gradloom
from gradloom.models.adapters.peft_files import write_peft

CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}


def tensors(seed, size=65, layers=(0, 3)):
    """Tensors of two layers, whose blocks are not full, one of them zero."""
    random = np.random.default_rng(seed)
    found = {}
    for layer in layers:
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_"
        found[f"{name}A.weight"] = random.normal(0, 0.1, (2, size)).astype(np.float32)
        found[f"{name}B.weight"] = random.normal(0, 1e-3, (7, 2)).astype(np.float32) * (layer > 0)
    return found


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """``one`` and ``two`` are adapters, ``base`` a folder, ``root``, ``other`` keys, ``one.pkg`` a package."""
    pytest.importorskip("monocypher")
    folder = tmp_path_factory.mktemp("delivery")
    first = tensors(0)
    write_peft(folder / "one", first, CONFIG)
    second = {name: array + 0.01 * np.random.default_rng(9).normal(size=array.shape) for name, array in first.items()}
    write_peft(folder / "two", second, CONFIG)
    for name in ("base", "base2"):
        (folder / name).mkdir()
        (folder / name / "weights.bin").write_bytes(name.encode() * 100)
        (folder / name / "a.json").write_text("{}")
    for name in ("root", "other"):
        gradloom.package.keys(folder / name)
    common = {"base": folder / "base", "key": folder / "root"}
    gradloom.package.sign(folder / "one", folder / "one.pkg", version=3, least=2, **common)
    trust = {"trust": folder / "root.pub", "base": folder / "base"}
    gradloom.package.apply(folder / "one.pkg", folder / "installed", **trust)
    gradloom.package.sign(folder / "two", folder / "two.pkg", parent=folder / "installed", version=4, **common)
    return folder
