"""What rows had in the commands before."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ...formats.tiles.codes import EDGE
from ...formats.tiles.norm import ROW
from ...stream.delay import registered

__all__ = ["NormRows"]


class NormRows(wiring.Component):
    """Keeps a sum or a largest score of each row, from which a later command's rows go on.

    Parameters
    ----------
    least : int
        Below all scores.

    Members
    -------
    write : what a row has now.
    row : the one that is looked up. more, largest, fall : held; without ``more``, 0 or below all scores.
    o : what the row had, shifted right by ``fall`` and rounded down, :attr:`latency` cycles later.
    """

    latency = 5

    def __init__(self, *, least):
        self.least = least
        super().__init__(
            {
                "write": In(data.StructLayout({"valid": 1, "index": range(EDGE), "total": signed(ROW)})),
                "row": In(range(EDGE)),
                "more": In(1),
                "largest": In(1),
                "fall": In(6),
                "o": Out(signed(ROW)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.kept = kept = Memory(shape=signed(ROW), depth=EDGE, init=[], attrs={"ram_style": "distributed"})
        into, read = kept.write_port(), kept.read_port()
        m.d.comb += [
            into.en.eq(self.write.valid),
            into.addr.eq(self.write.index),
            into.data.eq(self.write.total),
            read.addr.eq(self.row),
        ]
        # mutant forgets: value = registered(m, Mux(self.largest, self.least, 0), signed(ROW))
        value = registered(m, Mux(self.more, read.data, Mux(self.largest, self.least, 0)), signed(ROW))
        # Of four choices each a LUT of six inputs takes two bits of the shift.
        for bits in (0b110000, 0b001100, 0b000011):
            shifted = Signal(signed(ROW), reset_less=True)
            m.d.sync += shifted.eq(value >> (self.fall & bits))
            value = shifted
        m.d.comb += self.o.eq(value)
        return m
