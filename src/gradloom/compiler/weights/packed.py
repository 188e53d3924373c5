"""Kernels whose matrices are mostly zeros: parts of several taps share a tile.

A matrix of a kernel of channels in groups, or of a folded layer, may have one part of 32 by 32 in each half of its rows
and columns. Such parts lie side by side, four in a tile, and have its exponent.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from gradloom.graph.base import Operation
from gradloom.graph.operations import Convolution
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.formats.tiles.codes import EDGE, NARROW, TileCoded, coded

from ..commands.base import Kept, Piece, is_plain
from .matrices import HALF, blocks

__all__ = ["Packed", "TilePart", "is_packed", "kernel_codes", "packed_codes", "parts_of", "place"]

#: Tap, tile of inputs, tile of outputs.
At = tuple[int, int, int]


@dataclass(frozen=True)
class TilePart:
    """A part of a tile: its half of rows and columns, its record, and its half of rows and columns there."""

    row: int
    column: int
    record: int
    to_row: int
    to_column: int


def is_packed(each: Operation, name: str) -> bool:
    """Whether a weight that does not learn is a kernel that products by address read."""
    return isinstance(each, Convolution) and name == f"{each.layer}.weight" and not is_plain(each)


def parts_of(some: np.ndarray) -> dict[At, list[TilePart]]:
    """Parts of the tiles that have few, of :func:`~.matrices.blocks`."""
    count, high, wide = some.shape
    whole = np.pad(some, ((0, 0), (0, high % 2), (0, wide % 2)))
    made: dict[At, list[TilePart]] = {}
    record, taken = 0, 0
    for j in range(whole.shape[2] // 2):
        for tap, k in product(range(count), range(whole.shape[1] // 2)):
            tile = whole[tap, 2 * k : 2 * k + 2, 2 * j : 2 * j + 2]
            if not tile.any() or tile.sum(0).max() > 1 or tile.sum(1).max() > 1:
                continue
            found = np.argwhere(tile)
            if taken + len(found) > 4:
                record, taken = record + 1, 0
            made[tap, k, j] = [
                TilePart(int(row), int(column), record, *divmod(taken + n, 2)) for n, (row, column) in enumerate(found)
            ]
            taken += len(found)
        if taken:
            record, taken = record + 1, 0
    return made


def _matrices(taps: np.ndarray, parts: dict[At, list[TilePart]]) -> list[np.ndarray]:
    """What records have, as far as their parts reach: products read no row or column behind."""
    made: list[np.ndarray] = []
    ends: list[tuple[int, int]] = []
    for at, found in parts.items():
        for part in found:
            while len(made) <= part.record:
                made.append(np.zeros((EDGE, EDGE)))
                ends.append((0, 0))
            own = taps[_where(at, part)]
            row, column = HALF * part.to_row, HALF * part.to_column
            end = row + own.shape[0], column + own.shape[1]
            made[part.record][row : end[0], column : end[1]] = own
            ends[part.record] = max(ends[part.record][0], end[0]), max(ends[part.record][1], end[1])
    return [each[:rows, :columns] for each, (rows, columns) in zip(made, ends)]


def _where(at: At, part: TilePart) -> tuple[int, slice, slice]:
    tap, k, j = at
    row, column = EDGE * k + HALF * part.row, EDGE * j + HALF * part.column
    return tap, slice(row, row + HALF), slice(column, column + HALF)


def kernel_codes(each: Operation, name: str, whole: np.ndarray) -> TileCoded:
    """Codes of matrices that do not learn, as they lie in memory."""
    return packed_codes(whole) if whole.ndim > 2 and is_packed(each, name) else coded(whole, NARROW)


def packed_codes(taps: np.ndarray) -> TileCoded:
    """Codes of matrices ``[taps, inputs, outputs]``, with the exponents of shared tiles."""
    found, parts = coded(taps, NARROW), parts_of(blocks(taps))
    records = [coded(each, NARROW) for each in _matrices(taps, parts)]
    for at, listed in parts.items():
        for part in listed:
            own, record = found.codes[_where(at, part)], records[part.record]
            row, column = HALF * part.to_row, HALF * part.to_column
            whole = np.zeros((EDGE, EDGE))
            whole[: record.codes.shape[0], : record.codes.shape[1]] = record.codes
            own[:] = whole[row : row + own.shape[0], column : column + own.shape[1]]
            found.exponents[at] = record.exponents.item()
    return found


def place(taps: np.ndarray, codes: Callable[[np.ndarray], Tiles]) -> Kept:
    """Places codes of matrices ``[taps, inputs, outputs]`` with ``codes``; tiles of zeros have no place."""
    some = blocks(taps)
    parts = parts_of(some)
    if not parts:
        return Kept(codes(taps), False, some)
    records = [codes(each) for each in _matrices(taps, parts)]
    whole: dict[At, Tiles] = {}
    count, high, wide = some.shape
    for j, tap, k in product(range(-(-wide // 2)), range(count), range(-(-high // 2))):
        own = taps[tap, EDGE * k : EDGE * (k + 1), EDGE * j : EDGE * (j + 1)]
        if (tap, k, j) not in parts and own.any():
            whole[tap, k, j] = codes(own)
    return Packed(records[0], False, some, records=records, parts=parts, whole=whole, shape=taps.shape[1:])


@dataclass(frozen=True)
class Packed(Kept):
    """Codes of such a kernel: records that are shared, and those of whole tiles."""

    records: Sequence[Tiles] = ()
    parts: dict[At, list[TilePart]] = None  # type: ignore[assignment]
    whole: dict[At, Tiles] = None  # type: ignore[assignment]
    shape: tuple[int, ...] = ()

    def pieces(self, j: int, tap: int, deep: int, back: bool) -> list[Piece]:
        """See :class:`~.base.Kept`."""
        made = []
        for k in range(deep):
            at = (tap, j, k) if back else (tap, k, j)
            count = min(EDGE, self.shape[1 if back else 0] - EDGE * k)
            if at in self.whole:
                some = self.some[tap].T if back else self.some[tap]  # type: ignore[index]
                there = np.flatnonzero(some[2 * k : 2 * k + 2, 2 * j : 2 * j + 2].any(0))
                halves = range(int(there[0]), int(there[-1]) + 1)
                given = {"k_to": count - 1, "w_column": HALF * halves.start}
                made.append(
                    Piece(((self.whole[at].at(0, 0), self.whole[at].record(0, 0)),), range(k, k + 1), halves, given)
                )
            for part in self.parts.get(at, ()):
                tiles = self.records[part.record]
                row, column, to_row, to_column = part.row, part.column, part.to_row, part.to_column
                if back:
                    row, column, to_row, to_column = column, row, to_column, to_row
                given = {
                    "k_from": HALF * row,
                    "k_to": min(HALF * row + HALF, count) - 1,
                    "w_row": HALF * (to_row - row) % EDGE,
                    "w_column": HALF * to_column,
                }
                halves = range(column, column + 1)
                made.append(Piece(((tiles.at(0, 0), tiles.record(0, 0)),), range(k, k + 1), halves, given))
        return made
