"""Running maxima of rows, for sums of powers in units that follow them."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gradloom.rtl.formats.vector import UNIT
from gradloom.rtl.stream.delay import delay

from ..lane import TOP, WHOLE

__all__ = ["STEPS", "Maxima"]

STEP = (UNIT - 1).bit_length()
#: A unit, in steps.
STEPS = signed(WHOLE.width - STEP)


class Maxima(wiring.Component):
    """The unit of each token's sum of powers.

    It follows from the largest whole part of the token's row so far; rows come tile by tile.

    Parameters
    ----------
    lanes : int
        Whole parts a beat, up to 16. tokens : int
        Rows.

    Members
    -------
    wholes : a beat of them, with ``valid``, ``token``, whether it is the first or last of a row in its tile, and of
        the first tile. Where rows have a single token they are not looked up, else a token's lie 3 beats apart.
    active : a row's sum is taken; else the unit is 0. single : there is one token. Both are held.
    top : the unit and 2, this beat regarded, 6 cycles after it. fall : by how many steps it rose with this beat, at the
        same time; 15 are enough for nothing to be left.
    ask, address : reads a token's unit, in steps, a cycle later at ``reach``, while no beats come.
    """

    def __init__(self, *, lanes, tokens):
        self.lanes, self.tokens = lanes, tokens
        super().__init__(
            {
                "wholes": In(data.ArrayLayout(WHOLE, lanes)),
                "tag": In(data.StructLayout({"valid": 1, "first": 1, "last": 1, "start": 1, "token": range(tokens)})),
                "active": In(1),
                "single": In(1),
                "top": Out(TOP),
                "fall": Out(4),
                "ask": In(1),
                "address": In(range(tokens)),
                "reach": Out(STEPS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        level = [self.wholes[lane][STEP:].as_signed() for lane in range(self.lanes)]
        depth = 0
        while len(level) > 1:
            level = [delay(m, Mux(a > b, a, b), 1) for a, b in zip(level[::2], level[1::2])]
            depth += 1
        beat = delay(m, level[0], 4 - depth)

        before = delay(m, self.tag, 3, reset_less=False)
        now = delay(m, before, 1, reset_less=False)
        after = delay(m, now, 1, reset_less=False)
        m.submodules.memory = memory = Memory(shape=STEPS, depth=self.tokens, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        held, largest, base = (Signal(STEPS, reset_less=True) for _ in range(3))
        m.d.comb += read.addr.eq(Mux(self.ask, self.address, before.token))
        # mutant starts-at-0: m.d.sync += held.eq(Mux(before.start & ~self.ask, Const(0, STEPS), read.data))
        m.d.sync += held.eq(Mux(before.start & ~self.ask, Const(-1 << (STEPS.width - 1), STEPS), read.data))
        old = Mux(now.first & (now.start | ~self.single), held, largest)
        with m.If(now.valid):
            m.d.sync += [largest.eq(Mux(old > beat, old, beat)), base.eq(old)]
        m.d.comb += [
            write.addr.eq(after.token),
            write.data.eq(largest),
            write.en.eq(after.valid & after.last),
            self.reach.eq(held),
        ]
        rise = Signal(STEPS.width)
        m.d.comb += rise.eq(largest - base)
        m.d.sync += [
            self.top.eq(Mux(self.active, Cat(Const(UNIT - 1, STEP), largest).as_signed(), 0) + 2),
            self.fall.eq(rise[:4] | rise[4:].any().replicate(4)),
        ]
        return m
