"""Packs words into beats and queues them before STORE."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

__all__ = ["BeatQueue"]


class BeatQueue(wiring.Component):
    """Packs words into beats, the first in the lowest bits, and queues them.

    A word is never refused.

    A beat is at the output 3 cycles after its last word, or later.

    Parameters
    ----------
    bits : int
        Of a beat. word_bits : int
        Of what comes in a cycle; a beat holds a power of two of them.
    depth, spare : int
        Beats that the queue holds, and how many of them must be free for ``roomy``: what may be under way when it ends,
        and one for each cycle that it is late.

    Members
    -------
    i : a word, if ``valid``; ``last`` counts of a beat's last word. roomy : whether more may be sent on its way.
    o : stream of beats, each with the ``last`` of its last word.
    """

    def __init__(self, *, bits, word_bits, depth, spare):
        self.bits, self.word_bits, self.depth, self.spare = bits, word_bits, depth, spare
        super().__init__(
            {
                "i": In(data.StructLayout({"valid": 1, "data": word_bits, "last": 1})),
                "roomy": Out(1),
                "o": Out(stream.Signature(data.StructLayout({"data": bits, "last": 1}))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        words = self.bits // self.word_bits
        m.submodules.fifo = fifo = SyncFIFOBuffered(width=self.bits + 1, depth=self.depth)
        step, push = Signal(range(words)), Signal()
        beat, last = Signal(self.bits, reset_less=True), Signal(reset_less=True)
        m.d.sync += [self.roomy.eq(fifo.w_level < self.depth - self.spare), push.eq(0)]
        with m.If(self.i.valid):
            m.d.sync += [
                beat.eq(Cat(beat, self.i.data)[self.word_bits :]),
                last.eq(self.i.last),
                step.eq(step + 1),
                push.eq(step == words - 1),
            ]
        m.d.comb += [
            fifo.w_data.eq(Cat(beat, last)),
            fifo.w_en.eq(push),
            self.o.valid.eq(fifo.r_rdy),
            self.o.p.eq(fifo.r_data),
            fifo.r_en.eq(self.o.ready),
        ]
        return m
