"""Packs the blocks of an encoded tap into beats of a cache record."""

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from ...formats.images import SCALES_PER_BEAT
from ...units.encoder import block_layout

__all__ = ["TapPacker"]


class TapPacker(wiring.Component):
    """Packs blocks of 64 codes and their scales into beats of 128 bits.

    All codes of a tap come first, then all its scales. Codes leave as they come, two beats a block, or four of 8-bit
    codes, those of the high nibbles first. A beat of scales holds the index of its first block in the record, and seven
    scales, so that a reader of records need not know taps.

    Members
    -------
    base : stream of the index of each tap's first block, before the tap.
    i : stream of :func:`~...units.encoder.block_layout`.
    o : stream of beats; ``2 * blocks + ceil(blocks / 7)`` a tap, ``4 * blocks`` of 8-bit codes.
    """

    def __init__(self, *, blocks=64):
        if not 1 <= blocks <= 1024:
            raise ValueError(f"blocks={blocks}: a tap has 1 to 1024")
        self.blocks = blocks
        super().__init__(
            {
                "base": In(stream.Signature(unsigned(16))),
                "i": In(stream.Signature(block_layout(64, wide=True))),
                "o": Out(stream.Signature(unsigned(128))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        # Beats of scales wait here until the codes have gone, all but the last, which waits where it was gathered.
        m.submodules.scales = scales = SyncFIFO(width=128, depth=max(-(-self.blocks // SCALES_PER_BEAT) - 1, 1))
        index = Signal(16)
        gathered = Signal(data.ArrayLayout(16, SCALES_PER_BEAT))
        count = Signal(range(SCALES_PER_BEAT))
        beat = Signal(2)
        known, drain, drained, full = Signal(), Signal(), Signal(), Signal()
        # The block's last beat is shown. A register: ``i.ready`` reaches far into the encoder.
        final = Signal()
        m.d.comb += self.i.ready.eq(final & self.o.ready)
        m.d.comb += [scales.w_data.eq(Cat(index, gathered)), scales.w_en.eq(full)]
        m.d.sync += full.eq(0)

        codes = Cat(self.i.p.codes, self.i.p.low).word_select(beat, 128)
        waiting = Mux(scales.r_rdy, scales.r_data, scales.w_data)
        m.d.comb += self.o.p.eq(Mux(drain, waiting, codes))
        with m.If(full):
            m.d.sync += index.eq(index + SCALES_PER_BEAT)
        with m.If(drain):
            m.d.comb += [self.o.valid.eq(~drained), scales.r_en.eq(self.o.ready)]
            with m.If(self.o.ready & ~scales.r_rdy):
                m.d.sync += drained.eq(1)
            with m.If(drained):
                m.d.sync += [drain.eq(0), drained.eq(0)]
        with m.Elif(~known):
            m.d.comb += self.base.ready.eq(1)
            with m.If(self.base.valid):
                m.d.sync += [index.eq(self.base.p), known.eq(1), count.eq(0)]
        with m.Elif(self.i.valid):
            m.d.comb += self.o.valid.eq(1)
            with m.If(self.o.ready):
                m.d.sync += [beat.eq(beat + 1), final.eq(beat == Mux(self.i.p.wide, 2, 0))]
                # A block takes two beats at least, so that a full beat has left before its next scale comes.
                with m.If(final):
                    m.d.sync += [
                        beat.eq(0),
                        final.eq(0),
                        full.eq(count == SCALES_PER_BEAT - 1),
                        count.eq(Mux(count == SCALES_PER_BEAT - 1, 0, count + 1)),
                    ]
                    for n in range(SCALES_PER_BEAT):
                        with m.If(count == n):
                            m.d.sync += gathered[n].eq(self.i.p.scale)
                    with m.If(self.i.p.last):
                        m.d.sync += [known.eq(0), drain.eq(1), full.eq(0)]
        # Said last, the reset of a register comes before its clock enable.
        with m.If(full | self.base.ready):
            m.d.sync += gathered.eq(0)
        return m
