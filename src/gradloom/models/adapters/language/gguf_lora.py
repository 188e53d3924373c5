"""LoRA adapters of language models in GGUF, as llama.cpp takes them.

The files are those of llama.cpp's ``convert_lora_to_gguf``: ``general.type`` is ``adapter``, ``adapter.type`` is
``lora``, and each linear has ``NAME.weight.lora_a [rank, inputs]`` and ``NAME.weight.lora_b [outputs, rank]``. Their
product counts ``adapter.lora.alpha`` / rank times, or once where alpha is 0 or missing. Of q and k the rows of lora_b
are in the order of llama.cpp's rotary positions.
"""

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ...files.keys import check_keys, shown
from ...files.language.gguf import GGUF_SUFFIX, MAGIC, GgufFile, gguf_linear, turned_pairs
from ...files.language.gguf_families import Architecture, architecture_of
from ...language import LanguageModel
from ..config import ALPHA_MOST
from ..lora import Adapter, adapter_of, load_lora

__all__ = ["is_gguf_adapter", "load_gguf_lora", "load_linears", "write_gguf_lora"]

_ALIGN = 32
_STRING, _FLOAT, _UINT = 8, 6, 4
_ALPHA = "adapter.lora.alpha"
_HANDLED = frozenset({"adapter.type", _ALPHA})
#: Fields with which an adapter is one that is always on, or that say what it is for.
_HARMLESS: dict[str, tuple[Any, ...]] = {"adapter.lora.task_name": (), "adapter.lora.prompt_prefix": ("",)}


def is_gguf_adapter(path: str | Path) -> bool:
    """Whether a path is a file that its name calls GGUF."""
    return Path(path).is_file() and Path(path).suffix == GGUF_SUFFIX


def write_gguf_lora(file: BinaryIO, model: LanguageModel, adapters: Mapping[str, Adapter]) -> float:
    """Writes adapters by linear, in float32, and returns alpha.

    Adapters whose scale times rank is one number have it as alpha, and their A and B are the file's. Of others alpha is
    the first one's, and B has the rest of the scale. :class:`ValueError` names a linear that the model does not have.
    """
    if not adapters:
        raise ValueError("adapters has none: at least 1 is needed")
    architecture, family = architecture_of(model, "a GGUF adapter")
    linears = {each.name for each in model.linears}
    alpha = float(np.float32(next(iter(adapters.values())).scale * next(iter(adapters.values())).rank))
    tensors: dict[str, np.ndarray] = {}
    for name, each in adapters.items():
        if name not in linears:
            raise ValueError(f"{name}: {model.name} has no such linear")
        b = np.asarray(each.b, np.float32)
        if not math.isclose(each.scale * each.rank, alpha, rel_tol=1e-6):
            with np.errstate(over="ignore"):
                b = b * np.float32(each.scale * each.rank / alpha)
        if not np.isfinite(b).all() or not np.isfinite(each.a).all():
            raise ValueError(f"{name}: has a value that float32 does not hold")
        heads = _heads(model, name, family)
        own = gguf_linear(name)
        tensors[f"{own}.lora_a"] = np.ascontiguousarray(each.a, "<f4")
        tensors[f"{own}.lora_b"] = np.ascontiguousarray(
            b if heads is None else turned_pairs(b, heads, back=True), "<f4"
        )
    fields: dict[str, str | float | int] = {
        "general.architecture": architecture,
        "general.type": "adapter",
        "adapter.type": "lora",
        "general.name": model.name,
        "general.file_type": 0,
        "general.quantization_version": 2,
        _ALPHA: alpha,
    }
    head = (
        MAGIC + struct.pack("<IQQ", 3, len(tensors), len(fields)) + b"".join(_field(*each) for each in fields.items())
    )
    at = 0
    for name, array in tensors.items():
        head += _text(name) + struct.pack(f"<I{array.ndim}QIQ", array.ndim, *array.shape[::-1], 0, at)
        at += -(-array.nbytes // _ALIGN) * _ALIGN
    file.write(head + bytes(-len(head) % _ALIGN))
    for array in tensors.values():
        file.write(array.tobytes() + bytes(-array.nbytes % _ALIGN))
    return alpha


def _text(text: str) -> bytes:
    held = text.encode()
    return struct.pack("<Q", len(held)) + held


def _field(key: str, value: str | float | int) -> bytes:
    if isinstance(value, str):
        return _text(key) + struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, float):
        return _text(key) + struct.pack("<If", _FLOAT, value)
    return _text(key) + struct.pack("<II", _UINT, value)


def _heads(model: LanguageModel, linear: str, family: Architecture) -> int | None:
    """Heads of a linear whose rows llama.cpp has in another order."""
    if not family.paired:
        return None
    return {"q_proj": model.heads, "k_proj": model.kv_heads}.get(linear.rsplit(".", 1)[-1])


def load_gguf_lora(path: str | Path, model: LanguageModel, *, rank: int | None = None) -> dict[str, Adapter]:
    """Adapters by linear, float32, in the order of a forward pass.

    Their scale is alpha / rank. :class:`ValueError` names the field or the tensor that is not understood, or is of
    another model; where ``rank`` is given, also one of another rank.
    """
    file = GgufFile(Path(path))
    try:
        return _adapters(file, model, rank)
    except ValueError as error:
        raise ValueError(str(error) if str(path) in str(error) else f"{path}: {error}") from None


def _adapters(file: GgufFile, model: LanguageModel, wanted: int | None) -> dict[str, Adapter]:
    architecture, family = architecture_of(model, "a GGUF adapter")
    for key, value in (("general.type", "adapter"), ("general.architecture", architecture), ("adapter.type", "lora")):
        found = file.fields.get(key)
        if found != value:
            raise ValueError(f"{key}={shown(found)}: must be {shown(value)}")
    fields = {key: value for key, value in file.fields.items() if not key.startswith("general.")}
    check_keys(fields, handled=_HANDLED, harmless=_HARMLESS)
    alpha = float(file.get(_ALPHA, float, 0.0))
    if not (alpha == 0 or 1 / ALPHA_MOST <= alpha <= ALPHA_MOST):
        raise ValueError(f"{_ALPHA}={shown(alpha)}: must be 0, or a number from {1 / ALPHA_MOST:g} to {ALPHA_MOST:g}")
    left = dict.fromkeys(file.tensors)
    made = {}
    for linear in model.linears:
        own = gguf_linear(linear.name)
        names = {"A": f"{own}.lora_a", "B": f"{own}.lora_b"}
        there = [each for each in names.values() if each in file.tensors]
        if not there:
            continue
        if len(there) == 1:
            raise ValueError(f"has {there[0]}, but not its other half")
        for each in there:
            del left[each]
        tensors = {each: file.tensor(each) for each in there}
        found = len(tensors[names["A"]])
        if wanted is not None and found != wanted:
            raise ValueError(f"{names['A']} has rank {found}: rank {wanted} is needed")
        scale = alpha / found if alpha else 1.0
        held = adapter_of(tensors, names.__getitem__, found, linear.inputs, linear.outputs, scale)
        heads = _heads(model, linear.name, family)
        made[linear.name] = held if heads is None else Adapter(held.a, turned_pairs(held.b, heads), scale)
    if left:
        raise ValueError(f"has {next(iter(left))} ({len(left)} that {model.name} has no place for)")
    if not made:
        raise ValueError("has no adapter")
    return made


def load_linears(source: str | Path, model: LanguageModel, *, rank: int | None = None) -> dict[str, Adapter]:
    """Adapters by linear, of PEFT's folder or of a GGUF file.

    As :func:`load_gguf_lora` and :func:`~.lora.load_lora` give them.
    """
    return (load_gguf_lora if is_gguf_adapter(source) else load_lora)(source, model, rank=rank)
