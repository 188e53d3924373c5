"""Rows of codes become beats of words of gradients."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...formats.adamw import GradientArgument
from ...formats.tiles.codes import WIDE, ZERO
from ...formats.tiles.records import BEAT
from ...formats.weights.linear import ACTIVATION, MASTER
from ...shell.signature import PortBeat

__all__ = ["GradientCodes"]

_BEAT, _WORDS = 8 * BEAT, 8 * BEAT // MASTER.width
_CODES = _BEAT // WIDE


class GradientCodes(wiring.Component):
    """Makes two beats of words of a beat of codes.

    It is one beat where a row has no more than eight features left.

    A word has the code in the upper bits of 24, and above them the record's exponent. Beats that are words pass. A beat
    leaves a cycle after it was taken; two of words take two cycles, in the second of which the next is taken.

    Members
    -------
    beats : stream of beats of a load port, ``arg`` as :data:`~...formats.adamw.GradientArgument`.
    refuse : with the beat: it has a code that no quantiser makes.
    o : stream of beats of words.
    """

    def __init__(self):
        super().__init__(
            {"beats": In(stream.Signature(PortBeat(_BEAT))), "refuse": Out(1), "o": Out(stream.Signature(_BEAT))}
        )

    def elaborate(self, platform):
        m = Module()
        beat, arg = self.beats.p, Signal(GradientArgument)
        m.d.comb += arg.eq(beat.arg)
        least = 1 << WIDE - 1
        wrong = Cat(beat.data.word_select(n, WIDE) == least for n in range(_CODES)).any()
        header, taken = Signal(), Signal()
        m.d.comb += [
            header.eq(arg.codes & arg.header & beat.first),
            # mutant accepts: self.refuse.eq(0),
            self.refuse.eq(arg.codes & ~header & wrong),
            taken.eq(self.beats.valid & self.beats.ready),
        ]
        exponent, at, ends = Signal(8), Signal(2), Signal()
        # A LOAD begins with a row.
        position = Mux(beat.first, 0, at)
        m.d.comb += ends.eq(position == arg.features[4:])
        have, two, codes = Signal(), Signal(), Signal()
        content = Signal(_BEAT, reset_less=True)
        with m.If(taken):
            m.d.sync += [content.eq(beat.data), codes.eq(arg.codes), have.eq(~header & ~self.refuse)]
            # mutant whole-beats: m.d.sync += two.eq(arg.codes)
            m.d.sync += two.eq(arg.codes & ~(ends & ~arg.features[3]))
            with m.If(header):
                m.d.sync += [exponent.eq(beat.data[:8]), at.eq(0)]
            with m.Else():
                m.d.sync += at.eq(Mux(ends, 0, position + 1))
        with m.Elif(self.o.ready & two):
            m.d.sync += [two.eq(0), content.eq(content[_BEAT // 2 :])]
        with m.Elif(self.o.ready):
            m.d.sync += have.eq(0)
        m.d.comb += [self.beats.ready.eq(~have | (self.o.ready & ~two)), self.o.valid.eq(have)]
        # mutant counts-zeros: some = Const(1)
        some = exponent != (ZERO & 0xFF)
        for n in range(_WORDS):
            code = content.word_select(n, WIDE)
            word = Cat(Const(0, ACTIVATION.width - WIDE), Mux(some, code, 0), exponent)
            m.d.comb += self.o.p.word_select(n, MASTER.width).eq(Mux(codes, word, content.word_select(n, MASTER.width)))
        return m
