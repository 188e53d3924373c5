"""Convolutions by address."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from gradloom.graph.base import Operation, Tensor
from gradloom.graph.operations import Convolution
from gradloom.program.tiles.drafts import Block, DraftValue, Term
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.formats.tiles.codes import EDGE, NARROW

from ..weights.matrices import HALF, ROWS, TapRows, parted, portions, rest_of, together
from ..weights.packed import is_packed, kernel_codes, place
from .base import WHOLE, Kept, Moved, Stacked
from .gathers import Gather, addresses, by_lines, runs, shifts
from .products import Pair, Products, Summand

__all__ = ["Convolutions"]


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
        given = part[0].operands | {"o_column": other, "columns": min(HALF, columns - other) - 1}
        part.append(_of_zeros(part[0], given, blank()))
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


def _of_zeros(term: Term, operands: dict[str, int], blank: Block) -> Term:
    """A term with these operands that adds nothing."""
    nothing = {"w_column": 0, "k_from": 0, "k_to": 0, "tiles": 0}
    return replace(term, w=blank, w_skip=0, operands=operands | nothing)


def _ends(term: Term) -> int:
    """The column behind a part."""
    return term.operands["o_column"] + term.operands["columns"] + 1


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


def rows_of(kept: Kept, features: int) -> TapRows:
    """Rows of taps of what learns, of so many features if it has one tap."""
    return kept.rows if isinstance(kept, Stacked) else TapRows.of(np.ones((1, features), bool))


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
        gather = Gather(*addresses(each, self.samples, self.source(each.i[0]), back=False))
        rows: list[Pair] = []
        if each.rank:
            a, b = (self.kept.get(f"{weight.name}{WHOLE}", self.kept[weight.name]) for weight in each.adapter)
            name = f"{each.o.name}.hidden"
            h = self.found[name] = self.tiler.value(name, self.rows(each.o), each.rank)
            self._gathered(h, [Summand(each.layer, (), gather, [(x, a)])])
            rows = [(h, b)]
        self._gathered(self.made(each), [Summand(each.layer, rows, gather, self.pairs(each, x, rest))], layer=each)

    def _convolution_back(
        self, each: Convolution, dy: DraftValue, wanted: Sequence[bool]
    ) -> list[Summand | list[Summand] | None]:
        x = self.given(each)[0]
        if self.is_plain(each):
            return [self.layer_back(each, x, dy, wanted[0])]
        if f"{each.layer}.bias" in self.learnt:
            self.summed(self.learnt[f"{each.layer}.bias"], dy)
        weight = f"{each.layer}.weight"
        pairs, rows, more = [(dy, self.kept[weight])], list[Pair](), list[Summand]()
        if each.rank:
            a, b = (self.kept[factor.name] for factor in each.adapter)
            if (name := each.adapter[0].name) in self.learnt:
                taps = rows_of(a, each.rank)
                if dy.wide == 1 and taps.within(each.rank):
                    moved = dy, b
                else:
                    moved = self.through(each, dy), Kept(self.same, True)
                if (steps := self._shifted(each, name, taps)) is not None:
                    more.append(self._lines_back(each, name, moved, x, *steps))
                else:
                    rows.append((self._taps_back(each, name, moved, taps, x), a))
            elif wanted[0]:
                pairs.append((self.through(each, dy), a))
            if wanted[0]:
                self.reads(name)
            self.second_back(each, dy)
        if weight in self.learnt:
            self._taps_back(each, weight, (dy, Kept(self.same, True)), rows_of(self.kept[weight], dy.features), x)
        if not wanted[0]:
            return [None]
        gather = Gather(*addresses(each, self.samples, each.i[0].sides, back=True))
        return [[Summand(each.layer, rows, gather, pairs), *more]]

    def _shifted(self, each: Convolution, name: str, taps: TapRows) -> tuple[Gather, Gather] | None:
        return shifts(each, taps, self.samples) if name in self.turned and each.i[0].name not in self.risen else None

    def _lines_back(
        self, each: Convolution, name: str, moved: Pair, x: DraftValue, first: Gather, second: Gather
    ) -> Summand:
        """Gradient of a kernel whose lines are shifts of rows, see :meth:`_taps_back`; its share of the input's."""
        kept = self.kept[name]
        assert isinstance(kept, Stacked) and kept.rows.line is not None
        line = self._came(each.layer, f"{name}.line", moved, kept.rows.line, first)
        found = [runs(own) for own in second.sources]
        tiles, other = self.tiler.read(x, NARROW), self.tiler.read(line, NARROW)
        lines, made = kept.rows.lines, self.learnt[name]

        def some(own: DraftValue, part: slice) -> None:
            for j in range(own.wide):
                for i in range(own.high):
                    columns = own.part(i, j)[1]
                    terms = [
                        Term(
                            Block.of(tiles, [(run.tile, i)]),
                            Block.of(other, [(run.source, 0)]),
                            {
                                "tiles": 0,
                                "k_from": run.first,
                                "k_to": run.last,
                                "w_row": run.shift % EDGE,
                                "x_turn": 1,
                                "columns": line.features - 1,
                                "o_column": begin - EDGE * j,
                            },
                        )
                        for begin, some in zip(lines.begins, found)
                        if begin // EDGE == j
                        for run in some
                        if part.start <= run.tile < part.stop
                    ]
                    self.tiler.product(own, (i, j), self._filled(terms, tiles, (part.start, i), columns), apart=True)

        self.added(made, portions([1] * x.high, ROWS), some)
        return Summand(each.layer, (), second, [(line, replace(kept, rows=lines))])

    def _filled(self, terms: list[Term], tiles: Tiles, at: tuple[int, int], columns: int) -> list[Term]:
        """Terms of parts of columns, and zeros between them."""
        there = sorted({(each.operands["o_column"], _ends(each)) for each in terms})
        ends = [0, *(end for _, end in there)]
        blank, x = Block.of(self.blank, [(0, 0)]), Block.of(tiles, [at])
        for end, begin in zip(ends, [*(begin for begin, _ in there), columns]):
            if begin > end:
                given = {"tiles": 0, "k_to": 0, "x_turn": 1, "columns": begin - end - 1, "o_column": end}
                terms.append(Term(x, blank, given))
        return terms

    def _alone(self, terms: Sequence[Term], rows: TapRows, j: int, columns: int) -> list[Term]:
        """Terms of columns of their own; those of taps that read no row are zeros."""
        made = [replace(each, ends=(True, True)) for each in terms]
        there = {each.operands.get("o_column", 0) for each in terms}
        for begin, _, count in rows:
            at = begin - EDGE * j
            if 0 <= at < columns and at not in there and count:
                given = made[0].operands | {"o_column": at, "columns": count - 1}
                made.append(_of_zeros(made[0], given, Block.of(self.blank, [(0, 0)])))
        return made

    def joined(self, t: Tensor, parts: Sequence[DraftValue | Summand]) -> list[DraftValue]:
        """Gradients of a tensor by readers of it, as few as are sums that are held at once."""
        made = list[DraftValue]()
        for own in together(parts, Summand, lambda each: (sum(each.counts(True)), each.streamed)):
            if isinstance(own, DraftValue):
                made.append(own)
                continue
            made.append(self.part(t))
            if len(own) == 1 and own[0].gather is None:
                self.matrix(made[-1], own[0].rows, back=True)
            else:
                self._gathered(made[-1], own, back=True)
        return made

    def _taps_back(self, each: Convolution, name: str, moved: Pair, rows: TapRows, x: DraftValue) -> DraftValue:
        """Gradient of a kernel; ``moved``: a tensor, and a tile that makes of its rows what comes by a tap.

        What comes to a row of the layer's input by each tap lies side by side, and is returned; a product over rows
        makes all taps.
        """
        t = each.i[0]
        read = addresses(each, self.samples, t.sides, back=True)
        if rows.line is None:
            came = self._came(each.layer, f"{name}.came", moved, rows, Gather(*read))
        else:
            first, second = by_lines(*read)
            line = self._came(each.layer, f"{name}.line", moved, rows.line, first)
            came = self._came(each.layer, f"{name}.came", (line, Kept(self.same, True)), rows.lines, second)
        small = came
        if t.name in self.risen:
            small = self.shrunk(self.tiler.value(f"{name}.small", x.rows, came.features), came, self.source(t))
        self.learnt_over_rows(name, small, x)
        return came

    def _came(self, layer: str, name: str, moved: Pair, rows: TapRows, gather: Gather) -> DraftValue:
        """What comes to rows by each tap, side by side."""
        came = self.tiler.value(name, gather.rows, rows.total)
        x, kept = moved
        pair, tiles = (x, Moved(kept.tiles, not kept.turned, rows=rows)), self.tiler.read(x, NARROW)
        for j in range(came.wide):
            for i in range(came.high):
                count, columns = came.part(i, j)
                span = range(EDGE * i, EDGE * i + count)
                terms = gather.terms(layer, range(len(gather.places)), span, pair, tiles, j, columns, False)
                if terms:
                    self.tiler.product(came, (i, j), self._alone(terms, rows, j, columns))
                else:
                    self.nothing(came, i, j)
        return came

    def _gathered(
        self, made: DraftValue, summands: Sequence[Summand], *, layer: Convolution | None = None, back: bool = False
    ) -> None:
        """Sums of products by address, and of own rows; ``layer``: whose result it is."""
        summands = [part for each in summands for part in each.cut(back)]
        counts = [each.counts(back) for each in summands]
        begins = list(accumulate(map(len, counts), initial=0))
        parts = parted(counts, sum(each.streamed for each in summands))
        positive = layer is not None and layer.positive

        def some(own: DraftValue, part: slice) -> None:
            first = part.start == 0
            for j in range(made.wide):
                bias = self.bias(layer, layer.layer, j) if layer is not None and first else None
                for i in range(made.high):
                    count, columns = made.part(i, j)
                    span, terms = range(EDGE * i, EDGE * i + count), list[Term]()
                    for each, begin, end in zip(summands, begins, begins[1:]):
                        taps = range(max(part.start - begin, 0), min(part.stop, end) - begin)
                        terms += self._terms(each, taps, span, (i, j), columns, back) if taps else []
                    if not terms and bias is None:
                        self.nothing(own, i, j)
                        continue
                    terms = _ended(terms, columns, bias is not None, lambda: Block.of(self.blank, [(0, 0)]))
                    self.tiler.product(own, (i, j), terms, bias=bias, positive=positive and len(parts) == 1)

        self.added(made, parts, some, **({"positive": 1} if positive else {}))

    def _terms(
        self, each: Summand, taps: range, span: range, at: tuple[int, int], columns: int, back: bool
    ) -> list[Term]:
        """Products of some taps of a summand with rows ``span``; the first tap has those of own rows."""
        made: list[Term] = []
        for pair in each.pairs:
            assert each.gather is not None
            tiles = self.tiler.read(pair[0], NARROW)
            made += each.gather.terms(each.layer, taps, span, pair, tiles, at[1], columns, back, each.deep)
        return made + [self._term(x, kept, *at, back) for x, kept in each.rows if not taps.start]

    @property
    def blank(self) -> Tiles:
        """A tile of zeros, of 8 bits."""
        raise NotImplementedError
