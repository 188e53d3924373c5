"""Reads and writes LoRA adapters of diffusion models, as diffusers does."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..files.keys import shown
from ..files.tensors import as_float32, open_safetensors, read_metadata, write_safetensors
from ..files.unet import RANKS
from .config import ALPHA_MOST, KINDS, check_config, rank_of, scale_of, targeted
from .lora import Adapter
from .peft import about
from .peft_files import representable

__all__ = ["FILE", "adapted_layers", "load_diffusion_lora", "layers_in", "save_diffusion_lora", "save_kohya_lora"]

#: Name of the file in a folder.
FILE = "pytorch_lora_weights.safetensors"
#: Ends of diffusers' own names, PEFT's without an adapter's name and kohya's, with what they are.
ENDINGS = {
    ".lora.down.weight": "a",
    ".lora.up.weight": "b",
    ".lora_A.weight": "a",
    ".lora_B.weight": "b",
    ".lora_down.weight": "a",
    ".lora_up.weight": "b",
    ".alpha": "alpha",
}
#: Starts of names: diffusers' pipelines, PEFT, and kohya, who has _ for each point.
PREFIX, _PEFT, _KOHYA = "unet.", "base_model.model.", "lora_unet_"
_BLOCKS = ("down_blocks.", "mid_block.", "up_blocks.")
_TEXT_ENCODERS = ("text_encoder.", "text_encoder_2.", "lora_te_", "lora_te1_", "lora_te2_")
#: What an adapter's name is between the two, as PEFT's own state dict has it.
_NAMED = re.compile(r"(?<=\.lora_[AB])\.(?!weight$)[^.]+(?=\.weight$)")
#: A projection of diffusers' first naming, below the attention's processor.
_PROCESSOR = re.compile(r"\.processor\.(to_q|to_k|to_v|to_out)_lora\.(down|up)\.weight$")
#: Where diffusers keeps the adapter's config in a file's header, and kohya alpha.
_METADATA, _KOHYA_ALPHA = "lora_adapter_metadata", "ss_network_alpha"


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
        diffusers' ``network_alphas``, by layer. Without them alpha is the one of the file: of its header's
        ``lora_adapter_metadata``, or of kohya's tensors ``.alpha``, which must not differ; else the rank.

    Raises
    ------
    ValueError
        In one line, for any file that is not of these layers, has a value that is not finite, or has a header that is
        not understood whole.
    """
    path = _file(source)
    parts: dict[str, dict[str, np.ndarray]] = {}
    stored = open_safetensors(path)
    with about(path):
        for key, (layer, part) in _places(stored, layers).items():
            if layer not in layers:
                raise ValueError(f"{key}: no adapter of layer {layer} is asked for; choose targets that have it")
            value = as_float32(stored[key].read(), stored[key].dtype)
            if not np.isfinite(value).all():
                raise ValueError(f"{key}: has a value that is NaN, infinite or beyond float32")
            if parts.setdefault(layer, {}).setdefault(part, value) is not value:
                raise ValueError(f"{key}: layer {layer} has it by two names; leave one")
        missing = [layer for layer in layers if not {"a", "b"} <= parts.get(layer, {}).keys()]
        if missing:
            raise ValueError(f"layer {missing[0]} has no adapter, or half of one; {len(missing)} such layers")
        header = read_metadata(path)
        config = _config(header, any(key.startswith(PREFIX) for key in stored))
        told = _Told(config, header.get(_KOHYA_ALPHA, "None"), all(key.startswith(_KOHYA) for key in stored))
        if config is not None and config.get("target_modules") is not None:
            named = set(targeted(config, layers, layers))
            if beside := next((layer for layer in layers if layer not in named), None):
                raise ValueError(f"{_METADATA}: target_modules names no {beside}, which has an adapter")
        return {
            layer: _adapter(layer, parts[layer], layers[layer], (alphas or {}).get(layer), told) for layer in layers
        }


def adapted_layers(source: Path | str, layers: Iterable[str]) -> set[str]:
    """Layers that have an adapter in a file, or in a folder's.

    ``layers``: all that there may be.
    """
    path = _file(source)
    stored = open_safetensors(path)
    with about(path):
        return {layer for layer, _ in _places(stored, layers).values()}


def layers_in(source: Path | str) -> dict[str, tuple[int, int]]:
    """Inputs and outputs of each layer that a file has an adapter of.

    :class:`ValueError` of kohya's names, which do not say where a layer's name has points.
    """
    path = _file(source)
    stored, made = open_safetensors(path), dict[str, list[int]]()
    with about(path):
        for key, (layer, part) in _places(stored, ()).items():
            if key.startswith(_KOHYA):
                raise ValueError(
                    f"{key}: is kohya's name already, which does not say the layer's own; name a run's folder"
                )
            if not layer.startswith(_BLOCKS):
                raise ValueError(f"{key}: is of no layer of a UNet, whose names begin with {', '.join(_BLOCKS)}")
            if part != "alpha":
                shape = stored[key].shape
                if len(shape) != 2:
                    raise ValueError(f"{key}: has shape {list(shape)}: must be a matrix")
                made.setdefault(layer, [0, 0])[part == "b"] = shape[part == "a"]
    if not made:
        raise ValueError(f"{path}: has no adapter")
    return {layer: (inputs, outputs) for layer, (inputs, outputs) in made.items()}


def _places(keys: Iterable[str], layers: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Layer and part of each key of a file."""
    kohya, made = {layer.replace(".", "_"): layer for layer in layers}, {}
    for key in keys:
        if key.startswith(_TEXT_ENCODERS):
            raise ValueError(
                f"{key}: is of the text encoder, which has no adapter here; keep the keys of the UNet alone, or save "
                f"the file again without text_encoder_lora_layers"
            )
        plain = _PROCESSOR.sub(_present, _NAMED.sub("", key))
        ending = next((each for each in ENDINGS if plain.endswith(each)), None)
        if ending is None:
            raise ValueError(f"{key}: is no key of an adapter; must be {PREFIX}LAYER with .lora.down.weight")
        layer = plain.removesuffix(ending)
        if layer.startswith(_KOHYA):
            layer = layer.removeprefix(_KOHYA)
            made[key] = (kohya.get(layer, layer), ENDINGS[ending])
        else:
            made[key] = (layer.removeprefix(_PEFT).removeprefix(PREFIX), ENDINGS[ending])
    return made


def _present(found: re.Match[str]) -> str:
    """diffusers' present name of a key of its first naming."""
    return f".{found[1]}{'.0' if found[1] == 'to_out' else ''}.lora.{found[2]}.weight"


def _file(source: Path | str) -> Path:
    path = Path(source)
    return path / FILE if path.is_dir() else path


def _config(header: Mapping[str, str], named: bool) -> dict[str, Any] | None:
    """The adapter's config in a file's header; None without one.

    ``named``: whether the file's keys, and so the config's, begin with ``unet.``.
    """
    if _METADATA not in header:
        return None
    try:
        held = json.loads(header[_METADATA])
    except (ValueError, RecursionError):
        raise ValueError(f"{_METADATA}: is not JSON; remove it from the file's header and give alpha") from None
    if not isinstance(held, dict):
        raise ValueError(f"{_METADATA}: must be an object of JSON, not {shown(held)}")
    if named:
        config = {key.removeprefix(PREFIX): value for key, value in held.items() if key.startswith(PREFIX)}
    else:
        config = {key: value for key, value in held.items() if "." not in key}
    config = {"peft_type": "LORA", **config}
    with about(_METADATA):
        if config["peft_type"] != "LORA":
            raise ValueError(f"peft_type={shown(config['peft_type'])}: must be {shown('LORA')}")
        check_config(config, KINDS["LORA"])
    return config


@dataclass(frozen=True)
class _Told:
    """What a file says of all its layers.

    ``config`` and ``alpha`` of its header, the second as kohya writes it; ``kohya``: whether all names are kohya's.
    """

    config: Mapping[str, Any] | None
    alpha: str
    kohya: bool


def _adapter(
    layer: str, parts: Mapping[str, np.ndarray], sizes: tuple[int, int], alpha: float | None, told: _Told
) -> Adapter:
    a, b = parts["a"], parts["b"]
    inputs, outputs = sizes
    rank = len(a) if a.ndim else 0
    if rank not in RANKS:
        raise ValueError(f"{layer}: rank={rank}: must be one of {', '.join(map(str, RANKS))}")
    if a.shape != (rank, inputs) or b.shape != (outputs, rank):
        raise ValueError(f"{layer}: shapes {a.shape} and {b.shape}, must be {(rank, inputs)} and {(outputs, rank)}")
    if "alpha" in parts and np.size(parts["alpha"]) != 1:
        raise ValueError(f"{layer}: alpha has {np.size(parts['alpha'])} values, must have one")
    if told.config is not None and rank_of(told.config, layer) != rank:
        raise ValueError(f"{layer}: has rank {rank}, {_METADATA} says {rank_of(told.config, layer)}; they must agree")
    scale = _scale_of(layer, parts, rank, told) if alpha is None else _scale(layer, alpha, rank)
    if not representable(np.multiply(b, scale, dtype=np.float64)):
        raise ValueError(f"{layer}: B times its scale {scale:g} is beyond float32; make alpha smaller")
    return Adapter(a, b, scale)


def _scale_of(layer: str, parts: Mapping[str, np.ndarray], rank: int, told: _Told) -> float:
    """Factor of ``B A``: of the header, of the layer's alpha, or 1."""
    inside = _scale(layer, float(np.ravel(parts["alpha"])[0]), rank) if "alpha" in parts else None
    if told.config is not None:
        scale = scale_of(told.config, layer)
        if inside is not None and not np.isclose(inside, scale, rtol=1e-6):
            raise ValueError(f"{layer}: its alpha makes a scale of {inside:g}, {_METADATA} {scale:g}; give alpha")
        return scale
    if inside not in (None, 1.0) and not told.kohya:
        raise ValueError(
            f"{layer}: its alpha makes a scale of {inside:g}, but diffusers reads alpha only of names that begin with "
            f"{_KOHYA}; give alpha, which is {rank} for what diffusers makes of the file"
        )
    if inside is None and told.alpha not in ("None", str(rank), str(float(rank))):
        raise ValueError(f"{layer}: has no alpha, but the header {_KOHYA_ALPHA}={told.alpha}; give alpha")
    return 1.0 if inside is None else inside


def _scale(layer: str, alpha: float, rank: int) -> float:
    if not 0 < alpha <= ALPHA_MOST:
        raise ValueError(f"{layer}: alpha={alpha:g}: must be above 0 and at most {ALPHA_MOST:g}")
    return alpha / rank


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


def save_kohya_lora(path: Path | str, adapters: Mapping[str, Adapter]) -> None:
    """Writes a file with kohya's names, which ComfyUI reads, too.

    Of each layer ``lora_unet_LAYER.lora_down.weight`` (A), ``.lora_up.weight`` (B) and ``.alpha``, with _ for each
    point of its name. They add alpha / rank of the product, so alpha is the scale times the rank.
    """
    tensors = {}
    for layer, each in adapters.items():
        name = _KOHYA + layer.replace(".", "_")
        tensors[f"{name}.lora_down.weight"] = (np.asarray(each.a, np.float32), "float32")
        tensors[f"{name}.lora_up.weight"] = (np.asarray(each.b, np.float32), "float32")
        tensors[f"{name}.alpha"] = (np.asarray(each.scale * each.rank, np.float32), "float32")
    if len(tensors) != 3 * len(adapters):
        raise ValueError("layers: two names differ in points and _ only, which kohya's names do not tell apart")
    write_safetensors(Path(path), tensors)
