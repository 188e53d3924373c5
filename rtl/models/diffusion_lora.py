"""Reads and writes LoRA adapters of diffusion models, as diffusers does."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from .lora import Adapter
from .tensors import as_float32, open_safetensors, write_safetensors
from .unet import RANKS

__all__ = ["FILE", "adapted_layers", "load_diffusion_lora", "save_diffusion_lora"]

#: Name of the file in a folder.
FILE = "pytorch_lora_weights.safetensors"
#: Endings of diffusers' own naming and of PEFT's, with what they are.
ENDINGS = {
    ".lora.down.weight": "a",
    ".lora.up.weight": "b",
    ".lora_A.weight": "a",
    ".lora_B.weight": "b",
    ".alpha": "alpha",
}
PREFIX = "unet."


def load_diffusion_lora(
    source: Path | str, layers: Mapping[str, tuple[int, int]], *, alphas: Mapping[str, float] | None = None
) -> dict[str, Adapter]:
    """Adapters by layer, of a file or the folder with one.

    Parameters
    ----------
    source : path
    layers : mapping
        Inputs and outputs of each layer that has an adapter; a file with fewer or more of them is refused.
    alphas : mapping, optional
        diffusers' ``network_alphas``, by layer. Where neither they nor the file has an alpha, it is the rank.

    Raises
    ------
    ValueError
        In one line, for any file that is not of these layers, or has a value that is not finite.
    """
    path = _file(source)
    parts: dict[str, dict[str, np.ndarray]] = {}
    for key, stored in open_safetensors(path).items():
        ending = next((each for each in ENDINGS if key.endswith(each)), None)
        layer = key.removeprefix(PREFIX).removesuffix(ending or "")
        if ending is None or not key.startswith(PREFIX):
            raise ValueError(f"{path}: {key}: is no key of an adapter; must be {PREFIX}LAYER with .lora.down.weight")
        if layer not in layers:
            raise ValueError(f"{path}: {key}: no adapter of layer {layer} is asked for; choose targets that have it")
        value = as_float32(stored.read(), stored.dtype)
        if not np.isfinite(value).all():
            raise ValueError(f"{path}: {key}: has a value that is NaN, infinite or beyond float32")
        if parts.setdefault(layer, {}).setdefault(ENDINGS[ending], value) is not value:
            raise ValueError(f"{path}: {key}: layer {layer} has it by two names; leave one")
    missing = [layer for layer in layers if not {"a", "b"} <= parts.get(layer, {}).keys()]
    if missing:
        raise ValueError(f"{path}: layer {missing[0]} has no adapter, or half of one; {len(missing)} such layers")
    return {layer: _adapter(path, layer, parts[layer], layers[layer], alphas or {}) for layer in layers}


def adapted_layers(source: Path | str) -> set[str]:
    """Layers that have an adapter in a file, or in a folder's."""
    ends = "|".join(map(re.escape, ENDINGS))
    return {re.sub(f"({ends})$", "", key).removeprefix(PREFIX) for key in open_safetensors(_file(source))}


def _file(source: Path | str) -> Path:
    path = Path(source)
    return path / FILE if path.is_dir() else path


def _adapter(
    path: Path, layer: str, parts: Mapping[str, np.ndarray], sizes: tuple[int, int], alphas: Mapping[str, float]
) -> Adapter:
    a, b = parts["a"], parts["b"]
    inputs, outputs = sizes
    rank = len(a) if a.ndim else 0
    if rank not in RANKS:
        raise ValueError(f"{path}: {layer}: rank={rank}: must be one of {', '.join(map(str, RANKS))}")
    if a.shape != (rank, inputs) or b.shape != (outputs, rank):
        raise ValueError(
            f"{path}: {layer}: shapes {a.shape} and {b.shape}, must be {(rank, inputs)} and {(outputs, rank)}"
        )
    inside = parts.get("alpha", np.float32(rank))
    if np.size(inside) != 1:
        raise ValueError(f"{path}: {layer}: alpha has {np.size(inside)} values, must have one")
    alpha = float(alphas.get(layer, np.ravel(inside)[0]))
    if not (np.isfinite(alpha) and alpha > 0):
        raise ValueError(f"{path}: {layer}: alpha={alpha:g}: must be above 0")
    return Adapter(a, b, alpha / rank)


def save_diffusion_lora(folder: Path | str, adapters: Mapping[str, Adapter] | Iterable[tuple[str, Adapter]]) -> Path:
    """Writes the file that diffusers' ``load_lora_adapter`` takes.

    A scale other than 1 is multiplied into B: diffusers takes alpha as the rank where nothing else is said.
    """
    tensors = {}
    for layer, each in dict(adapters).items():
        tensors[f"{PREFIX}{layer}.lora.down.weight"] = (np.asarray(each.a, np.float32), "float32")
        tensors[f"{PREFIX}{layer}.lora.up.weight"] = (np.asarray(each.b * each.scale, np.float32), "float32")
    path = Path(folder) / FILE
    write_safetensors(path, tensors)
    return path
