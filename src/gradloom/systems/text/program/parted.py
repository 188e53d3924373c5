"""Parts of products whose first outputs other products wait for.

Scores of a head need the head's queries alone, and softmaxes keep the vector engine busy while the array makes the
queries of other heads. So a product of which that is true is done in parts, with what reads each part behind the next
one. The words are the same in any order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from gradloom.rtl.machines.configs.language import LanguageConfig

from ..operations.base import Operation
from ..operations.elements import Rope
from ..operations.products import Product
from ..operations.tensors import EDGE, Codes, TensorSlice, Words

__all__ = ["OperationPart", "parted"]

#: Parts of a product at most: each brings its operands again.
_PARTS = 3
#: A tile of a tensor.
_Tile = tuple[str, int]


@dataclass(frozen=True)
class OperationPart:
    """An operation, number ``order`` of the list; of a product in parts, which tiles of outputs."""

    order: int
    operation: Operation
    outputs: range | None = None


def parted(operations: Sequence[Operation], config: LanguageConfig) -> Iterator[OperationPart]:
    """The operations in an order in which they can be done, some products in parts."""
    at = 0
    while at < len(operations):
        found = _readers(operations, at, config)
        if found:
            yield from _interleaved(operations, at, found, config)
            at = found.stop
        else:
            yield OperationPart(at, operations[at])
            at += 1


def _bounds(product: Product, config: LanguageConfig) -> list[range]:
    """Outputs of each part: whole panels."""
    panels = -(-product.y.count // config.span)
    parts = min(_PARTS, panels)
    ends = [min(panels * part // parts * config.span, product.y.count) for part in range(parts + 1)]
    return [range(first, end) for first, end in zip(ends, ends[1:])]


def _readers(operations: Sequence[Operation], at: int, config: LanguageConfig) -> range:
    """Numbers of a product in parts, and of what goes between them; empty if it stays whole."""
    whole = operations[at]
    if not isinstance(whole, Product) or not isinstance(whole.weight, Codes) or len(_bounds(whole, config)) == 1:
        return range(0)
    if config.tile_cycles(whole.x.rows) < 2 * (EDGE + 2):
        return range(0)  # the bus takes half of the time for the weights alone: nothing hides under them
    after, stop = {whole.y.name}, at + 1
    made: set[str] = set()
    hides = False
    for each in operations[at + 1 :]:
        if isinstance(each, Product):
            if not isinstance(each.weight, Words) or after.isdisjoint(each.reads):
                break
            made.update(each.makes)
        elif not made.isdisjoint(each.reads):
            hides = True
        elif isinstance(each, Rope) and each.x.name in after:
            after.update(each.makes)
        else:
            break
        stop += 1
    return range(at, stop) if hides else range(0)


def _interleaved(
    operations: Sequence[Operation], at: int, found: range, config: LanguageConfig
) -> Iterator[OperationPart]:
    """A product's parts; behind each what turns it, and what reads the part before."""
    whole = operations[at]
    assert isinstance(whole, Product)
    bounds = _bounds(whole, config)
    of: dict[_Tile, int] = {
        (whole.y.name, whole.y.first + tile): number for number, part in enumerate(bounds) for tile in part
    }
    turned: list[list[OperationPart]] = [[] for _ in bounds]
    later: list[list[OperationPart]] = [[] for _ in bounds]
    for order in found[1:]:
        operation = operations[order]
        if isinstance(operation, Rope):
            for each in _turned(operation, bounds):
                number = max(of[tile] for tile in _tiles(each.x))
                of |= dict.fromkeys(_tiles(each.y), number)
                turned[number].append(OperationPart(order, each))
            continue
        number = max(of.get(tile, 0) for each in _slices(operation) for tile in _tiles(each))
        of |= {tile: number for each in operation.results for tile in _tiles(each)}
        later[number].append(OperationPart(order, operation))
    for number, part in enumerate(bounds):
        yield OperationPart(at, whole, part)
        yield from turned[number]
        if number:
            yield from later[number - 1]
    yield from later[-1]


def _turned(operation: Rope, bounds: Sequence[range]) -> Iterator[Rope]:
    """A rotation in parts: whole heads, each behind the part that ends it."""
    span, done = operation.angles.tiles, 0
    for part in bounds:
        end = part.stop // span * span
        if end > done:
            x, y = (each.part(done, end - done) for each in (operation.x, operation.y))
            yield replace(operation, x=x, y=y)
        done = max(end, done)


def _slices(operation: Operation) -> Iterator[TensorSlice]:
    values: list[Any] = [getattr(operation, each.name) for each in fields(operation)]  # type: ignore[arg-type]
    for value in values:
        yield from value.tiles if isinstance(value, Words) else [value] if isinstance(value, TensorSlice) else []


def _tiles(part: TensorSlice) -> list[_Tile]:
    return [(part.name, part.first + tile) for tile in range(part.count)]
