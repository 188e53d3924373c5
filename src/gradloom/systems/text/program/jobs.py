"""A product as jobs for the machine: transfers and their purpose."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["ProductJob", "Transfer", "in_panels", "panels"]


@dataclass(frozen=True)
class Transfer:
    """A transfer between memory and the machine.

    ``offset`` in the window, beats, and the argument of the command.
    """

    offset: int
    beats: int
    argument: int


@dataclass(frozen=True, kw_only=True)
class ProductJob:
    """A product and its inputs on chip; ``tiles`` in their order of use.

    ``operands`` and ``lanes`` are there before it starts, ``tables`` before ``tiles``.

    Only tiles of codes need tables. ``stride``: bytes from a tile of ``result`` to the next, where they are not behind
    each other.
    """

    tables: Transfer | None
    operands: tuple[Transfer, ...]
    lanes: tuple[Transfer, ...]
    tiles: tuple[Transfer, ...]
    result: Transfer
    inner: int
    outer: int
    tokens: int
    rank: int
    backward: bool
    shifts: dict[str, int]
    stride: int | None = None

    @property
    def words(self) -> int:
        """Words of its input in a row of operand memory."""
        return self.inner * self.tokens


def panels(outer: int, span: int) -> Iterator[range]:
    """Tiles of outputs of each panel, ``span`` at most."""
    return (range(first, min(first + span, outer)) for first in range(0, outer, span))


def in_panels(tiles: Sequence[Transfer], inner: int, span: int) -> tuple[Transfer, ...]:
    """Tiles of a matrix in their order of use, of which those of an output followed each other."""
    return tuple(
        tiles[output * inner + place]
        for panel in panels(len(tiles) // inner, span)
        for place in range(inner)
        for output in panel
    )
