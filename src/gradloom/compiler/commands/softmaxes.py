"""Softmaxes of rows of one tile, or of several; their logarithms; and gradients of both.

The engine has softmaxes of rows of one tile. Of several, each is one of its own first, with shares p. All p have the
same ``x - ln p``, the logarithm of the tile's sum of powers: its mean by p is that of ``p x`` and ``-p ln p``, which a
table has. From logarithms come shares of tiles, two by two.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from gradloom.graph.operations import Softmax
from gradloom.program.tiles.drafts import Block, DraftValue
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.formats.tiles.codes import EDGE
from gradloom.rtl.formats.tiles.element import ElementOpcode
from gradloom.rtl.formats.tiles.functions import ENTROPY, LOGISTIC, SOFTPLUS, Curve
from gradloom.rtl.formats.tiles.norm import NormOpcode, constant

from .norms import Norms

__all__ = ["BASE_2", "PART", "Softmaxes", "pairs"]

BASE_2 = float(np.log2(np.e))
#: What each value of a tile counts in a sum of rows; the sums are that much smaller.
PART = 1 / EDGE

#: A tile of columns of a tensor.
_Column = tuple[DraftValue, int]


def pairs(count: int) -> Iterator[tuple[int, int, bool]]:
    """Two groups of ``count`` tiles that meet, by their first tiles, and whether they are all."""
    step = 1
    while step < count:
        for first in range(0, count - step, 2 * step):
            yield first, first + step, 2 * step >= count
        step *= 2


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
        if x.wide == 1:
            self._engine((made, 0), NormOpcode.SOFTMAX, {"a": (x, 0)}, factor * BASE_2)
            return
        own, levels = self._levels(x, factor)
        shares, members = dict[int, _Column](), {j: [j] for j in range(x.wide)}
        for first, second, is_last in pairs(x.wide):
            one, other = levels[first], levels[second]
            for group, (a, b) in ((first, (one, other)), (second, (other, one))):
                less, share = (self._column(one[0], 0, f"{name}{first}.{second}") for name in ("less", "share"))
                self._element(less, ElementOpcode.ADD, {"a": a, "b": b}, subtract=1)
                self._function(share, LOGISTIC.value, less)
                for j in members[group]:
                    before = shares.get(j)
                    shares[j] = share
                    if before is not None:
                        shares[j] = self._column(one[0], 0, f"shares{j}")
                        self._element(shares[j], ElementOpcode.MULTIPLY, {"a": before, "b": share})
            members[first] += members.pop(second)
            if not is_last:
                levels[first] = self._met(one, other)
        for j in range(x.wide):
            self._element((made, j), ElementOpcode.MULTIPLY, {"a": (own, j), "b": shares[j]})

    def soft_back(self, made: DraftValue, p: DraftValue, dp: DraftValue, factor: float = 1.0) -> None:
        """The gradient of ``x``, from shares and their gradient."""
        if p.wide == 1:
            self._engine((made, 0), NormOpcode.SOFTMAX_BACK, {"a": (p, 0), "b": (dp, 0)}, factor)
            return
        both = self._like(p, "pulls")
        for j in range(p.wide):
            self._element((both, j), ElementOpcode.MULTIPLY, {"a": (p, j), "b": (dp, j)})
        pull = self._total([self._sum(both, j) for j in range(p.wide)])
        for j in range(p.wide):
            rest, part = (self._column(p, j, name) for name in ("rest", "gradient"))
            self._element(rest, ElementOpcode.ADD, {"a": (dp, j), "b": pull}, subtract=1)
            self._element(part, ElementOpcode.MULTIPLY, {"a": rest, "b": (p, j)})
            self._scale((made, j), part, factor)

    def logarithms(self, made: DraftValue, x: DraftValue) -> None:
        """Logarithms of shares."""
        levels = self._levels(x, 1.0)[1]
        for first, second, _ in pairs(x.wide):
            levels[first] = self._met(levels[first], levels[second])
        for j in range(x.wide):
            self._element((made, j), ElementOpcode.ADD, {"a": (x, j), "b": levels[0]}, subtract=1)

    def _levels(self, x: DraftValue, factor: float) -> tuple[DraftValue, list[_Column]]:
        """Shares of each tile by itself, and the logarithm of its sum of powers in all columns."""
        own, levels = self._like(x, "own"), []
        for j in range(x.wide):
            self._engine((own, j), NormOpcode.SOFTMAX, {"a": (x, j)}, factor * BASE_2)
        terms = self._like(x, "terms")
        for j in range(x.wide):
            times, scaled, rest = (self._column(x, j, name) for name in ("times", "scaled", "entropy"))
            self._element(times, ElementOpcode.MULTIPLY, {"a": (x, j), "b": (own, j)})
            self._scale(scaled, times, factor)
            self._function(rest, ENTROPY, (own, j))
            self._element((terms, j), ElementOpcode.ADD, {"a": scaled, "b": rest})
            levels.append(self._sum(terms, j))
        return own, levels

    def _met(self, one: _Column, other: _Column) -> _Column:
        """``ln(exp(one) + exp(other))``: the larger, and a function of their difference."""
        less, more, larger, made = (self._column(one[0], 0, name) for name in ("apart", "more", "larger", "met"))
        self._element(less, ElementOpcode.ADD, {"a": one, "b": other}, subtract=1)
        self._function(more, SOFTPLUS.value, less)
        self._element(larger, ElementOpcode.LARGER, {"a": one, "b": other})
        self._element(made, ElementOpcode.ADD, {"a": larger, "b": more})
        return made

    def _sum(self, x: DraftValue, j: int) -> _Column:
        """The sum of a tile's columns, in all columns: a softmax's gradient of even shares takes it away."""
        whole, beats = (x, j), -(-x.part(0, j)[1] // 8)
        if x.part(0, j)[1] < EDGE:
            whole = self._wide(x, "filled")
            names: dict[str, _Column | Tiles] = {"a": (x, j), "b": self.zeros} if beats < EDGE // 8 else {"b": (x, j)}
            self._element(whole, ElementOpcode.JOIN, names, split=beats % (EDGE // 8))
        rest, mean, made = (self._wide(x, name) for name in ("rest", "mean", "sum"))
        self._engine(rest, NormOpcode.SOFTMAX_BACK, {"a": self.even, "b": whole}, 1 / PART)
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

    def _engine(
        self, made: _Column, opcode: NormOpcode, operands: Mapping[str, _Column | Tiles], factor: float
    ) -> None:
        """A softmax of one tile, or its gradient."""
        (value, j), (mantissa, exponent) = made, constant(factor)
        for number in range(value.count):
            for i in range(value.high):
                rows, keys = value.part(i, j)
                given = {"rows": rows - 1, "features": keys - 1, "mantissa": mantissa, "exponent": exponent}

                def commands(held: dict[str, int], slot: int, given: dict[str, int] = given) -> Iterator:
                    yield opcode, given | held | {"o": slot, "fresh": 1}

                self.tiler.norm(value, [(i, j, number)], self._blocks(operands, i, number), commands)
