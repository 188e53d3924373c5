"""Operands that wait for an engine, so that their loader need not."""

from amaranth.hdl import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..formats.weights.linear import MASTER
from ..shell.engines import OPERAND_BEATS
from ..stream.queue import LongQueue, ShortQueue

__all__ = ["OperandQueue"]


class OperandQueue(wiring.Component):
    """Queue of beats of 32-bit words of which ``bits`` count.

    These are the bits below the sign, and the sign. Latency is 2 cycles at least.

    Parameters
    ----------
    words : int
        Words of a beat.
    bits : int
        Of a word.
    depth : int
        Beats; with 512, blocks of 72 bits each.

    Members
    -------
    i, o : streams of beats.
    """

    #: See :data:`.queues.OPERAND_BEATS`.
    depth = OPERAND_BEATS
    #: Enough for a beat a cycle where the engine's answer need only start from a register.
    few = 4

    def __init__(self, *, words, bits, depth=depth):
        self.words, self.bits, self.depth = words, bits, depth
        beats = stream.Signature(MASTER.width * words)
        super().__init__({"i": In(beats), "o": Out(beats)})

    def elaborate(self, platform):
        m = Module()
        kind = ShortQueue if self.depth == self.few else LongQueue
        m.submodules.fifo = fifo = kind(width=self.words * self.bits, depth=self.depth)
        m.d.comb += [
            fifo.w_en.eq(self.i.valid),
            self.i.ready.eq(fifo.w_rdy),
            self.o.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(self.o.ready),
        ]
        for n in range(self.words):
            word = self.i.p.word_select(n, MASTER.width)
            kept = fifo.r_data.word_select(n, self.bits)
            m.d.comb += [
                fifo.w_data.word_select(n, self.bits).eq(Cat(word[: self.bits - 1], word[-1])),
                self.o.p.word_select(n, MASTER.width).eq(Cat(kept, kept[-1].replicate(MASTER.width - self.bits))),
            ]
        return m
