"""Convolutions by address."""

from collections.abc import Mapping

import numpy as np

from gradloom.rtl.formats.tile_codes import EDGE, NARROW

from ..operations import Convolution
from .drafts import Block, DraftValue, Term
from .tensors import Part

__all__ = ["Convolutions"]


class Convolutions(Part):
    """Writes convolutions and their gradients."""

    def convolution(self, each: Convolution, x: DraftValue, made: DraftValue, *, back: bool) -> None:
        """Nine products by address, of the gradient if ``back``."""
        tiles, kept = self.tiler.read(x, NARROW), self.frozen[f"{each.layer}.weight"]
        bias = None if back else self.frozen.get(f"{each.layer}.bias")
        twice, sign = int(each.stride == 2), -1 if back else 1
        side = (each.i[0] if back else each.o).side
        rule = {"side": side.bit_length() - 1}
        if back:
            rule |= {"half": twice, "even": twice}
        else:
            rule |= {"double": twice, "half": int(each.i[0].name in self.risen)}
        if side & side - 1 or side > 1 << 7:
            raise ValueError(f"{each.layer}: {side} pixels in a row must be a power of two, at most {1 << 7}")
        places = [(sign * (y - 1), sign * (x - 1)) for y in range(3) for x in range(3)]
        deep, inner = x.wide, x.features
        for j in range(made.wide):
            order = [(j, k, p) if back else (k, j, p) for p in range(9) for k in range(deep)]
            w = Block.of(kept, order)
            for i in range(made.high):
                reach = [_reach(rule, i, made.tile[0], *place) for place in places]
                first = min(each[0] for each in reach if each)
                last = max(each[1] for each in reach if each)
                stream = Block.of(tiles, [(row, k) for row in range(first, last + 1) for k in range(deep)])
                if last - first > 7:
                    raise ValueError(
                        f"{each.layer}: rows of a tile come from {last - first + 1} tiles, must be 8 at most"
                    )
                terms = [
                    Term(
                        stream,
                        w,
                        rule
                        | {
                            "gather": 1,
                            "dy": dy,
                            "dx": dx,
                            "tiles": deep - 1,
                            "k_to": (inner - 1) % EDGE,
                            "w_turn": int(back),
                            "x_pitch": deep,
                            "row_tile": i,
                            "x_first": near[0],
                            "reach": near[1] - near[0],
                        },
                        x_skip=(near[0] - first) * deep,
                        w_skip=number * deep,
                    )
                    for number, ((dy, dx), near) in enumerate(zip(places, reach))
                    if near
                ]
                self.tiler.product(made, (i, j), terms, bias=None if bias is None else Block.of(bias, [(0, j)]))


def _reach(rule: Mapping[str, int], i: int, rows: int, dy: int, dx: int) -> tuple[int, int] | None:
    """First and last row tile that an output tile reads at a place.

    None where all its rows are zeros.
    """
    side, double, half = (rule.get(name, 0) for name in ("side", "double", "half"))
    g = EDGE * i + np.arange(rows)
    mask, end = (1 << side) - 1, 1 << side << double
    x, y, n = g & mask, g >> side & mask, g >> 2 * side
    x, y = (x << double) + dx, (y << double) + dy
    inside = (x >= 0) & (x < end) & (y >= 0) & (y < end)
    if rule.get("even"):
        inside &= (x | y) & 1 == 0
    if not inside.any():
        return None
    wide = end >> half
    found = (((n * wide + (y >> half)) * wide + (x >> half)) // EDGE)[inside]
    return int(found.min()), int(found.max())
