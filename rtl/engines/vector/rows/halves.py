"""Rows of which every beat meets another one of the same row."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["Halves"]


class Halves(wiring.Component):
    """Two rows of beats: one fills while the other is read.

    Each beat is shown beside the beat half a row away.

    A beat holds ``turned`` and ``angle`` side by side. The beat of index n of the row that is read shows its own
    ``turned`` and the one n ± half of it; of ``angle``, where both halves are other things, that of the first
    and of the second half.

    Parameters
    ----------
    depth : int
        Most beats of a row, a power of two.
    turned, angle : int
        Bits.

    Members
    -------
    start : high for a cycle before rows of another length come. row : beats in a row, a power of two from 2, held.
    put, put_ready : a beat enters. take, take_valid : the beat shown goes.
    """

    def __init__(self, *, depth, turned, angle):
        self.depth, self.turned, self.angle = depth, turned, angle
        super().__init__(
            {
                "start": In(1),
                "row": In(range(depth + 1)),
                "i_turned": In(turned),
                "i_angle": In(angle),
                "put": In(1),
                "put_ready": Out(1),
                "own": Out(turned),
                "other": Out(turned),
                "first": Out(angle),
                "second": Out(angle),
                "take": In(1),
                "take_valid": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        half = self.row >> 1
        put_at, take_at = Signal(range(self.depth)), Signal(range(self.depth))
        put_bank, take_bank = Signal(), Signal()
        full = Signal(2)
        m.d.comb += self.put_ready.eq(~full.bit_select(put_bank, 1))
        ends = self.row - 1
        with m.If(self.put):
            m.d.sync += put_at.eq(put_at + 1)
            with m.If(put_at == ends):
                m.d.sync += [put_at.eq(0), put_bank.eq(~put_bank), full.bit_select(put_bank, 1).eq(1)]
        with m.If(self.take):
            m.d.sync += take_at.eq(take_at + 1)
            with m.If(take_at == ends):
                m.d.sync += [take_at.eq(0), take_bank.eq(~take_bank), full.bit_select(take_bank, 1).eq(0)]
        # Computed a cycle ahead: what `full` will say of the row that will be read.
        filled, read_out = Signal(2), Signal()
        m.d.comb += [
            filled.eq(full | Mux(self.put & (put_at == ends), Mux(put_bank, 0b10, 0b01), 0)),
            read_out.eq(self.take & (take_at == ends)),
        ]
        m.d.sync += self.take_valid.eq(filled.bit_select(take_bank ^ read_out, 1))
        with m.If(self.start):
            m.d.sync += [put_at.eq(0), take_at.eq(0), put_bank.eq(0), take_bank.eq(0), full.eq(0)]
            m.d.sync += self.take_valid.eq(0)
        for name, width, i, places, outputs in (
            ("turned", self.turned, self.i_turned, (take_at, take_at ^ half), (self.own, self.other)),
            ("angle", self.angle, self.i_angle, (take_at & ~half, take_at | half), (self.first, self.second)),
        ):
            m.submodules[name] = memory = Memory(shape=width, depth=2 * self.depth, init=[])
            write = memory.write_port()
            m.d.comb += [write.addr.eq(Cat(put_at, put_bank)), write.data.eq(i), write.en.eq(self.put)]
            for place, output in zip(places, outputs):
                read = memory.read_port(domain="comb")
                m.d.comb += [read.addr.eq(Cat(place[: len(take_at)], take_bank)), output.eq(read.data)]
        return m
