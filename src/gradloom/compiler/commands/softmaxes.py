"""Softmaxes of rows of one tile, or of several; their logarithms; and gradients of both.

The engine has softmaxes of rows of one tile in a command. Rows of several are gathered by commands that go on with
them, then results are made tile by tile; the jobs of a row of tiles follow one another at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from gradloom.graph.operations import Softmax
from gradloom.program.tiles.drafts import Block, DraftValue
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.formats.tiles.codes import EDGE, WIDE
from gradloom.rtl.formats.tiles.element import ElementOpcode
from gradloom.rtl.formats.tiles.functions import ENTROPY, Curve
from gradloom.rtl.formats.tiles.norm import PULLED, NormOpcode, constant, least_shift

from .images import cuts
from .norms import Norms

__all__ = ["BASE_2", "PART", "Softmaxes"]

BASE_2 = float(np.log2(np.e))
#: What each value of a tile counts in a sum of rows; the sums are that much smaller.
PART = 1 / EDGE

#: A tile of columns of a tensor.
_Column = tuple[DraftValue, int]


class Softmaxes(Norms):
    """Writes softmaxes."""

    @property
    def even(self) -> Tiles:
        """A tile whose values are all :data:`PART`."""
        raise NotImplementedError

    def _softmax(self, each: Softmax) -> None:
        (x,) = self.given(each)
        if each.log:
            self.logarithms(self.made(each), x)
        else:
            self.soft(self.made(each), x)

    def _softmax_back(self, each: Softmax, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        made, y = self.part(each.i[0]), self.found[each.o.name]
        if not each.log:
            self.soft_back(made, y, dy)
            return [made]
        p = self._like(y, "shares")
        self.soft(p, self.given(each)[0])
        total = self._total([self._sum(dy, j) for j in range(dy.wide)])
        for j in range(dy.wide):
            less = self._column(p, j, "less")
            self._element(less, ElementOpcode.MULTIPLY, {"a": (p, j), "b": total})
            self._element((made, j), ElementOpcode.ADD, {"a": (dy, j), "b": less}, subtract=1)
        return [made]

    def soft(self, made: DraftValue, x: DraftValue, factor: float = 1.0) -> None:
        """Shares of rows of ``factor · x``, matrix by matrix."""
        factors = _constant(factor * BASE_2)
        if x.wide == 1:
            self._engine((made, 0), NormOpcode.SOFTMAX, {"a": (x, 0)}, factors)
            return
        # Half of the slots, which the other half are filled beside. What was read last is there for the next pass.
        groups = _groups(x.wide, max(self.tiler.config.norm_slots // 2, 1))
        for at in _places(made):
            first = len(self.tiler.drafts)
            self._along(made, NormOpcode.LARGEST, {"a": x}, groups, at)
            self._along(made, NormOpcode.POWERS, {"a": x}, groups[::-1], at, factors)
            for j in range(x.wide):
                self._shared((made, j), NormOpcode.SHARES, {"a": self.wide(x, at[0], j, at[1])}, at, factors)
            self.tiler.joined(first)

    def soft_back(
        self,
        made: DraftValue,
        p: DraftValue,
        dp: DraftValue,
        factor: float = 1.0,
        results: tuple[DraftValue, DraftValue] | None = None,
    ) -> None:
        """The gradient of ``x``, from shares and their gradient.

        ``results``: of attention, a matrix of shares a head, and their gradient; rows of several tiles are pulled by
        them, and their shares are those that made the results, of 8 bits.
        """
        factors = _constant(factor)
        if p.wide == 1:
            self._engine((made, 0), NormOpcode.SOFTMAX_BACK, {"a": (p, 0), "b": (dp, 0)}, factors)
            return
        for at in _places(made):
            first = len(self.tiler.drafts)
            if results is None:
                self._along(made, NormOpcode.PULLS, {"a": p, "b": dp}, _groups(p.wide, PULLED), at)
            else:
                self._pulls(made, *results, at)
            for j in reversed(range(p.wide)):
                shares = self.wide if results is None else self.narrow
                blocks = {"a": shares(p, at[0], j, at[1]), "b": self.wide(dp, at[0], j, at[1])}
                self._shared((made, j), NormOpcode.SOFT_BACK, blocks, at, factors)
            self.tiler.joined(first)

    def logarithms(self, made: DraftValue, x: DraftValue) -> None:
        """Logarithms of shares: ``x`` less that of the sum of powers.

        All shares p have the same ``x - ln p``: its mean by p is that of ``p x`` and ``-p ln p``, which a table has.
        """
        p, terms = self._like(x, "own"), self._like(x, "terms")
        self.soft(p, x)
        for j in range(x.wide):
            times, rest = (self._column(x, j, name) for name in ("times", "entropy"))
            self._element(times, ElementOpcode.MULTIPLY, {"a": (x, j), "b": (p, j)})
            self._function(rest, ENTROPY, (p, j))
            self._element((terms, j), ElementOpcode.ADD, {"a": times, "b": rest})
        level = self._total([self._sum(terms, j) for j in range(x.wide)])
        for j in range(x.wide):
            self._element((made, j), ElementOpcode.ADD, {"a": (x, j), "b": level}, subtract=1)

    def _sum(self, x: DraftValue, j: int) -> _Column:
        """The sum of a tile's columns, in all columns: a softmax's gradient of even shares takes it away."""
        whole, beats = (x, j), -(-x.part(0, j)[1] // 8)
        if x.part(0, j)[1] < EDGE:
            whole = self._wide(x, "filled")
            names: dict[str, _Column | Tiles] = {"a": (x, j), "b": self.zeros} if beats < EDGE // 8 else {"b": (x, j)}
            self._element(whole, ElementOpcode.JOIN, names, split=beats % (EDGE // 8))
        rest, mean, made = (self._wide(x, name) for name in ("rest", "mean", "sum"))
        self._engine(rest, NormOpcode.SOFTMAX_BACK, {"a": self.even, "b": whole}, _constant(1 / PART))
        self._element(mean, ElementOpcode.ADD, {"a": whole, "b": rest}, subtract=1)
        self._scale(made, mean, 1 / PART)
        return made

    def _total(self, parts: Sequence[_Column]) -> _Column:
        total = parts[0]
        for part in parts[1:]:
            both = self._wide(total[0], "total")
            self._element(both, ElementOpcode.ADD, {"a": total, "b": part})
            total = both
        return total

    # -- columns of tiles ----------------------------------------------------------------------------------------

    def _like(self, x: DraftValue, name: str) -> DraftValue:
        return self.tiler.value(f"{x.name}.{name}", x.rows, x.features, x.count)

    def _column(self, x: DraftValue, j: int, name: str) -> _Column:
        """A tensor of the columns of a tile."""
        return self.tiler.value(f"{x.name}.{name}", x.rows, x.part(0, j)[1], x.count), 0

    def _wide(self, x: DraftValue, name: str) -> _Column:
        """A tensor of one tile of columns."""
        return self.tiler.value(f"{x.name}.{name}", x.rows, EDGE, x.count), 0

    def _blocks(self, operands: Mapping[str, _Column | Tiles], i: int, number: int) -> dict[str, Block]:
        return {
            port: Block.of(x, [(0, 0)]) if isinstance(x, Tiles) else self.wide(x[0], i, x[1], number)
            for port, x in operands.items()
        }

    def _element(
        self,
        made: _Column,
        opcode: ElementOpcode,
        operands: Mapping[str, _Column | Tiles],
        tables: Sequence[int] = (),
        **more: int,
    ) -> None:
        value, j = made
        for number in range(value.count):
            for i in range(value.high):
                blocks = self._blocks(operands, i, number)
                self.tiler.element(value, (i, j, number), opcode, blocks, [more], tables=tables)

    def _scale(self, made: _Column, x: _Column, factor: float) -> None:
        mantissa, exponent = constant(factor)
        self._element(made, ElementOpcode.SCALE, {"a": x}, mantissa=mantissa, exponent=exponent)

    def _function(self, made: _Column, curve: Curve, x: _Column) -> None:
        operands, tables = self.curve(curve)
        self._element(made, ElementOpcode.FUNCTION, {"a": x}, tables, **operands)

    # -- the norm engine -----------------------------------------------------------------------------------------

    def _pulls(self, value: DraftValue, y: DraftValue, dy: DraftValue, at: tuple[int, int]) -> None:
        """Pulls of rows of a head, of what lies of it in each tile of results."""
        (i, head), size = at, y.features // value.count
        for begin, many in cuts(size, head * size):
            j, first = divmod(head * size + begin, EDGE)
            rows, _ = y.part(i, j)
            given = {"rows": rows - 1, "features": first + many - 1, "first": first, "exponent": least_shift(size)}
            blocks = {port: self.wide(x, i, j, 0) for port, x in (("a", y), ("b", dy))}
            self._gather_rows(value, NormOpcode.PULLS, blocks, given | {"more": int(begin > 0)})

    def _along(
        self,
        value: DraftValue,
        opcode: NormOpcode,
        operands: Mapping[str, DraftValue],
        groups: Sequence[range],
        at: tuple[int, int],
        more: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """What is gathered of rows, some tiles after the others; ``at``: row of tiles, and matrix."""
        i, number = at
        for n, group in enumerate(groups):
            rows, keys = value.part(i, max(group))
            given = {"rows": rows - 1, "features": keys - 1, "tiles": len(group) - 1, "more": int(n > 0), **more}
            places = [(i, j, number) for j in group]
            blocks = {port: Block.of(self.tiler.read(x, WIDE), places) for port, x in operands.items()}
            self._gather_rows(value, opcode, blocks, given)

    def _gather_rows(
        self, value: DraftValue, opcode: NormOpcode, blocks: dict[str, Block], given: dict[str, int]
    ) -> None:
        """A command that keeps what is gathered of rows, and has no results."""

        def commands(held: dict[str, int], slot: int) -> Iterator:
            yield opcode, given | held

        self.tiler.norm(value, [], blocks, commands)

    def _shared(
        self, made: _Column, opcode: NormOpcode, blocks: dict[str, Block], at: tuple[int, int], more: Mapping[str, int]
    ) -> None:
        """Results of rows of a tile."""
        (value, j), (i, number) = made, at
        rows, keys = value.part(i, j)

        def commands(held: dict[str, int], slot: int) -> Iterator:
            yield opcode, {"rows": rows - 1, "features": keys - 1, **more, **held, "o": slot, "fresh": 1}

        self.tiler.norm(value, [(i, j, number)], blocks, commands)

    def _engine(
        self, made: _Column, opcode: NormOpcode, operands: Mapping[str, _Column | Tiles], more: Mapping[str, int]
    ) -> None:
        """Softmaxes of one tile, or their gradients."""
        for at in _places(made[0]):
            self._shared(made, opcode, self._blocks(operands, *at), at, more)


def _constant(factor: float) -> dict[str, int]:
    mantissa, exponent = constant(factor)
    return {"mantissa": mantissa, "exponent": exponent}


def _groups(count: int, most: int) -> list[range]:
    return [range(first, min(first + most, count)) for first in range(0, count, most)]


def _places(value: DraftValue) -> Iterator[tuple[int, int]]:
    """Rows of tiles of each matrix."""
    return ((i, number) for number in range(value.count) for i in range(value.high))
