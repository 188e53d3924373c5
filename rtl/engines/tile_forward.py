"""Takes records apart that STORE forwards to load ports."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..formats.tiles.records import BEAT, TileArgument
from ..shell.signature import ForwardBeat

__all__ = ["TileForward"]


class TileForward(wiring.Component):
    """Finds the place of each beat of a forwarded record.

    A beat a cycle. One for all ports of a machine: STORE sends one record at a time. It never waits; ``o`` is a cycle
    late.

    Members
    -------
    arg, to_arg : operands of the store port and of the load port, each a
        :data:`~...formats.tiles.records.TileArgument`.
    record : the record as the load port judges it: the slot of ``to_arg``, the rest of ``arg``. In the same cycle.
    refuse : rows or features of both are not the same. In the same cycle.
    begin : the operands are of the record whose beats are next.
    i : ``{valid, data}``. o : see :func:`~...shell.signature.ForwardBeat`.
    """

    def __init__(self):
        super().__init__(
            {
                "arg": In(TileArgument),
                "to_arg": In(TileArgument),
                "record": Out(TileArgument),
                "refuse": Out(1),
                "begin": In(1),
                "i": In(data.StructLayout({"valid": 1, "data": 8 * BEAT})),
                "o": Out(ForwardBeat(8 * BEAT)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        arg, to_arg = self.arg, self.to_arg
        m.d.comb += [
            self.record.eq(arg),
            self.record.slot.eq(to_arg.slot),
            # mutant any-shape: self.refuse.eq(0),
            self.refuse.eq((arg.rows != to_arg.rows) | (arg.features != to_arg.features)),
        ]
        header, wide, slot, row, at, last = (
            Signal.like(each, name=name)
            for name, each in (
                ("header", self.o.header),
                ("wide", self.o.wide),
                ("slot", self.o.slot),
                ("row", self.o.row),
                ("at", self.o.beat),
                ("last", self.o.beat),
            )
        )
        with m.If(self.begin):
            # Beats of a row, less 1: 16 codes of 16 bits, or 32.
            beats = Mux(arg.wide, arg.features[4:], arg.features[5:])
            m.d.sync += [header.eq(1), wide.eq(arg.wide), slot.eq(to_arg.slot), row.eq(0), at.eq(0), last.eq(beats)]
        with m.Elif(self.i.valid):
            # mutant all-headers: m.d.sync += header.eq(1)
            m.d.sync += header.eq(0)
            with m.If(~header):
                m.d.sync += at.eq(at + 1)
                with m.If(at == last):
                    m.d.sync += [at.eq(0), row.eq(row + 1)]
        m.d.sync += [
            self.o.valid.eq(self.i.valid),
            self.o.header.eq(header),
            self.o.wide.eq(wide),
            self.o.slot.eq(slot),
            self.o.row.eq(row),
            self.o.beat.eq(at),
            self.o.data.eq(self.i.data),
        ]
        return m
