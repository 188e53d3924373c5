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
    begin : the operands are of the record whose beats are next. only : with it, the record goes to a slot only.
    i : ``{valid, data, behind}``, see :class:`~.tile_store.TileStore`. o : see
        :func:`~...shell.signature.ForwardBeat`.
    """

    def __init__(self):
        super().__init__(
            {
                "arg": In(TileArgument),
                "to_arg": In(TileArgument),
                "record": Out(TileArgument),
                "refuse": Out(1),
                "begin": In(1),
                "only": In(1),
                "i": In(data.StructLayout({"valid": 1, "data": 8 * BEAT, "behind": 8 * BEAT})),
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
        header, slot, row, at, last = (
            Signal.like(each, name=name)
            for name, each in (
                ("header", self.o.header),
                ("slot", self.o.slot),
                ("row", self.o.row),
                ("at", self.o.beat),
                ("last", self.o.beat),
            )
        )
        # Beats of 16 codes of 16 bits are two of the slot, but a row's last where these have no upper half.
        two, odd = Signal(), Signal()
        with m.If(self.begin):
            # Beats of a row, less 1: 8 codes of 16 bits, or 16.
            beats = Mux(arg.wide & ~self.only, arg.features[3:], arg.features[4:])
            m.d.sync += [header.eq(1), slot.eq(to_arg.slot), row.eq(0), at.eq(0), last.eq(beats)]
            m.d.sync += [two.eq(arg.wide & self.only), odd.eq(~arg.features[3])]
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
            self.o.slot.eq(slot),
            self.o.row.eq(row),
            self.o.beat.eq(Mux(two, at << 1, at)),
            # mutant beyond: self.o.both.eq(two),
            self.o.both.eq(two & ~((at == last) & odd)),
            self.o.data.eq(self.i.data),
            self.o.behind.eq(Mux(two, self.i.behind, self.i.data)),
        ]
        return m
