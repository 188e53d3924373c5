"""Convolutions by address."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from gradloom.graph.operations import Convolution
from gradloom.program.tiles.drafts import Block, DraftValue, Term
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.formats.tiles.codes import EDGE, NARROW
from gradloom.rtl.formats.tiles.pixels import Pixels, taps
from gradloom.rtl.formats.tiles.product import REACH

from .base import Beside
from .matrices import HALF, portions
from .products import Pair, Products

__all__ = ["Convolutions", "addresses"]

Sides = tuple[int, int]


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


class _Gather:
    """Rows that a convolution reads, tap by tap."""

    def __init__(self, pixels: Pixels, places: Sequence[tuple[int, int]]) -> None:
        self.pixels, self.places = pixels, places
        self.sources = [pixels.rows(*place) for place in places]

    def terms(
        self, layer: str, some: range, rows: range, pair: Pair, tiles: Tiles, j: int, columns: int, back: bool
    ) -> list[Term]:
        """Products of some taps and rows of the result with the ``columns`` of tile ``j``.

        ``tiles``: codes of the tensor of the pair. Matrices of zeros and taps that read none of the rows are left out.
        """
        x, kept = pair
        reached = ((tap, _reach(self.sources[tap][rows.start : rows.stop])) for tap in some)
        taps = [(tap, near) for tap, near in reached if near is not None]
        runs = [(tap, near, run) for tap, near in taps for run in kept.runs(j, tap, x.wide, back)]
        if not runs:
            return []
        first = min(near[0] for _, near, _ in runs)
        last = max(near[1] for _, near, _ in runs)
        furthest = max(near[1] - near[0] for _, near, _ in runs)
        if furthest >> REACH:
            raise ValueError(
                f"{layer}: rows of a tile come from {furthest + 1} tiles, must be {1 << REACH} at most; use smaller "
                "images or strides"
            )
        stream = Block.of(tiles, [(row, k) for row in range(first, last + 1) for k in range(x.wide)])
        block = Block.of(kept.tiles, [kept.at(k, j, tap, back) for tap, _, (run, _) in runs for k in run])
        made, skip = [], 0
        for tap, near, (run, halves) in runs:
            place = self.pixels.place(rows.start, *self.places[tap], near[0])
            begin = HALF * (halves.start - 2 * j)
            given = {
                "gather": 1,
                "tiles": len(run) - 1,
                "k_to": ((x.features - 1) if run.stop == x.wide else -1) % EDGE,
                "w_turn": int(kept.flips(back)),
                "x_pitch": x.wide,
                "reach": near[1] - near[0],
            } | kept.begin(tap, back)
            if len(halves) == 1 and columns > HALF:
                given |= {"columns": min(HALF, columns - begin) - 1, "o_column": begin, "w_column": begin}
            x_skip = (near[0] - first) * x.wide + run.start
            made.append(Term(stream, block, given | place, x_skip=x_skip, w_skip=skip, scan=self.pixels.shape))
            skip += len(run)
        return made


def _whole_ends(terms: list[Term], has_bias: bool) -> list[Term]:
    """Terms of all columns first, where no bias comes before, and last: they begin sums and end them."""
    if all("columns" not in each.operands for each in terms):
        return terms
    made = sorted(terms, key=lambda term: "columns" in term.operands)
    ends = [made[-1]] if has_bias else [made[0], made[-1]]
    if not has_bias and len(made) > 1 and "columns" not in made[1].operands:
        ends[-1] = made.pop(1)
        made.append(ends[-1])
    elif has_bias:
        ends[-1] = made.pop(0)
        made.append(ends[-1])
    whole = {id(each) for each in ends}
    names = ("columns", "o_column", "w_column")
    return [
        replace(each, operands={key: value for key, value in each.operands.items() if key not in names})
        if id(each) in whole and "columns" in each.operands
        else each
        for each in made
    ]


class Convolutions(Products):
    """Writes convolutions and their gradients."""

    def _convolution(self, each: Convolution) -> None:
        (x,) = self.given(each)
        if self.is_plain(each):
            self.layer(each, x)
            return
        gather = _Gather(*addresses(each, self.samples, self.source(each.i[0]), back=False))
        rows: list[Pair] = []
        if each.rank:
            a, b = (self.kept[weight.name] for weight in each.adapter)
            name = f"{each.o.name}.hidden"
            h = self.found[name] = self.tiler.value(name, self.rows(each.o), each.rank)
            self._gathered(each, gather, h, [(x, a)])
            rows = [(h, b)]
        self._gathered(each, gather, self.made(each), [(x, self.kept[f"{each.layer}.weight"])], rows, whole=True)

    def _convolution_back(self, each: Convolution, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        (x,) = self.given(each)
        if self.is_plain(each):
            return [self.layer_back(each, x, dy, wanted[0])]
        if f"{each.layer}.bias" in self.learnt:
            self.summed(self.learnt[f"{each.layer}.bias"], dy)
        through = self.adapter_back(each, dy, wanted[0])
        weight = f"{each.layer}.weight"
        pairs, rows = [(dy, self.kept[weight])], list[Pair]()
        if through is not None:
            a = each.adapter[0].name
            if a in self.learnt:
                rows.append((self._taps_back(each, a, through, x), self.kept[a]))
            else:
                pairs.append((through, self.kept[a]))
        if weight in self.learnt:
            self._taps_back(each, weight, dy, x)
        if not wanted[0]:
            return [None]
        made = self.part(each.i[0])
        gather = _Gather(*addresses(each, self.samples, each.i[0].sides, back=True))
        self._gathered(each, gather, made, pairs, rows, back=True)
        return [made]

    def _taps_back(self, each: Convolution, name: str, dy: DraftValue, x: DraftValue) -> DraftValue:
        """Gradient of a kernel.

        What comes to a row of the layer's input by each tap lies side by side, and is returned; a product over rows
        makes all taps.
        """
        t, taps = each.i[0], prod(each.kernel)
        beside = self.beside(taps, dy.features)
        came = self.tiler.value(f"{name}.came", self.rows(t), taps * beside.pitch)
        self._gathered(each, _Gather(*addresses(each, self.samples, t.sides, back=True)), came, [(dy, beside)])
        small = came
        if t.name in self.risen:
            small = self.shrunk(self.tiler.value(f"{name}.small", x.rows, came.features), came, self.source(t))
        self.over_rows(self.learnt[name], small, x)
        return came

    def _gathered(
        self,
        each: Convolution,
        gather: _Gather,
        made: DraftValue,
        pairs: Sequence[Pair],
        rows: Sequence[Pair] = (),
        *,
        back: bool = False,
        whole: bool = False,
    ) -> None:
        """Products by address with ``pairs``, and of own rows with ``rows``; ``whole``: a layer's result."""
        taps = len(gather.places)
        counts = [sum(many) for many in zip(*(kept.counts(taps, x.wide, back) for x, kept in pairs))]
        counts[0] += sum(x.wide for x, _ in rows)
        parts = portions(counts)
        positive = whole and each.positive

        def some(own: DraftValue, part: slice) -> None:
            first = part.start == 0
            for j in range(made.wide):
                bias = self.bias(each, each.layer, j) if whole and first else None
                for i in range(made.high):
                    count, columns = made.part(i, j)
                    span, terms = range(EDGE * i, EDGE * i + count), list[Term]()
                    for pair in pairs:
                        tiles = self.tiler.read(pair[0], NARROW)
                        terms += gather.terms(each.layer, range(taps)[part], span, pair, tiles, j, columns, back)
                    terms += [self._term(x, kept, i, j, back) for x, kept in rows if first]
                    if not terms and bias is None:
                        self.nothing(own, i, j)
                        continue
                    terms = _whole_ends(terms, bias is not None) if terms else terms
                    self.tiler.product(own, (i, j), terms, bias=bias, positive=positive and len(parts) == 1)

        self.added(made, parts, some, **({"positive": 1} if positive else {}))

    def beside(self, taps: int, features: int) -> Beside:
        """Matrices that put the features of taps side by side."""
        raise NotImplementedError


def _reach(rows: np.ndarray) -> tuple[int, int] | None:
    """First and last row tile of source rows; None where all are zeros."""
    inside = rows[rows >= 0]
    return (int(inside.min()) // EDGE, int(inside.max()) // EDGE) if len(inside) else None
