"""Running maxima of rows, for sums of powers in units that follow them."""
from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..stream.delay import delay
from .lane import TOP, WHOLE

__all__ = ["Maxima"]


class Maxima(wiring.Component):
    """The largest whole part of each token's row so far, of rows that come tile by tile.

    Parameters
    ----------
    lanes : int
        Whole parts a beat, up to 16. tokens : int
        Rows.

    Members
    -------
    wholes : a beat of them, with ``valid``, ``token``, whether it is the first or last of a row in its tile, and of
        the first tile. Where rows have a single token they are not looked up, else a token's lie 3 beats apart.
    active : a row's sum is taken; else the maximum is 0. single : there is one token. Both are held.
    top : the maximum and 2, this beat's among it, 6 cycles after it.
    fall : by how much it rose with this beat, 63 at most, in the same cycle.
    ask, address : reads a token's maximum, a cycle later at ``largest``, while no beats come.
    """

    def __init__(self, *, lanes, tokens):
        self.lanes, self.tokens = lanes, tokens
        super().__init__({
            "wholes": In(data.ArrayLayout(WHOLE, lanes)),
            "tag": In(data.StructLayout({"valid": 1, "first": 1, "last": 1, "start": 1, "token": range(tokens)})),
            "active": In(1), "single": In(1), "top": Out(TOP), "fall": Out(6),
            "ask": In(1), "address": In(range(tokens)), "largest": Out(WHOLE),
        })

    def elaborate(self, platform):
        m = Module()
        level = [self.wholes[lane] for lane in range(self.lanes)]
        depth = 0
        while len(level) > 1:
            level = [delay(m, Mux(a > b, a, b), 1) for a, b in zip(level[::2], level[1::2])]
            depth += 1
        beat = delay(m, level[0], 4 - depth)

        before = delay(m, self.tag, 3, reset_less=False)
        now = delay(m, before, 1, reset_less=False)
        after = delay(m, now, 1, reset_less=False)
        m.submodules.memory = memory = Memory(shape=WHOLE, depth=self.tokens, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        held, largest, base = (Signal(WHOLE, reset_less=True) for _ in range(3))
        m.d.comb += read.addr.eq(Mux(self.ask, self.address, before.token))
        m.d.sync += held.eq(Mux(before.start & ~self.ask, Const(-1 << (WHOLE.width - 1), WHOLE), read.data))
        old = Mux(now.first & (now.start | ~self.single), held, largest)
        with m.If(now.valid):
            m.d.sync += [largest.eq(Mux(old > beat, old, beat)), base.eq(old)]
        m.d.comb += [write.addr.eq(after.token), write.data.eq(largest), write.en.eq(after.valid & after.last),
                     self.largest.eq(held)]
        rise = Signal(WHOLE.width)
        fall = Signal(6, reset_less=True)
        m.d.comb += rise.eq(largest - base)
        m.d.sync += [
            self.top.eq(Mux(self.active, largest, 0) + 2),
            fall.eq(Mux(self.active, rise[:6] | rise[6:].any().replicate(6), 0)),
        ]
        m.d.comb += self.fall.eq(fall)
        return m
