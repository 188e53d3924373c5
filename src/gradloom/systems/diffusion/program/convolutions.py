"""Convolutions by address."""

import numpy as np

from gradloom.program.tiles.drafts import Block, DraftValue, Term
from gradloom.rtl.formats.tile_codes import EDGE, NARROW

from ..operations import Convolution
from ..pixels import TAPS, pixels_of
from .tensors import Part

__all__ = ["Convolutions"]


class Convolutions(Part):
    """Writes convolutions and their gradients."""

    def convolution(self, each: Convolution, x: DraftValue, made: DraftValue, *, back: bool) -> None:
        """Nine products by address, of the gradient if ``back``."""
        tiles, kept = self.tiler.read(x, NARROW), self.frozen[f"{each.layer}.weight"]
        bias = None if back else self.frozen.get(f"{each.layer}.bias")
        pixels = pixels_of(each, self.images, self.risen, back=back)
        sources = [pixels.rows(*place) for place in TAPS[back]]
        deep, inner = x.wide, x.features
        for j in range(made.wide):
            order = [(j, k, p) if back else (k, j, p) for p in range(9) for k in range(deep)]
            w = Block.of(kept, order)
            for i in range(made.high):
                reach = [_reach(rows[EDGE * i :][: made.tile[0]]) for rows in sources]
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
                        {
                            "gather": 1,
                            "tiles": deep - 1,
                            "k_to": (inner - 1) % EDGE,
                            "w_turn": int(back),
                            "x_pitch": deep,
                            "reach": near[1] - near[0],
                        }
                        | pixels.place(EDGE * i, *place, near[0]),
                        scan=pixels.shape,
                        x_skip=(near[0] - first) * deep,
                        w_skip=number * deep,
                    )
                    for number, (place, near) in enumerate(zip(TAPS[back], reach))
                    if near
                ]
                self.tiler.product(made, (i, j), terms, bias=None if bias is None else Block.of(bias, [(0, j)]))


def _reach(rows: np.ndarray) -> tuple[int, int] | None:
    """First and last row tile of source rows.

    None where all are zeros.
    """
    inside = rows[rows >= 0]
    return (int(inside.min()) // EDGE, int(inside.max()) // EDGE) if len(inside) else None
