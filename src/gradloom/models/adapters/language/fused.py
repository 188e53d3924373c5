"""Adapters of linears that files keep as one: q, k and v, or gate and up.

PEFT has one adapter beside such a linear: its A is that of all parts, and rows of its B are theirs. Here each part has
an adapter of its own. So one adapter becomes several of the same A, and several become one whose rank is the sum of
theirs: B then has a block a part, and zeros beside it. Such a one comes apart as it was.
"""

from collections.abc import Mapping
from typing import Protocol, Self, TypeVar

import numpy as np

from ...language import FUSED, LanguageLinear, LanguageModel

__all__ = ["apart", "check_apart", "of_files", "together"]


class _Adapter(Protocol):
    """``scale · B A``; see :class:`~..lora.Adapter`."""

    @property
    def a(self) -> np.ndarray: ...

    @property
    def b(self) -> np.ndarray: ...

    @property
    def rank(self) -> int: ...

    def taking(self, parts: Mapping[str, np.ndarray]) -> Self: ...


_Each = TypeVar("_Each", bound=_Adapter)


def of_files(model: LanguageModel) -> list[LanguageLinear]:
    """Linears by the names that files have, in the order of a forward pass."""
    made: dict[str, LanguageLinear] = {}
    for each in model.linears:
        name = _name(model, each.name)
        before = made[name].outputs if name in made else 0
        made[name] = LanguageLinear(name, before + each.outputs, each.inputs)
    return list(made.values())


def apart(model: LanguageModel, adapters: Mapping[str, _Each]) -> dict[str, _Each]:
    """Adapters by the model's linears, of those by the names of files."""
    made: dict[str, _Each] = {}
    for name, each in adapters.items():
        parts = _parts(model, name)
        rows = np.cumsum([0, *(model.shape(part.rpartition(".")[2])[0] for part in parts)])
        blocks = [each.b[first:last] for first, last in zip(rows, rows[1:])]
        used = np.array([block.any(axis=0) for block in blocks])
        if len(parts) == 1 or not used.any() or (used.sum(axis=0) > 1).any():
            made |= {part: each.taking({"a": each.a, "b": block}) for part, block in zip(parts, blocks)}
            continue
        for part, block, own in zip(parts, blocks, used):
            if own.any():
                made[part] = each.taking({"a": each.a[own], "b": block[:, own]})
    return made


def together(model: LanguageModel, adapters: Mapping[str, _Each]) -> dict[str, _Each]:
    """Adapters by the names of files, of those by the model's linears, which have one scale."""
    made: dict[str, _Each] = {}
    for linear in of_files(model):
        parts = _parts(model, linear.name)
        held = [adapters[part] for part in parts if part in adapters]
        if not held:
            continue
        b, row, column = np.zeros((linear.outputs, sum(each.rank for each in held)), held[0].b.dtype), 0, 0
        for part in parts:
            if part in adapters:
                block = adapters[part].b
                b[row : row + len(block), column : column + block.shape[1]] = block
                column += block.shape[1]
            row += model.shape(part.rpartition(".")[2])[0]
        made[linear.name] = held[0].taking({"a": np.concatenate([each.a for each in held]), "b": b})
    return made


def check_apart(model: LanguageModel, what: str) -> None:
    """Refuses a model whose files keep several linears as one, for ``what`` knows only single ones."""
    if model.fused:
        kept = ", ".join(f"{' and '.join(parts)} as {name}" for name, parts in FUSED.items())
        raise ValueError(f"{model.name}: has {kept}, which {what} does not hold; use an adapter of LoRA by PEFT")


def _name(model: LanguageModel, linear: str) -> str:
    before, _, last = linear.rpartition(".")
    fused = next((name for name, parts in FUSED.items() if model.fused and last in parts), last)
    return f"{before}.{fused}"


def _parts(model: LanguageModel, name: str) -> list[str]:
    before, _, last = name.rpartition(".")
    return [f"{before}.{part}" for part in (FUSED.get(last, (last,)) if model.fused else (last,))]
