"""Blocks of a text: a product, a norm and a loss take 64 tokens at most.

A list of operations is made as if all took any number of rows. :func:`by_blocks` makes those of a long text of it:
tensors keep all rows and their one exponent, and each operation takes a block's. Gradients of what learns are added
block by block.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from .base import Operation
from .elements import Add, Biased
from .products import Gradient, Product
from .scaling import TokenSum
from .tensors import EDGE, AdapterTensors, Codes, Tensor, TensorSlice

__all__ = ["GRADED", "Block", "blocks", "by_blocks", "gradients"]

#: Ends of the names of gradients of what learns.
GRADED = (".ga", ".gb", ".gr", ".gw")


@dataclass(frozen=True)
class Block:
    """Tokens ``first`` to ``first + rows`` of a text, which has ``of`` blocks."""

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
        """Its rows of tiles; from ``start`` on where other rows stand for them."""
        return replace(part, row=self.first if start is None else start, height=self.rows)


def blocks(tokens: int) -> list[Block]:
    """Those of a text."""
    count = -(-tokens // EDGE)
    return [Block(number, min(EDGE, tokens - EDGE * number), count) for number in range(count)]


def by_blocks(
    operations: Sequence[Operation], tokens: int, linear: Callable[[AdapterTensors], Codes]
) -> list[Operation]:
    """The operations of a text of ``tokens`` tokens, none of more than a block.

    Neighbours that are no products stand block by block, so that those of a block need not wait for another's.
    """
    if tokens <= EDGE:
        return list(operations)
    parts, made, waiting = blocks(tokens), list[Operation](), list[Operation]()

    def flush() -> None:
        made.extend(_rows(each, part) for part in parts for each in waiting)
        waiting.clear()

    for each in operations:
        if not _long(each):
            flush()
            made.append(each)
        elif isinstance(each, Gradient | TokenSum):
            flush()
            made += _summed(each, parts, linear)
        elif isinstance(each, Product):
            flush()
            made += [_rows(each, part) for part in parts]
        else:
            waiting.append(each)
    flush()
    return made


def gradients(operations: Sequence[Operation]) -> list[str]:
    """Names of the gradients of what learns that operations make, each of all tokens."""
    return [part.name for each in operations for part in each.results if part.name.endswith(GRADED)]


def _slices(operation: Operation) -> dict[str, TensorSlice]:
    return {
        each.name: value
        for each in fields(operation)  # type: ignore[arg-type]
        if isinstance(value := getattr(operation, each.name), TensorSlice)
    }


def _long(operation: Operation) -> bool:
    """Whether it takes more rows than a block has."""
    return any(each.rows > EDGE for each in _slices(operation).values())


def _rows(operation: Operation, block: Block) -> Any:
    """A block's part of it; what has few rows serves all."""
    parts = {name: block.of(each) for name, each in _slices(operation).items() if each.rows > EDGE}
    if isinstance(operation, Biased):
        # Rows that are equal.
        parts["b"] = block.of(operation.b, start=0)
    return replace(operation, **parts)  # type: ignore[type-var]


def _summed(
    operation: Gradient | TokenSum, parts: Sequence[Block], linear: Callable[[AdapterTensors], Codes]
) -> list[Operation]:
    """A gradient of each block, and their sum."""
    made: list[Operation] = []
    for block in parts:
        part = _rows(operation, block)
        if isinstance(operation, Gradient):
            made.append(replace(part, place=block.named("")))
            held = linear(operation.adapter)
            sizes = {"ga": held.inputs, "gb": held.outputs}
            totals = [Tensor(operation.made(which), operation.adapter.rank, sizes[which]) for which in part.sources]
        else:
            made.append(replace(part, y=_named(operation.y.tensor, block).all()))
            totals = [operation.y.tensor]
        if not block.number:
            continue
        for total in totals:
            before, here = (_named(total, each) for each in (parts[block.number - 1], block))
            if block.number > 1:
                before = replace(before, name=f"{before.name}.sum")
            after = total if block is parts[-1] else replace(here, name=f"{here.name}.sum")
            made.append(Add(before.all(), here.all(), after.all(), lazy=True))
    return made


def _named(tensor: Tensor, block: Block) -> Tensor:
    return replace(tensor, name=block.named(tensor.name))
