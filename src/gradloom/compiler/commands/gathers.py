"""Rows that convolutions read, by address."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import prod

import numpy as np

from gradloom.graph.base import Operation
from gradloom.graph.operations import Convolution
from gradloom.program.tiles.drafts import Block, DraftValue, Term
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.formats.tiles.codes import EDGE
from gradloom.rtl.formats.tiles.pixels import Pixels, taps
from gradloom.rtl.formats.tiles.product import REACH

from ..weights.matrices import HALF, TapRows, depths
from .base import Kept

__all__ = ["Gather", "addresses", "by_lines", "depths_of", "runs", "shifts", "tiles_of_rows"]

Sides = tuple[int, int]

#: Parts of a tile that products over shifted rows take, at most.
_PARTS = 2


def _two(sides: Sequence[int], filling: int = 1) -> Sides:
    """Sides of a series as those of an image of one line."""
    first, second = (filling, *sides)[-2:]
    return first, second


def addresses(
    each: Convolution, samples: int, source: Sequence[int], *, back: bool
) -> tuple[Pixels, list[tuple[int, int]]]:
    """Which rows a convolution reads, and beside which place each tap does.

    ``source``: sides in memory of the tensor that it reads, smaller than its own where that is upsampled. ``back``: of
    its gradient.
    """
    kernel, stride, dilation = _two(each.kernel), _two(each.stride), _two(each.dilation)
    pads = _two([low for low, _ in each.pads], 0)
    wide, small = _two(each.i[0].sides), _two(each.o.sides)
    if each.transposed:
        wide, small = small, wide
    if back != each.transposed:
        pixels = Pixels(samples, wide, small, stride, divide=True, every=True)
        return pixels, taps(kernel, pads, dilation, back=True)
    given = _two(source)
    if given != _two(each.i[0].sides):
        rise = wide[0] // given[0], wide[1] // given[1]
        return Pixels(samples, small, given, rise, divide=True), taps(kernel, pads, dilation)
    return Pixels(samples, small, wide, stride), taps(kernel, pads, dilation)


def by_lines(pixels: Pixels, places: Sequence[tuple[int, int]]) -> "tuple[Gather, Gather]":
    """The same places of a kernel's lines in two steps: along the lines, then from line to line."""
    (down, along), between = pixels.stride, (pixels.source[0], pixels.result[1])
    first = replace(pixels, result=between, stride=(1, along))
    second = replace(pixels, source=between, stride=(down, 1))
    lines, across = (list(dict.fromkeys(place[side] for place in places)) for side in (0, 1))
    return Gather(first, [(0, by) for by in across]), Gather(second, [(by, 0) for by in lines])


@dataclass(frozen=True)
class ShiftedRows:
    """Rows ``first`` to ``last`` of tile ``tile`` that read neighbours of tile ``source``, ``shift`` rows on."""

    tile: int
    source: int
    first: int
    last: int
    shift: int


def runs(sources: np.ndarray) -> list[ShiftedRows]:
    """Rows that read neighbouring ones, of places ``[rows]``."""
    at = np.flatnonzero(sources >= 0)
    own, other = at // EDGE, sources[at] // EDGE
    ends = (np.diff(at) != 1) | (np.diff(sources[at]) != 1) | (np.diff(own) != 0) | (np.diff(other) != 0)
    made = []
    for part in np.split(np.arange(len(at)), np.flatnonzero(ends) + 1) if len(at) else ():
        first, last = at[part[0]], at[part[-1]]
        tiles = int(own[part[0]]), int(other[part[0]])
        made.append(ShiftedRows(*tiles, int(first) % EDGE, int(last) % EDGE, int(sources[first] - first)))
    return made


def shifts(each: Operation, rows: TapRows, samples: int) -> "tuple[Gather, Gather] | None":
    """See :func:`by_lines`, where a line's rows lie as far from the next one's in what reads and what is read.

    Then a product over rows shifts them. None where they do not, or where that takes too many parts of tiles.
    """
    if not isinstance(each, Convolution) or rows.line is None or rows.line.total > EDGE:
        return None
    first, second = by_lines(*addresses(each, samples, each.i[0].sides, back=True))
    pixels = second.pixels
    if pixels.result != pixels.source or set(pixels.stride) != {1}:
        return None
    parts = sum(len(runs(own)) for own in second.sources)
    return (first, second) if parts <= _PARTS * len(second.places) * -(-second.rows // EDGE) else None


class Gather:
    """Rows that a convolution reads, tap by tap."""

    def __init__(self, pixels: Pixels, places: Sequence[tuple[int, int]]) -> None:
        self.pixels, self.places = pixels, places
        self.sources = [pixels.rows(*place) for place in places]

    @property
    def rows(self) -> int:
        """Rows of the result."""
        return self.pixels.count * prod(self.pixels.result)

    @cached_property
    def tiles(self) -> int:
        """Tiles that the rows of a tile come from at most."""
        return tiles_of_rows(np.stack(self.sources))

    def depths(self, wide: int, counts: Sequence[int], tensors: int) -> list[range]:
        """See :func:`depths_of`."""
        return depths_of(np.stack(self.sources), wide, counts, tensors)

    def terms(
        self,
        layer: str,
        some: range,
        rows: range,
        pair: tuple[DraftValue, Kept],
        tiles: Tiles,
        j: int,
        columns: int,
        back: bool,
        within: range | None = None,
    ) -> list[Term]:
        """Products of some taps and rows of the result with the ``columns`` of tile ``j``.

        ``tiles``: codes of the tensor of the pair, of which those ``within`` are summed over. Matrices of zeros, taps
        that read none of the rows and tiles of the tensor that no matrix takes are left out.
        """
        x, kept = pair
        reached = ((tap, _reach(self.sources[tap][rows.start : rows.stop])) for tap in some)
        taps = [(tap, near) for tap, near in reached if near is not None]
        within = range(x.wide) if within is None else within
        pieces = [
            (tap, near, piece)
            for tap, near in taps
            for each in kept.pieces(j, tap, x.wide, back)
            if (piece := each.within(within)) is not None
        ]
        if not pieces:
            return []
        first = min(near[0] for _, near, _ in pieces)
        last = max(near[1] for _, near, _ in pieces)
        furthest = max(near[1] - near[0] for _, near, _ in pieces)
        if furthest >> REACH:
            raise ValueError(
                f"{layer}: rows of a tile come from {furthest + 1} tiles, must be {1 << REACH} at most; use smaller "
                "images or strides"
            )
        deep = range(min(piece.tiles.start for _, _, piece in pieces), max(piece.tiles.stop for _, _, piece in pieces))
        stream = Block.of(tiles, [(row, k) for row in range(first, last + 1) for k in deep])
        # Taps may share a tile.
        shared = dict.fromkeys(piece.records for _, _, piece in pieces)
        skips = dict(zip(shared, accumulate(map(len, shared), initial=0)))
        offsets, records = zip(*(each for tiles in shared for each in tiles))
        block, made = Block(offsets, records), []
        for tap, near, piece in pieces:
            place = self.pixels.place(rows.start, *self.places[tap], near[0])
            run, begin = piece.tiles, HALF * piece.halves.start
            given = {
                "gather": 1,
                "tiles": len(run) - 1,
                "k_to": ((x.features - 1) if run.stop == x.wide else -1) % EDGE,
                "w_turn": int(kept.flips(back)),
                "x_pitch": len(deep),
                "reach": near[1] - near[0],
            } | piece.given
            if len(piece.halves) == 1 and columns > HALF:
                given |= {"columns": min(HALF, columns - begin) - 1, "o_column": begin}
            if "o_column" in given:
                given["columns"] = min(given["columns"], columns - 1 - given["o_column"])
            if given.get("columns") == columns - 1:
                del given["columns"], given["o_column"]
            x_skip = (near[0] - first) * len(deep) + run.start - deep.start
            skip = skips[piece.records]
            made.append(Term(stream, block, given | place, x_skip=x_skip, w_skip=skip, scan=self.pixels.shape))
        return made


def tiles_of_rows(sources: np.ndarray) -> int:
    """Tiles in which those rows lie, first to last, that places ``[taps, rows]`` of a tile read at most."""
    tiles = np.pad(sources, ((0, 0), (0, -sources.shape[1] % EDGE)), constant_values=-1) // EDGE
    whole = tiles.reshape(len(tiles), -1, EDGE)
    first = np.where(whole < 0, whole.max(initial=0), whole).min((0, 2))
    return max(int((whole.max((0, 2)) - first).max()) + 1, 0)


def depths_of(rows: np.ndarray, wide: int, counts: Sequence[int], tensors: int) -> list[range]:
    """:func:`~..weights.matrices.depths` of places ``[taps, rows]`` in so many tensors."""
    alone = max(tiles_of_rows(own[None]) for own in rows)
    return depths(wide, tensors * alone, tensors * tiles_of_rows(rows), counts)


def _reach(rows: np.ndarray) -> tuple[int, int] | None:
    """First and last row tile of source rows; None where all are zeros."""
    inside = rows[rows >= 0]
    return (int(inside.min()) // EDGE, int(inside.max()) // EDGE) if len(inside) else None
