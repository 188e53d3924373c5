"""Codes of hidden states, and sums, on their way to memory."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from ...formats.gates import GATES
from .parameters import RESULT_BEATS, SUM_GROUPS

__all__ = ["Results", "Sums"]


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

    depth = RESULT_BEATS

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


class Sums(wiring.Component):
    """Queues sums of groups of rows and sends them in beats of four.

    A group is never refused: a row of the dense layer has its room reserved before it begins.

    Parameters
    ----------
    parallel : int
    width : int
        Bits of a sum.

    Members
    -------
    valid, sums : sums of a group.
    roomy : a row's beats had room two cycles ago. reserve : takes the room of a row. groups : of a row.
    o : stream of beats of four words of 32 bits; the first is there 2 cycles after its group.
    """

    #: In groups.
    depth = SUM_GROUPS

    def __init__(self, *, parallel, width):
        self.parallel = parallel
        self.width = width
        super().__init__(
            {
                "valid": In(1),
                "sums": In(data.ArrayLayout(signed(width), GATES * parallel)),
                "roomy": Out(1),
                "reserve": In(1),
                "groups": In(range(self.depth + 1)),
                "o": Out(stream.Signature(128)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        size = GATES * self.parallel * self.width
        m.submodules.queue = queue = SyncFIFOBuffered(width=size, depth=self.depth)
        at = Signal(range(self.parallel))
        reserved, left, used = (Signal(range(4 * self.depth), name=name) for name in ("reserved", "left", "used"))
        moves = self.o.valid & self.o.ready
        last = at == self.parallel - 1
        m.d.comb += [used.eq(reserved - left), queue.r_en.eq(moves & last)]
        # mutant crammed: m.d.sync += self.roomy.eq(used <= self.depth)
        m.d.sync += self.roomy.eq(used + self.groups <= self.depth)
        with m.If(self.reserve):
            m.d.sync += reserved.eq(reserved + self.groups)
        with m.If(moves):
            m.d.sync += at.eq(Mux(last, 0, at + 1))
            with m.If(last):
                m.d.sync += left.eq(left + 1)
        found = data.View(data.ArrayLayout(signed(self.width), GATES * self.parallel), queue.r_data)
        words = [Cat(each, each[-1].replicate(32 - self.width)) for each in found]
        beat = Cat(words).word_select(at, 128) if self.parallel > 1 else Cat(words)
        m.d.comb += [
            queue.w_en.eq(self.valid),
            queue.w_data.eq(self.sums),
            self.o.valid.eq(queue.r_rdy),
            self.o.p.eq(beat),
        ]
        return m
