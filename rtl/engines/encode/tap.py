"""Elements of taps to the beats of their cache records."""

from amaranth.hdl import Module, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from ...formats.images import ACTIVATION
from ...hierarchy import place
from ...units.encoder import NF4_THRESHOLDS, THRESHOLD_FRAC, NF4Encoder
from .packer import TapPacker

__all__ = ["TapEncoder"]


class TapEncoder(wiring.Component):
    """An encoder and its packer, with room for two taps behind them.

    Members
    -------
    base : stream of the index of each tap's first block. i : stream of elements; ``wide``: codes of 8 bits, equal in a
        tap. o : stream of beats.
    table : rewrites the encoder's thresholds.
    """

    def __init__(self, *, blocks, fmt=ACTIVATION):
        self.blocks = blocks
        self.fmt = fmt
        super().__init__(
            {
                "base": In(stream.Signature(unsigned(16))),
                "i": In(stream.Signature(data.StructLayout({"x": fmt.shape, "last": 1, "wide": 1}))),
                "o": Out(stream.Signature(unsigned(128))),
                "table": In(NF4_THRESHOLDS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        # Codes of 8 bits are those of words with as many fraction bits as thresholds have.
        wide = self.fmt.frac == THRESHOLD_FRAC
        encoder = place(m, "encoder", NF4Encoder(wide=wide, fmt=self.fmt), platform)
        packer = place(m, "packer", TapPacker(blocks=self.blocks), platform)
        m.submodules.bases = bases = SyncFIFOBuffered(width=16, depth=4)
        m.d.comb += [
            bases.w_data.eq(self.base.p),
            bases.w_en.eq(self.base.valid),
            self.base.ready.eq(bases.w_rdy),
            packer.base.p.eq(bases.r_data),
            packer.base.valid.eq(bases.r_rdy),
            bases.r_en.eq(packer.base.ready),
            encoder.i.valid.eq(self.i.valid),
            self.i.ready.eq(encoder.i.ready),
            encoder.i.p.x[0].eq(self.i.p.x),
            encoder.i.p.last.eq(self.i.p.last),
            *([encoder.i.p.wide.eq(self.i.p.wide)] if wide else []),
            packer.i.valid.eq(encoder.o.valid),
            encoder.o.ready.eq(packer.i.ready),
            *(
                [packer.i.p.eq(encoder.o.p)]
                if wide
                else [
                    getattr(packer.i.p, field).eq(getattr(encoder.o.p, field)) for field in ("codes", "scale", "last")
                ]
            ),
            encoder.table.en.eq(self.table.en),
            encoder.table.addr.eq(self.table.addr),
            encoder.table.data.eq(self.table.data),
            self.o.valid.eq(packer.o.valid),
            self.o.p.eq(packer.o.p),
            packer.o.ready.eq(self.o.ready),
        ]
        return m
