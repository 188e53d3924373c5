"""Adapters on disk, as PEFT lays them out: ``adapter_model.safetensors`` and ``adapter_config.json``.

Names and the config's fields are PEFT's LoRA ones. One thing differs, and the config says so in
``gradloom_topology``: ``direct-to-output`` adapters end at the logits, so ``lora_B`` has as many rows
as there are classes, whatever the layer's own outputs.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .network import Network

__all__ = ["TOPOLOGY", "save_adapters", "load_adapters"]

TOPOLOGY = "direct-to-output"
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def _key(layer: str, which: str) -> str:
    return f"base_model.model.{layer}.lora_{which}.weight"


def _check(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.dtype.kind != "f":
        raise ValueError(f"{name} has dtype {array.dtype}: expected floating point")
    if array.shape != shape:
        raise ValueError(f"{name} has shape {list(array.shape)}: expected {list(shape)}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has {int((~np.isfinite(array)).sum())} values that are NaN or infinite")


def save_adapters(
    folder: str | Path, network: Network, adapters: Sequence[tuple[np.ndarray, np.ndarray]]
) -> tuple[Path, Path]:
    """Writes ``(A [rank, n], B [classes, rank])`` of every layer as float32; returns both files' paths.

    Every Q4.12 word is exact in float32. ``lora_alpha`` equals the rank, so the scaling is 1.
    """
    from safetensors.numpy import save

    if len(adapters) != len(network.layers):
        raise ValueError(
            f"adapters has {len(adapters)} pairs: {network.name} has {len(network.layers)} layers"
        )
    rank = len(adapters[0][0])
    tensors = {}
    for name, n, (a, b) in zip(network.layer_names, network.taps, adapters):
        a, b = np.asarray(a), np.asarray(b)
        _check(_key(name, "A"), a, (rank, n))
        _check(_key(name, "B"), b, (network.classes, rank))
        tensors[_key(name, "A")] = np.ascontiguousarray(a, np.float32)
        tensors[_key(name, "B")] = np.ascontiguousarray(b, np.float32)
    config = {
        "base_model_name_or_path": network.name,
        "bias": "none",
        "fan_in_fan_out": False,
        "gradloom_topology": TOPOLOGY,
        "inference_mode": True,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": rank,
        "target_modules": list(network.layer_names),
        "task_type": None,
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        WEIGHTS: save(tensors, metadata={"format": "pt"}),
        CONFIG: (json.dumps(config, indent=2) + "\n").encode(),
    }
    for name, content in contents.items():
        (folder / f"{name}.part").write_bytes(content)
    for name in contents:  # both are whole before either has its name
        (folder / f"{name}.part").replace(folder / name)
    return folder / WEIGHTS, folder / CONFIG


def load_adapters(folder: str | Path, network: Network) -> list[tuple[np.ndarray, np.ndarray]]:
    """``(A [rank, n], B [classes, rank])`` of every layer, float64; B times ``lora_alpha / r``."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    folder = Path(folder)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name}: no such file")
    try:
        config = json.loads((folder / CONFIG).read_text())
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG}: not JSON ({error}); is it truncated?") from None
    try:
        tensors = load((folder / WEIGHTS).read_bytes())
    except SafetensorError as error:
        raise ValueError(f"{folder / WEIGHTS}: not readable ({error}); is it truncated?") from None
    try:
        return _adapters(config, tensors, network)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None


def _adapters(
    config: object, tensors: dict[str, np.ndarray], network: Network
) -> list[tuple[np.ndarray, np.ndarray]]:
    if not isinstance(config, dict):
        raise ValueError(f"{CONFIG} holds a {type(config).__name__}: expected an object")
    if config.get("gradloom_topology") != TOPOLOGY:
        raise ValueError(f"gradloom_topology={config.get('gradloom_topology')!r}: expected {TOPOLOGY!r}")
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise ValueError(f"r={rank!r}: must be an integer of at least 1")
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not np.isfinite(alpha):
        raise ValueError(f"lora_alpha={alpha!r}: must be a number")
    if config.get("target_modules") != list(network.layer_names):
        raise ValueError(
            f"target_modules={config.get('target_modules')!r}: {network.name} has {list(network.layer_names)}"
        )
    expected = {_key(name, which) for name in network.layer_names for which in "AB"}
    if set(tensors) != expected:
        missing, further = sorted(expected - set(tensors)), sorted(set(tensors) - expected)
        raise ValueError(
            f"{WEIGHTS} has "
            + " and ".join(
                text
                for names, text in (
                    (missing, f"no {', '.join(missing)}"),
                    (further, f"unknown {', '.join(further)}"),
                )
                if names
            )
        )
    adapters = []
    for name, n in zip(network.layer_names, network.taps):
        a, b = tensors[_key(name, "A")], tensors[_key(name, "B")]
        _check(_key(name, "A"), a, (rank, n))
        _check(_key(name, "B"), b, (network.classes, rank))
        adapters.append((a.astype(np.float64), b.astype(np.float64) * (alpha / rank)))
    return adapters
