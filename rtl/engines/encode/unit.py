"""The encode engine as it stands in a machine."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...hierarchy import place
from ...units.encoder import NF4_THRESHOLDS
from ..ports import TapQueue, give
from .engine import EncodeEngine
from .peek import PeekSignature

__all__ = ["EncodeUnit"]


class EncodeUnit(wiring.Component):
    """:class:`~.engine.EncodeEngine` with its ports to memory.

    Members
    -------
    engine, store_*, health : see :class:`~...shell.engines.EngineSpec`.
    peek, thresholds : of the array engine.
    """

    def __init__(self, spec, config):
        self.config = config
        super().__init__({**spec.members(128), "peek": Out(PeekSignature(config)), "thresholds": In(NF4_THRESHOLDS)})

    def elaborate(self, platform):
        m = Module()
        encode = place(m, "encode", EncodeEngine(self.config), platform)
        taps = place(m, "taps", TapQueue(), platform)
        connect(m, flipped(self.engine), encode.engine)
        connect(m, flipped(self.thresholds), encode.table)
        connect(m, encode.taps, taps.i)
        give(m, self.store_taps, taps.o)
        give(m, self.store_raw, encode.raw)
        m.d.comb += [
            self.peek.address.eq(encode.peek),
            encode.grant.eq(self.peek.grant),
            encode.arrives.eq(self.peek.arrives),
            encode.data.eq(self.peek.data),
        ]
        return m
