"""Weights that repeat a smaller one, which learns.

Codes of the smaller one are put where it is repeated at the beginning of a step, and gradients of all places are added
at its end: both are products with matrices of zeros and ones, one for each block of columns.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from gradloom.graph.base import Operation
from gradloom.graph.network import Tie
from gradloom.program.tiles.drafts import Block, DraftValue, Term
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.formats.tiles.codes import EDGE, NARROW, ZERO, TileCoded, coded
from gradloom.sim.reference.tiles.products import TileSums, sums, transposed

from ..weights.matrices import HALF, TapRows, matrices, portions, stacked, used_rows
from .base import WHOLE, kept_of
from .gathers import shifts
from .products import Products, last_of

__all__ = ["Tied", "chosen_rows", "fits", "repeated", "repeated_rows", "taken_back", "whole_rows"]


#: Tiles of the stream that a job reads at most: others are held for jobs behind.
_MOST = 24


def fits(wide: int, block: int, rows: int) -> bool:
    """Whether a matrix of ``wide`` columns can repeat one of ``rows`` and ``block`` columns.

    No block is in parts of two tiles, and a job has slots for all blocks of a tile.
    """
    is_whole = wide <= EDGE or block % EDGE == 0 or EDGE % block == 0
    return is_whole and -(-min(wide, EDGE) // block) * -(-rows // EDGE) <= _MOST


def repeated_rows(each: Operation, name: str, tie: Tie) -> TapRows:
    """Rows of matrices of taps of the larger one."""
    return used_rows(matrices(each, name, tie.index), tie.index.shape[2:], tied=True)


def whole_rows(each: Operation, name: str, tie: Tie) -> TapRows | None:
    """The same with rows for all outputs of a tap; None where none has fewer.

    The array adds to all columns of a pass, so products of a tap that are added to others' need all outputs.
    """
    index = matrices(each, name, tie.index)
    some, whole = used_rows(index, tied=True), used_rows(index)
    return whole if some.total < whole.total else None


def chosen_rows(each: Operation, name: str, tie: Tie, rows: TapRows) -> list[np.ndarray]:
    """For each block of columns which row of the smaller matrix is which of the larger, as ones among zeros."""
    index = matrices(each, name, tie.index)
    large = stacked(index + 1, rows).astype(np.int64)
    small = stacked(matrices(each, name, np.arange(1, 1 + np.prod(tie.shape)).reshape(tie.shape))).astype(np.int64)
    made = []
    for column in range(0, large.shape[1], small.shape[1]):
        part = large[:, column, None]
        made.append(((part == small[None, :, 0]) & (part > 0)).astype(np.float64))
    return made


def _blocks(count: int, features: int) -> Iterator[tuple[int, int, int]]:
    """Number of each block of columns, a tile of the smaller matrix, and the first column of both in the larger."""
    for number in range(count):
        for tile in range(-(-features // EDGE)):
            yield number, tile, number * features + EDGE * tile


def repeated(chosen: Sequence[np.ndarray], small: TileCoded) -> TileSums:
    """The larger matrix, of codes of the smaller one."""
    rows, features = small.codes.shape
    wide = len(chosen) * features
    parts = []
    for number, tile, column in _blocks(len(chosen), features):
        codes = np.zeros((rows, wide))
        exponents = np.full((small.exponents.shape[0], -(-wide // EDGE)), ZERO)
        own = small.codes[:, EDGE * tile : EDGE * (tile + 1)]
        codes[:, column : column + own.shape[1]] = own
        exponents[:, column // EDGE] = small.exponents[:, tile]
        parts.append((coded(chosen[number], NARROW), TileCoded(codes, exponents)))
    return sums(*parts)


def taken_back(chosen: Sequence[np.ndarray], large: TileCoded) -> list[tuple[TileCoded, TileCoded]]:
    """Pairs whose products are added to the smaller matrix's gradient, of codes of that of the larger."""
    features = large.codes.shape[1] // len(chosen)
    pairs = []
    for number, each in enumerate(chosen):
        first = number * features
        tiles = slice(first // EDGE, -(-(first + features) // EDGE))
        own = TileCoded(large.codes[:, first : first + features], large.exponents[:, tiles])
        pairs.append((transposed(coded(each, NARROW)), own))
    return pairs


def _passes(rows: int, columns: int) -> int:
    """Passes of the array that make a matrix over rows, a tile of them."""
    return -(-rows // EDGE) * -(-columns // HALF)


class Tied(Products):
    """Writes both."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        #: Codes of the matrices of each block, and where the smaller one's gradient goes.
        self._chosen: dict[str, tuple[list[Tiles], DraftValue]] = {}
        #: Larger matrices.
        self._made: dict[str, DraftValue] = {}

    def _learner(self, name: str, each: Operation) -> None:
        super()._learner(name, each)
        tie = self.network.ties.get(name)
        if tie is None:
            return
        taps, whole = repeated_rows(each, name, tie), whole_rows(each, name, tie)
        made, chosen = self._repeats(name, "repeated", each, tie, taps)
        self._chosen[name] = chosen, self.learnt[name]
        sides = made.rows, made.features
        if shifts(each, taps, self.samples) is not None or _passes(*sides[::-1]) < _passes(*sides):
            self.turned.add(name)
            sides = sides[::-1]
        self.learnt[name] = self.tiler.value(f"{name}.places", *sides)
        self.kept[name] = kept_of(self.tiler.tiles(1, made.rows, made.features, NARROW), taps)
        self._made[name] = made
        if whole is None:
            self.reads(name)
        else:
            made, _ = self._repeats(name, "whole", each, tie, whole)
            self.kept[f"{name}{WHOLE}"] = kept_of(self.tiler.read(made, NARROW), whole)

    def _repeats(
        self, name: str, what: str, each: Operation, tie: Tie, rows: TapRows
    ) -> tuple[DraftValue, list[Tiles]]:
        """The larger matrix, and the matrices that make it."""
        found = chosen_rows(each, name, tie, rows)
        codes = self.learners[name].codes
        made = self.tiler.value(f"{name}.{what}", len(found[0]), len(found) * codes.features)
        chosen = [self.codes(one, NARROW) for one in found]
        self._repeated(made, chosen, codes)
        return made, chosen

    def _repeated(self, made: DraftValue, chosen: Sequence[Tiles], small: Tiles) -> None:
        blocks = list(_blocks(len(chosen), small.features))
        deep = range(small.high)
        for j in range(made.wide):
            for i in range(made.high):
                terms = []
                for number, tile, column in (each for each in blocks if each[2] // EDGE == j):
                    given = {
                        "tiles": len(deep) - 1,
                        "k_to": last_of(small.rows, small.high, deep),
                        "columns": small.part(0, tile)[1] - 1,
                        "o_column": column % EDGE,
                    }
                    x = Block.of(chosen[number], [(i, k) for k in deep])
                    terms.append(Term(x, Block.of(small, [(k, tile) for k in deep]), given))
                self.tiler.product(made, (i, j), terms, apart=True)

    def reads(self, name: str) -> None:
        """See :class:`~.products.Products`."""
        if name in self._made:
            self._made[name].places[NARROW] = self.kept[name].tiles

    def learnt_over_rows(self, name: str, one: DraftValue, other: DraftValue) -> None:
        """See :class:`~.products.Products`."""
        self.over_rows(self.learnt[name], *((other, one) if name in self.turned else (one, other)))

    def taken_back(self) -> None:
        """Gradients of what is repeated, as sums of those of all places."""
        for name, (chosen, made) in self._chosen.items():
            self._taken_back(made, chosen, self.learnt[name], name in self.turned)

    def _taken_back(self, made: DraftValue, chosen: Sequence[Tiles], large: DraftValue, turned: bool) -> None:
        kept = self.tiler.read(large, NARROW)
        rows, high = (large.features, large.wide) if turned else (large.rows, large.high)
        places = [(number, k) for number in range(len(chosen)) for k in range(high)]

        def term(number: int, deep: range, i: int, j: int) -> Term:
            column = number * made.features + EDGE * j
            given = {
                "tiles": len(deep) - 1,
                "k_to": last_of(rows, high, deep),
                "x_turn": 1,
                "w_turn": int(turned),
                "w_column": column % EDGE,
            }
            x = Block.of(chosen[number], [(k, i) for k in deep])
            w = [(column // EDGE, k) if turned else (k, column // EDGE) for k in deep]
            return Term(x, Block.of(kept, w), given)

        def some(own: DraftValue, part: slice) -> None:
            found = [(n, [k for of, k in places[part] if of == n]) for n in range(len(chosen))]
            for j in range(own.wide):
                for i in range(own.high):
                    terms = [term(n, range(ks[0], ks[-1] + 1), i, j) for n, ks in found if ks]
                    self.tiler.product(own, (i, j), terms)

        self.added(made, portions([1] * len(places)), some)
