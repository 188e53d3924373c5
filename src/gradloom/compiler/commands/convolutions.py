"""Convolutions by address."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from math import prod

import numpy as np

from gradloom.graph.base import Operation
from gradloom.graph.operations import Convolution
from gradloom.program.tiles.drafts import Block, DraftValue, Term
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.formats.tiles.codes import EDGE, NARROW
from gradloom.rtl.formats.tiles.pixels import Pixels, taps
from gradloom.rtl.formats.tiles.product import REACH

from ..weights.matrices import HALF, portions, rest_of
from ..weights.packed import is_packed, kernel_codes, place
from .base import Beside, Kept
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

        ``tiles``: codes of the tensor of the pair. Matrices of zeros, taps that read none of the rows and tiles of the
        tensor that no matrix takes are left out.
        """
        x, kept = pair
        reached = ((tap, _reach(self.sources[tap][rows.start : rows.stop])) for tap in some)
        taps = [(tap, near) for tap, near in reached if near is not None]
        pieces = [(tap, near, piece) for tap, near in taps for piece in kept.pieces(j, tap, x.wide, back)]
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
            x_skip = (near[0] - first) * len(deep) + run.start - deep.start
            skip = skips[piece.records]
            made.append(Term(stream, block, given | place, x_skip=x_skip, w_skip=skip, scan=self.pixels.shape))
        return made


def _ended(terms: list[Term], columns: int, has_bias: bool, blank: Callable[[], Block]) -> list[Term]:
    """Terms that begin and end the sums of all columns; ``blank``: a tile of zeros."""
    part = [each for each in terms if "columns" in each.operands]
    if not part:
        return terms
    whole = [each for each in terms if "columns" not in each.operands]
    both = {each.operands["o_column"] for each in part}
    if not whole and len(both) == 1:
        # Nothing else comes to the other half.
        other = HALF - both.pop()
        given = {"w_column": 0, "k_from": 0, "k_to": 0, "tiles": 0, "o_column": other}
        given["columns"] = min(HALF, columns - other) - 1
        part.append(replace(part[0], w=blank(), w_skip=0, operands=part[0].operands | given))
    elif len(both) == 1 and (len(whole) > 1 or has_bias):
        # The last of all columns ends both halves.
        begin = [replace(each, ends=(n == 0 and not has_bias, False)) for n, each in enumerate(whole[:-1] + part)]
        return [*begin, replace(whole[-1], ends=(False, True))]
    elif len(whole) == 1 and len(both) == 1:
        part, whole = _halves(whole[0], columns) + part, []
    found = whole + part
    made = []
    for n, each in enumerate(found):
        at = each.operands.get("o_column")
        before = (
            has_bias or bool(whole and n) or (at is not None and any(o.operands["o_column"] == at for o in found[:n]))
        )
        after = at is None or any(other.operands.get("o_column") == at for other in found[n + 1 :])
        made.append(replace(each, ends=(not before, not after)))
    return made


def _halves(term: Term, columns: int) -> list[Term]:
    """A term of all columns as two."""
    first = term.operands.get("w_column", 0)
    return [
        replace(
            term,
            operands=term.operands
            | {"o_column": at, "columns": min(HALF, columns - at) - 1, "w_column": (first + at) % EDGE},
        )
        for at in (0, HALF)
    ]


class Convolutions(Products):
    """Writes convolutions and their gradients."""

    def _kernel(self, each: Operation, name: str, values: np.ndarray) -> Kept:
        if not is_packed(each, name) or values.ndim == 2:
            return super()._kernel(each, name, values)
        return place(values, lambda own: self.codes(own, NARROW))

    def _rest_of(self, each: Operation, name: str, values: np.ndarray) -> np.ndarray:
        return rest_of(values, kernel_codes(each, name, values))

    def _convolution(self, each: Convolution) -> None:
        x, *rest = self.given(each)
        if self.is_plain(each):
            self.layer(each, x, rest)
            return
        gather = _Gather(*addresses(each, self.samples, self.source(each.i[0]), back=False))
        rows: list[Pair] = []
        if each.rank:
            a, b = (self.kept[weight.name] for weight in each.adapter)
            name = f"{each.o.name}.hidden"
            h = self.found[name] = self.tiler.value(name, self.rows(each.o), each.rank)
            self._gathered(each, gather, h, [(x, a)])
            rows = [(h, b)]
        self._gathered(each, gather, self.made(each), self.pairs(each, x, rest), rows, whole=True)

    def _convolution_back(self, each: Convolution, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        x = self.given(each)[0]
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
                    terms = _ended(terms, columns, bias is not None, lambda: Block.of(self.blank, [(0, 0)]))
                    self.tiler.product(own, (i, j), terms, bias=bias, positive=positive and len(parts) == 1)

        self.added(made, parts, some, **({"positive": 1} if positive else {}))

    @property
    def blank(self) -> Tiles:
        """A tile of zeros, of 8 bits."""
        raise NotImplementedError

    def beside(self, taps: int, features: int) -> Beside:
        """Matrices that put the features of taps side by side."""
        raise NotImplementedError


def _reach(rows: np.ndarray) -> tuple[int, int] | None:
    """First and last row tile of source rows; None where all are zeros."""
    inside = rows[rows >= 0]
    return (int(inside.min()) // EDGE, int(inside.max()) // EDGE) if len(inside) else None
