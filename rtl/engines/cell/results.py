"""Codes of hidden states on their way to memory."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

__all__ = ["Results"]


class Results(wiring.Component):
    """Packs chunks of rows into beats of 16 codes and queues them.

    Each row begins with a beat.

    A chunk is never refused: a row has its room reserved before it begins.

    Parameters
    ----------
    parallel : int
        Codes of a chunk.

    Members
    -------
    valid, chunk, last : a chunk, and whether it ends its row, of which beats that are not full end in zeros.
    roomy : a row's beats had room two cycles ago. reserve : takes the room of a row. row_beats : of a row.
    o : stream of beats; the first is there 3 cycles after its last chunk.
    """

    depth = 64

    def __init__(self, *, parallel):
        self.parallel = parallel
        super().__init__(
            {
                "valid": In(1),
                "chunk": In(8 * parallel),
                "last": In(1),
                "roomy": Out(1),
                "reserve": In(1),
                "row_beats": In(6),
                "o": Out(stream.Signature(128)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = SyncFIFOBuffered(width=128, depth=self.depth)
        chunks = 16 // self.parallel
        at, push, beat = Signal(range(chunks)), Signal(), Signal(128, reset_less=True)
        reserved, left, used = (Signal(8, name=name) for name in ("reserved", "left", "used"))
        m.d.comb += used.eq(reserved - left)
        # mutant overfull: m.d.sync += self.roomy.eq(used <= self.depth)
        m.d.sync += self.roomy.eq(used + self.row_beats <= self.depth)
        with m.If(self.reserve):
            m.d.sync += reserved.eq(reserved + self.row_beats)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += left.eq(left + 1)
        m.d.sync += push.eq(self.valid & (self.last | (at == chunks - 1)))
        with m.If(self.valid):
            m.d.sync += at.eq(Mux(self.last, 0, at + 1))
            for n in range(chunks):
                part = beat.word_select(n, 8 * self.parallel)
                with m.If(at == n):
                    m.d.sync += part.eq(self.chunk)
                with m.Elif(at == 0):
                    m.d.sync += part.eq(0)
        m.d.comb += [
            queue.w_en.eq(push),
            queue.w_data.eq(beat),
            self.o.valid.eq(queue.r_rdy),
            self.o.p.eq(queue.r_data),
            queue.r_en.eq(self.o.ready),
        ]
        return m
