"""Blocks of a text: a product, a norm and a loss take 64 tokens at most.

Tensors keep all rows and their one exponent, and each operation takes a block's. Gradients of what learns are added
block by block, from the last one on.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ..base import Operation
from ..elements import Add, Biased
from ..products import Gradient
from ..scaling import TokenSum
from ..tensors import EDGE, AdapterTensors, Codes, Tensor, TensorSlice

__all__ = ["GRADED", "TextBlock", "blocks", "gradients", "in_turn"]

#: Ends of the names of gradients of what learns.
GRADED = (".ga", ".gb", ".gr", ".gw")


@dataclass(frozen=True)
class TextBlock:
    """Number ``number`` of ``count`` blocks of a text, of ``rows`` tokens."""

    number: int
    rows: int
    count: int

    @property
    def first(self) -> int:
        """Its first token."""
        return self.number * EDGE

    def named(self, name: str) -> str:
        """A tensor that each block has for itself."""
        return f"{name}@{self.first}" if self.count > 1 else name

    def of(self, part: TensorSlice, start: int | None = None) -> TensorSlice:
        """Its rows of tiles; as many from ``start`` on where those stand for them."""
        return replace(part, row=self.first if start is None else start, height=self.rows)

    def part(
        self, operations: Iterable[Operation], linear: Callable[[AdapterTensors], Codes] | None, *, once: bool
    ) -> list[Operation]:
        """Its part of operations on a whole text; with those that have no rows of it if these are made here, ``once``.

        ``linear``: beside which an adapter is, if there are some.
        """
        made: list[Operation] = []
        for each in operations:
            if self.count == 1 or not any(part.rows > EDGE for part in _slices(each).values()):
                made += [each] if once else []
            elif isinstance(each, Gradient | TokenSum):
                made += self._summed(each, linear)
            else:
                made.append(self._rows(each))
        return made

    def _rows(self, operation: Operation) -> Any:
        """Its part of an operation; what has few rows serves all."""
        parts = {name: self.of(each) for name, each in _slices(operation).items() if each.rows > EDGE}
        if isinstance(operation, Biased):
            # Rows that are equal.
            parts["b"] = self.of(operation.b, start=0)
        return replace(operation, **parts)  # type: ignore[type-var]

    def _summed(
        self, operation: Gradient | TokenSum, linear: Callable[[AdapterTensors], Codes] | None
    ) -> list[Operation]:
        """Its gradient, added to that of the blocks behind it."""
        part = self._rows(operation)
        if isinstance(operation, Gradient):
            assert linear is not None
            part, held = replace(part, place=self.named("")), linear(operation.adapter)
            sizes = {"ga": held.inputs, "gb": held.outputs}
            totals = [Tensor(operation.made(which), operation.adapter.rank, sizes[which]) for which in part.sources]
        else:
            part, totals = replace(part, y=self._named(operation.y.tensor).all()), [operation.y.tensor]
        if self.number == self.count - 1:
            return [part]
        behind = replace(self, number=self.number + 1)
        made: list[Operation] = [part]
        for total in totals:
            before, here = behind._named(total, behind.number < self.count - 1), self._named(total)
            after = self._named(total, True) if self.number else total
            made.append(Add(before.all(), here.all(), after.all(), lazy=True))
        return made

    def _named(self, tensor: Tensor, summed: bool = False) -> Tensor:
        return replace(tensor, name=self.named(tensor.name) + ".sum" * summed)


def blocks(tokens: int) -> list[TextBlock]:
    """Those of a text."""
    count = -(-tokens // EDGE)
    return [TextBlock(number, min(EDGE, tokens - EDGE * number), count) for number in range(count)]


def gradients(operations: Iterable[Operation]) -> list[str]:
    """Names of the gradients of what learns that operations make, each of all tokens."""
    return [part.name for each in operations for part in each.results if part.name.endswith(GRADED)]


#: Stages of units in their order, each with how many units it is behind the newest one.
Order = Sequence[tuple[int, int]]


def in_turn(units: Sequence[Sequence[list[Operation]]], order: Order) -> Iterator[Operation]:
    """Operations of units, which are a layer's blocks and then another's, each in stages.

    Where units overlap, stages that load more than the array works on hide under another unit's that load less.
    """
    lags = [lag for _, lag in order]
    for newest in range(min(lags), len(units) + max(lags)):
        for stage, lag in order:
            if 0 <= newest - lag < len(units):
                yield from units[newest - lag][stage]


def _slices(operation: Operation) -> dict[str, TensorSlice]:
    return {
        each.name: value
        for each in fields(operation)  # type: ignore[arg-type]
        if isinstance(value := getattr(operation, each.name), TensorSlice)
    }
