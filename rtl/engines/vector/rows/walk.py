"""Where a beat lies in a tensor."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Walk"]


class Walk(wiring.Component):
    """Counts the beats of a tensor: of a row, of a tile's tokens, of tiles.

    Members
    -------
    start : the sizes hold from now on, the first beat is shown from the next cycle. step : to the next beat.
    row, tokens, tiles : sizes, each less one.
    busy : a beat is shown, the last one or an earlier.
    at, token, tile, weight : its indices; ``weight`` of its beat in a token's whole row.
    first, last : of its row. opening : it is of the first tile. end : it is the last of all.
    """

    def __init__(self, *, row, tokens, tiles, weights):
        self.sizes = (row, tokens, tiles, weights)
        super().__init__(
            {
                "start": In(1),
                "step": In(1),
                "row": In(row),
                "tokens": In(tokens),
                "tiles": In(tiles),
                "busy": Out(1),
                "at": Out(row),
                "token": Out(tokens),
                "weight": Out(weights),
                "first": Out(1),
                "last": Out(1),
                "opening": Out(1),
                "end": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        row, tokens, tiles, weights = self.sizes
        at = self.at
        tile = Signal(tiles)
        base = Signal(weights)
        last_token = Signal()
        m.d.comb += [
            self.first.eq(at == 0),
            self.last.eq(at == self.row),
            self.opening.eq(tile == 0),
            last_token.eq(self.token == self.tokens),
            self.end.eq(self.last & last_token & (tile == self.tiles)),
        ]
        with m.If(self.step):
            m.d.sync += [at.eq(at + 1), self.weight.eq(self.weight + 1)]
            with m.If(self.last):
                m.d.sync += [at.eq(0), self.token.eq(self.token + 1), self.weight.eq(base)]
                with m.If(last_token):
                    m.d.sync += [
                        self.token.eq(0),
                        tile.eq(tile + 1),
                        base.eq(self.weight + 1),
                        self.weight.eq(self.weight + 1),
                    ]
                    with m.If(self.end):
                        m.d.sync += self.busy.eq(0)
        with m.If(self.start):
            m.d.sync += [self.busy.eq(1), at.eq(0), tile.eq(0), base.eq(0), self.token.eq(0), self.weight.eq(0)]
        return m
