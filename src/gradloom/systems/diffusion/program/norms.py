"""Norms and their gradients."""

from collections.abc import Iterator, Mapping, Sequence

from gradloom.program.tiles.drafts import Block, DraftValue
from gradloom.rtl.formats.norm import EPS, NormOpcode, constant
from gradloom.rtl.formats.tile_codes import EDGE, WIDE

from ..operations import GroupNorm, LayerNorm
from .tensors import Part

__all__ = ["Norms"]


class Norms(Part):
    """Writes group and layer norms."""

    def norm(
        self, each: GroupNorm | LayerNorm, made: DraftValue, operands: Mapping[str, DraftValue], *opcodes: NormOpcode
    ) -> None:
        """Statistics and results of ``a``; with ``b``, of its gradient."""
        mantissa, exponent = constant(each.eps, EPS)
        gain, bias = (self.frozen[f"{each.layer}.{name}"] for name in ("weight", "bias"))
        back = "b" in operands
        rows, features = made.tile
        whole = {"features": features - 1, "mantissa": mantissa, "exponent": exponent}
        if isinstance(each, LayerNorm):
            whole |= {"by_row": 1, "rows": rows - 1, "tiles": made.wide - 1}
            columns = range(made.wide)
            for i in range(made.high):
                blocks = {
                    port: Block.of(self.tiler.read(v, WIDE), [(i, j) for j in columns]) for port, v in operands.items()
                }
                blocks |= {
                    "gain": Block.of(gain, [(0, j) for j in columns]),
                    "bias": Block.of(bias, [(0, j) for j in columns]),
                }
                self._normed(made, [(i, j) for j in columns], blocks, whole, back, step=1)
            return
        size = made.rows // self.images
        high = min(size, EDGE)
        group = made.features // each.groups
        if group & group - 1 or group > features:
            raise ValueError(f"{each.layer}: groups of {group} features must be a power of two, at most {EDGE}")
        if EDGE % high or size % high:
            raise ValueError(f"{each.layer}: {size} rows of an image must divide {EDGE} or be a multiple of it")
        whole |= {"group": group.bit_length() - 1, "rows": high - 1}
        count = -(-size // EDGE)
        for i in range(0, made.high, count):
            for j in range(made.wide):
                at = [(i + n, j) for n in range(count)]
                blocks = {port: Block.of(self.tiler.read(v, WIDE), at) for port, v in operands.items()}
                blocks |= {"gain": Block.of(gain, [(0, j)]), "bias": Block.of(bias, [(0, j)])}
                self._normed(made, at, blocks, whole | {"tiles": count - 1}, back, step=0, high=high)

    def _normed(
        self,
        made: DraftValue,
        at: Sequence[tuple[int, int]],
        blocks: dict[str, Block],
        whole: dict[str, int],
        back: bool,
        *,
        step: int,
        high: int = EDGE,
    ) -> None:
        """Jobs of tiles with common statistics, up to four tiles each.

        ``step``: tiles have gains of their own. ``high``: rows of an image in a tile.
        """
        if back:
            del blocks["bias"]
        for first in range(0, len(at), 4):
            some = at[first : first + 4]

            def commands(held: dict[str, int], slot: int, first: int = first, some: Sequence = some) -> Iterator:
                for start in range(0, made.tile[0], min(high, made.tile[0])):
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
