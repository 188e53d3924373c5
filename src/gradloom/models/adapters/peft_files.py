"""Writes adapters as PEFT keeps them: those of a :class:`LayerNetwork`, and any tensors with their config."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.output import some

from ..network import LayerNetwork

__all__ = [
    "CODES",
    "CONFIG",
    "DIRECT_TOPOLOGY",
    "RECORD",
    "TOPOLOGY_KEY",
    "WEIGHTS",
    "check_array",
    "key",
    "representable",
    "save_adapters",
    "write_peft",
    "write_record",
]

#: Key of the configs of adapters that end at a network's logits, and its value.
TOPOLOGY_KEY, DIRECT_TOPOLOGY = "gradloom_topology", "direct-to-output"

CODES = ("nf4", "int8", "none")
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
#: What came with an adapter that was delivered, and SHA-256 of its files.
RECORD = "gradloom_delivery.json"


def key(layer: str, which: str) -> str:
    """Name of a layer's ``"A"`` or ``"B"``."""
    return f"base_model.model.{layer}.lora_{which}.weight"


def check_array(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Refuses an array of another type or shape, or not finite.

    All its values must be finite.
    """
    if array.dtype.kind != "f":
        raise ValueError(f"{name} has dtype {array.dtype}: expected floating point")
    if array.shape != shape:
        raise ValueError(f"{name} has shape {list(array.shape)}: expected {list(shape)}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has {int((~np.isfinite(array)).sum())} values that are NaN or infinite")


def representable(array: np.ndarray) -> bool:
    """Whether float32, as files hold it, has a finite value for each."""
    # Not so of NaN, either.
    return bool((np.abs(array) <= np.finfo(np.float32).max).all())


def write_peft(folder: str | Path, tensors: Mapping[str, np.ndarray], config: Mapping[str, Any]) -> tuple[Path, Path]:
    """Writes both files, the tensors as float32, and returns their paths."""
    from safetensors.numpy import save

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    held = {name: np.ascontiguousarray(array, np.float32) for name, array in tensors.items()}
    contents = {WEIGHTS: save(held, metadata={"format": "pt"}), CONFIG: (json.dumps(config, indent=2) + "\n").encode()}
    for name, content in contents.items():
        (folder / f"{name}.part").write_bytes(content)
    for name in contents:  # both are whole before either has its name
        (folder / f"{name}.part").replace(folder / name)
    return folder / WEIGHTS, folder / CONFIG


def write_record(folder: str | Path, told: Mapping[str, Any]) -> None:
    """Writes what is known of an adapter, with the hashes of its files."""
    folder = Path(folder)
    hashes = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in (WEIGHTS, CONFIG)}
    (folder / RECORD).write_text(json.dumps({**told, "sha256": hashes}, indent=2) + "\n", encoding="utf-8")


def save_adapters(
    folder: str | Path, network: LayerNetwork, adapters: Sequence[tuple[np.ndarray, np.ndarray]], *, codes: str = "nf4"
) -> tuple[Path, Path]:
    """Writes the adapters of every layer as float32.

    They are ``(A [rank, n], B [classes, rank])``. Returns both files' paths.

    ``codes``, one of :data:`CODES`: what the adapters learnt from.
    Every Q4.12 word is exact in float32. ``lora_alpha`` equals the rank, so the scaling is 1.
    """
    if codes not in CODES:
        raise ValueError(f"codes={codes!r}: must be one of {', '.join(CODES)}")
    if len(adapters) != len(network.layers):
        raise ValueError(f"adapters has {len(adapters)} pairs: {network.name} has {some(len(network.layers), 'layer')}")
    rank = len(adapters[0][0])
    tensors = {}
    for name, n, (a, b) in zip(network.layer_names, network.taps, adapters):
        a, b = np.asarray(a), np.asarray(b)
        check_array(key(name, "A"), a, (rank, n))
        check_array(key(name, "B"), b, (network.classes, rank))
        tensors[key(name, "A")] = a
        tensors[key(name, "B")] = b
    config = {
        "base_model_name_or_path": network.name,
        "bias": "none",
        "fan_in_fan_out": False,
        "gradloom_codes": codes,
        TOPOLOGY_KEY: DIRECT_TOPOLOGY,
        "inference_mode": True,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": rank,
        "target_modules": list(network.layer_names),
        "task_type": None,
    }
    return write_peft(folder, tensors, config)
