"""Norms and their gradients."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from gradloom.graph.operations import Norm
from gradloom.program.tiles.drafts import Block, DraftValue
from gradloom.rtl.formats.tiles.codes import EDGE, WIDE
from gradloom.rtl.formats.tiles.norm import EPS, NormOpcode, constant

from .elements import Elements

__all__ = ["Norms"]


class Norms(Elements):
    """Writes group and layer norms."""

    def _norm(self, each: Norm) -> None:
        (x,) = self.given(each)
        self.normed(each, self.made(each), {"a": x})

    def _norm_back(self, each: Norm, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        (x,) = self.given(each)
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
            self._rows(each, made, operands, {"gain": gain, "bias": bias}, whole)
            return
        size = each.span
        high = min(size, EDGE)
        group = made.features // each.groups
        if group & group - 1 or group > EDGE:
            raise ValueError(f"{each.layer}: groups of {group} features must be a power of two, at most {EDGE}")
        if EDGE % high or size % high:
            raise ValueError(f"{each.layer}: {size} rows of a group must divide {EDGE} or be a multiple of it")
        whole |= {"group": group.bit_length() - 1, "rows": high - 1}
        count = -(-size // EDGE)
        for i in range(0, made.high, count):
            for j in range(made.wide):
                at = [(i + n, j) for n in range(count)]
                blocks = {port: Block.of(self.tiler.read(v, WIDE), at) for port, v in operands.items()}
                blocks |= {"gain": Block.of(gain, [(0, j)]), "bias": Block.of(bias, [(0, j)])}
                own = {"tiles": count - 1, "features": made.part(i, j)[1] - 1}
                self._tiles(made, at, blocks, whole | own, step=0, high=high)

    def _rows(
        self, each: Norm, made: DraftValue, operands: Mapping[str, DraftValue], own: Mapping, whole: dict[str, int]
    ) -> None:
        """Groups of each row by themselves; features beyond the result's have a gain of 0."""
        x = operands["a"]
        group = x.features // each.groups
        if group & group - 1:
            raise ValueError(f"{each.layer}: {group} features of a norm must be a power of two")
        most = EDGE * self.tiler.config.norm_slots
        if group > most:
            what = f"{each.o.features // each.groups} features of a norm take {group} places"
            raise ValueError(f"{each.layer}: {what}, must be {most} at most")
        if each.groups > 1 and (group % EDGE or x.features > made.features):
            raise ValueError(f"{each.layer}: groups of {group} features of a row must be whole tiles")
        nothing = Block.of(self.zeros, [(0, 0)])
        deep = x.wide // each.groups
        whole |= {"by_row": 1, "tiles": deep - 1}
        for i, first in product(range(x.high), range(0, x.wide, deep)):
            blocks = {}
            for port, value in operands.items():
                there = range(first, min(first + deep, value.wide))
                block = Block.of(self.tiler.read(value, WIDE), [(i, j) for j in there])
                blocks[port] = Block(
                    block.offsets + (deep - len(there)) * nothing.offsets,
                    block.records + (deep - len(there)) * nothing.records,
                )
            some = [(0, j) for j in range(first, first + deep)]
            blocks |= {name: Block.of(tiles, some) for name, tiles in own.items()}
            rows, features = x.part(i, 0)
            columns = [(i, j) for j in range(first, min(first + deep, made.wide))]
            self._tiles(made, columns, blocks, whole | {"rows": rows - 1, "features": features - 1}, step=1)

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
        rows = made.part(*at[0])[0]
        for first in range(0, len(at), 4):
            some = at[first : first + 4]

            def commands(held: dict[str, int], slot: int, first: int = first, some: Sequence = some) -> Iterator:
                for start in range(0, rows, min(high, rows)):
                    row = {"a_row": start, "o_row": start}
                    yield NormOpcode.SUMS, whole | row | held
                    if back:
                        yield NormOpcode.BACK_SUMS, whole | row | held
                    for n, place in enumerate(some):
                        moved = {
                            port: held[port] + (first + n) * (step if port in ("gain", "bias") else 1) for port in held
                        }
                        more = {"o": (slot + n) % 4, "fresh": int(start == 0), "tiles": 0}
                        more["features"] = made.part(*place)[1] - 1
                        yield NormOpcode.BACK if back else NormOpcode.NORM, whole | row | moved | more

            self.tiler.norm(made, some, blocks, commands)
