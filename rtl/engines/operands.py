"""Operands that wait for an engine, so that their loader need not."""

from amaranth.hdl import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..formats.weights.linear import MASTER
from ..shell.engines import OPERAND_BEATS
from ..stream.queue import LongQueue

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

    Members
    -------
    i, o : streams of beats.
    """

    #: Beats, see :data:`..shell.engines.OPERAND_BEATS`: blocks of 72 bits each.
    depth = OPERAND_BEATS

    def __init__(self, *, words, bits):
        self.words, self.bits = words, bits
        beats = stream.Signature(MASTER.width * words)
        super().__init__({"i": In(beats), "o": Out(beats)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = LongQueue(width=self.words * self.bits, depth=self.depth)
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
