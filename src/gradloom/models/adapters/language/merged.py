"""Merges an adapter into a model's weights, and writes the model.

Linears have the values that the fine-tune had: those of their codes, all of them. What learns is added in float32. So
the file's model is the fine-tuned one, but for the rounding of a float32 sum; with Q8_0, linears are rounded further.
"""

import json
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ...files.language.families import config_of, described
from ...files.language.gguf import MAGIC, GgufCheckpoint, turned_pairs
from ...files.language.gguf_blocks import q8_0_blocks, q8_0_values
from ...files.tensors import write_safetensors
from ...language import LanguageModel
from ..lora import Adapter, LearntModule
from .lora_xs import CoreAdapter
from .vectors import Vector

__all__ = ["WEIGHTS", "Merged", "write_folder", "write_gguf"]

#: Formats of linears, with GGUF's number of a tensor's type and of a file's.
WEIGHTS: Mapping[str, tuple[int, int]] = {"f32": (0, 0), "q8_0": (8, 7)}
Tell = Callable[[int, int, str], None]
#: Keys of ``config.json`` that tell how weights are stored.
_OF_WEIGHTS = ("quantization_config", "torch_dtype", "dtype")


@dataclass
class Merged:
    """A model's tensors with what was learnt in them.

    Parameters
    ----------
    model : LanguageModel
    tensor : callable
        A tensor of the base by its name, as the fine-tune had it.
    learnt : mapping
        Adapters and vectors by module.
    """

    model: LanguageModel
    tensor: Callable[[str], np.ndarray]
    learnt: Mapping[str, LearntModule]
    #: ``config.json`` of its source; of one without, of the family that has its parts.
    config: Mapping[str, Any] = field(default_factory=dict)
    #: Sums of squares: what rounding changed, and what was rounded.
    lost: list[float] = field(default_factory=lambda: [0.0, 0.0])

    @property
    def changed(self) -> set[str]:
        """Names of the tensors that are not the checkpoint's own."""
        linears = {f"{each.name}.weight" for each in self.model.linears}
        return linears | {f"{name}.weight" for name in self.learnt}

    @property
    def error(self) -> float:
        """Root mean square of what rounding changed, as a share."""
        return math.sqrt(self.lost[0] / self.lost[1]) if self.lost[1] else 0.0

    def values(self, name: str) -> np.ndarray:
        """A tensor, float32."""
        base, (module, _, kind) = self.tensor(name), name.rpartition(".")
        each = self.learnt.get(module)
        if kind == "bias":
            # Factors of a linear's outputs stand behind its bias.
            return base * each.parts["w"] if isinstance(each, Vector) else base
        if isinstance(each, CoreAdapter):
            each = each.plain
        if each is None:
            return base
        with np.errstate(over="ignore", invalid="ignore"):
            made = _with(base, each, before=module.endswith(".down_proj"))
        if not np.isfinite(made).all():
            raise ValueError(f"{name}: is beyond float32 with the adapter merged; make its values or alpha smaller")
        return made


def _with(base: np.ndarray, each: LearntModule, *, before: bool) -> np.ndarray:
    """A tensor with what was learnt in it.

    Factors stand before a linear, or behind it.
    """
    if isinstance(each, Adapter):
        return np.asarray(base + np.float32(each.scale) * (each.b @ each.a))
    factors = each.parts["w"]
    if base.ndim == 1:
        return factors
    return base * factors if before else base * factors[:, None]


def write_gguf(file: BinaryIO, source: GgufCheckpoint, merged: Merged, weights: str, tell: Tell) -> None:
    """Writes a GGUF file; metadata and other tensors are its source's."""
    kind, of_file = WEIGHTS[weights]
    held, linears = source.file, {f"{each.name}.weight" for each in merged.model.linears}
    names = {own: name for name, own in source.names.items()}
    changed = merged.changed

    def form(own: str) -> tuple[int, int]:
        """Type and bytes of a tensor."""
        entry = held.tensors[own]
        if names[own] not in changed:
            return entry.type, entry.size
        count = math.prod(entry.shape)
        if names[own] in linears and weights == "q8_0":
            return kind, count // 32 * 34
        return 0, 4 * count

    fields = bytearray(held.metadata)
    if held.file_type_at is not None:
        fields[held.file_type_at : held.file_type_at + 4] = struct.pack("<I", of_file)
    out = MAGIC + struct.pack("<IQQ", 3, len(held.tensors), len(held.fields)) + bytes(fields)
    at = 0
    for own, entry in held.tensors.items():
        number, size = form(own)
        out += struct.pack("<Q", len(own.encode())) + own.encode() + struct.pack("<I", len(entry.shape))
        out += struct.pack(f"<{len(entry.shape)}QIQ", *entry.shape[::-1], number, at)
        at += -(-size // held.align) * held.align
    file.write(out + bytes(-len(out) % held.align))
    for count, own in enumerate(held.tensors):
        tell(count, len(held.tensors), "writing")
        content = (
            held.stored(own)
            if names[own] not in changed
            else _content(merged, names[own], weights, linears, source.paired(names[own]))
        )
        file.write(content + bytes(-len(content) % held.align))


def _content(merged: Merged, name: str, weights: str, linears: set[str], heads: int | None) -> bytes:
    values = merged.values(name)
    if heads is not None:
        values = turned_pairs(values, heads, back=True)
    if name not in linears or weights == "f32":
        return np.ascontiguousarray(values, "<f4").tobytes()
    exact = values.astype(np.float64)
    merged.lost[0] += float(((q8_0_values(values) - exact) ** 2).sum())
    merged.lost[1] += float((exact**2).sum())
    return q8_0_blocks(values).tobytes()


def write_folder(folder: Path, merged: Merged, tell: Tell) -> None:
    """Writes a folder as transformers reads it.

    Tensors have the names of its source's family. Weights are float32, and there is no tokenizer.
    """
    config = {key: value for key, value in merged.config.items() if key not in _OF_WEIGHTS} or config_of(merged.model)
    form = described(config, merged.model.name)
    if form.model != merged.model:
        raise ValueError(f"{merged.model.name}: no config.json describes it")
    tensors: dict[str, tuple[np.ndarray, str]] = {}
    count = len(form.shapes)
    for name, values in form.in_file(merged.values):
        tell(len(tensors), count, "writing")
        tensors[name] = values, "float32"
    write_safetensors(folder / "model.safetensors", tensors)
    text = json.dumps(config | {"torch_dtype": "float32"}, indent=2, allow_nan=False)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
