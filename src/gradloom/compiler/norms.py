"""Norms, softmaxes and their gradients."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from gradloom.graph.operations import Norm, Softmax
from gradloom.program.tiles.drafts import Block, DraftValue
from gradloom.rtl.formats.tiles.codes import EDGE, WIDE
from gradloom.rtl.formats.tiles.norm import EPS, NormOpcode, constant

from .base import Base

__all__ = ["Norms"]

_BASE_2 = float(np.log2(np.e))


class Norms(Base):
    """Writes group and layer norms, and softmaxes."""

    def _norm(self, each: Norm) -> None:
        (x,) = self.given(each)
        self.normed(each, self.made(each), {"a": x})

    def _norm_back(self, each: Norm, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        (x,) = self.given(each)
        for weight in each.weights:
            if weight.name in self.learnt:
                raise ValueError(f"{weight.name}: gains and biases of norms have no gradient; let other weights learn")
        made = self.part(each.i[0])
        self.normed(each, made, {"a": x, "b": dy})
        return [made]

    def normed(self, each: Norm, made: DraftValue, operands: Mapping[str, DraftValue]) -> None:
        """Statistics and results of ``a``; with ``b``, of its gradient."""
        if not (each.centred and each.gain and each.bias):
            raise ValueError(f"{each.layer}: a norm without mean, gain or bias has no command")
        if each.positive:
            raise ValueError(f"{each.layer}: a norm cannot make values positive")
        mantissa, exponent = constant(each.eps, EPS)
        gain, bias = (self.kept[f"{each.layer}.{name}"].tiles for name in ("weight", "bias"))
        whole = {"mantissa": mantissa, "exponent": exponent}
        if not each.over_rows:
            if each.groups > 1:
                raise ValueError(f"{each.layer}: {each.groups} groups of a row have no command; take one")
            self._rows(each, made, operands, {"gain": gain, "bias": bias}, whole)
            return
        size = each.o.rows
        high = min(size, EDGE)
        group = made.features // each.groups
        if group & group - 1 or group > EDGE:
            raise ValueError(f"{each.layer}: groups of {group} features must be a power of two, at most {EDGE}")
        if EDGE % high or size % high:
            raise ValueError(f"{each.layer}: {size} rows of a sample must divide {EDGE} or be a multiple of it")
        whole |= {"group": group.bit_length() - 1, "rows": high - 1}
        count = -(-size // EDGE)
        for i in range(0, made.high, count):
            for j in range(made.wide):
                at = [(i + n, j) for n in range(count)]
                blocks = {port: Block.of(self.tiler.read(v, WIDE), at) for port, v in operands.items()}
                blocks |= {"gain": Block.of(gain, [(0, j)]), "bias": Block.of(bias, [(0, j)])}
                self._tiles(made, at, blocks, whole | {"tiles": count - 1}, step=0, high=high)

    def _rows(
        self, each: Norm, made: DraftValue, operands: Mapping[str, DraftValue], own: Mapping, whole: dict[str, int]
    ) -> None:
        """Each row by itself."""
        if made.features & made.features - 1:
            raise ValueError(f"{each.layer}: {made.features} features of a norm must be a power of two")
        columns = range(made.wide)
        for i in range(made.high):
            blocks = {
                port: Block.of(self.tiler.read(v, WIDE), [(i, j) for j in columns]) for port, v in operands.items()
            }
            blocks |= {name: Block.of(tiles, [(0, j) for j in columns]) for name, tiles in own.items()}
            more = {"by_row": 1, "rows": made.part(i, 0)[0] - 1, "tiles": made.wide - 1}
            self._tiles(made, [(i, j) for j in columns], blocks, whole | more, step=1)

    def _tiles(
        self,
        made: DraftValue,
        at: Sequence[tuple[int, int]],
        blocks: dict[str, Block],
        whole: dict[str, int],
        *,
        step: int,
        high: int = EDGE,
    ) -> None:
        """Jobs of tiles with common statistics, up to four tiles each.

        ``step``: tiles have gains of their own. ``high``: rows of a sample in a tile.
        """
        back = "b" in blocks
        if back:
            del blocks["bias"]
        whole = whole | {"features": made.part(*at[0])[1] - 1}
        rows = made.part(*at[0])[0]
        for first in range(0, len(at), 4):
            some = at[first : first + 4]

            def commands(held: dict[str, int], slot: int, first: int = first, some: Sequence = some) -> Iterator:
                for start in range(0, rows, min(high, rows)):
                    row = {"a_row": start, "o_row": start}
                    yield NormOpcode.SUMS, whole | row | held
                    if back:
                        yield NormOpcode.BACK_SUMS, whole | row | held
                    for n in range(len(some)):
                        moved = {
                            port: held[port] + (first + n) * (step if port in ("gain", "bias") else 1) for port in held
                        }
                        more = {"o": (slot + n) % 4, "fresh": int(start == 0), "tiles": 0}
                        yield NormOpcode.BACK if back else NormOpcode.NORM, whole | row | moved | more

            self.tiler.norm(made, some, blocks, commands)

    def _softmax(self, each: Softmax) -> None:
        (x,) = self.given(each)
        if each.log or x.wide > 1:
            raise ValueError(f"{each.o.name}: a softmax of {x.features} features has no command; of {EDGE} at most")
        self.soft(self.made(each), {"a": x})

    def _softmax_back(self, each: Softmax, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        made = self.part(each.i[0])
        self.soft(made, {"a": self.found[each.o.name], "b": dy})
        return [made]

    def soft(self, made: DraftValue, operands: Mapping[str, DraftValue], factor: float = 1.0) -> None:
        """Softmax of rows times a factor, or with ``b`` its gradient; matrix by matrix."""
        opcode = NormOpcode.SOFTMAX_BACK if "b" in operands else NormOpcode.SOFTMAX
        mantissa, exponent = constant(factor if "b" in operands else factor * _BASE_2)
        for number in range(made.count):
            for i in range(made.high):
                rows, keys = made.part(i, 0)
                given = {"rows": rows - 1, "features": keys - 1, "mantissa": mantissa, "exponent": exponent}
                blocks = {port: self.wide(value, i, 0, number) for port, value in operands.items()}

                def commands(held: dict[str, int], slot: int, given: dict[str, int] = given) -> Iterator:
                    yield opcode, given | held | {"o": slot, "fresh": 1}

                self.tiler.norm(made, [(i, 0, number)], blocks, commands)
