"""The array engine as it stands in a machine."""

from amaranth.hdl import Module, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from ...hierarchy import place
from ...units.encoder import NF4_THRESHOLDS
from ..encode.peek import PeekSignature
from ..ports import TapQueue, give
from .engine import ArrayEngine
from .feet import HiddenWords
from .intake import ArrayIntake
from .outlet import LaneOutlet
from .writes import logits_write

__all__ = ["ArrayUnit", "GradientSignature"]


class GradientSignature(wiring.Signature):
    """dh of the head; ``data`` is the word at last cycle's ``address``."""

    def __init__(self, config):
        super().__init__(
            {
                "address": Out(data.StructLayout({"tap": ceil_log2(config.taps), "sample": ceil_log2(config.rows)})),
                "data": In(data.ArrayLayout(signed(18), config.rank)),
            }
        )


class ArrayUnit(wiring.Component):
    """:class:`~.engine.ArrayEngine` with its ports to memory.

    Members
    -------
    engine, load_*, store_*, health : see :class:`~...shell.engines.EngineSpec`.
    h : h of a sample of a tap.
    dh : the head's gradients of h.
    logits : logits of a sample's record.
    peek : dense activations, for the encode engine.
    thresholds : a threshold that LOAD brought, for all encoders.
    """

    def __init__(self, spec, config):
        self.config = config
        super().__init__(
            {
                **spec.members(128),
                "h": Out(HiddenWords(config)),
                "dh": Out(GradientSignature(config)),
                "logits": Out(logits_write(config)),
                "peek": In(PeekSignature(config)),
                "thresholds": Out(NF4_THRESHOLDS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        array = place(m, "array", ArrayEngine(self.config), platform)
        intake = place(m, "intake", ArrayIntake(self.config), platform)
        outlet = place(m, "outlet", LaneOutlet(self.config), platform)
        taps = place(m, "taps", TapQueue(), platform)
        connect(m, flipped(self.engine), array.engine)
        for name in ("weights", "biases", "image", "record", "lanes", "books"):
            connect(m, flipped(getattr(self, f"load_{name}")), getattr(intake, f"load_{name}"))
        for name in ("codes", "scales", "lanes", "weights", "biases", "image", "books"):
            m.d.comb += getattr(array, name).eq(getattr(intake, name))
        connect(m, flipped(self.store_lanes), outlet.port)
        connect(m, array.taps, taps.i)
        give(m, self.store_taps, taps.o)
        threshold = intake.books
        m.d.comb += [
            self.thresholds.en.eq(threshold.valid & threshold.beat[4]),
            self.thresholds.addr.eq(threshold.beat[:4]),
            self.thresholds.data.eq(threshold.data[: len(self.thresholds.data)].as_signed()),
            *(getattr(array.table, name).eq(getattr(self.thresholds, name)) for name in ("en", "addr", "data")),
            array.dump.eq(outlet.dump),
            outlet.words.eq(array.words),
            self.h.eq(array.h),
            self.dh.address.eq(array.dh),
            array.dh_data.eq(self.dh.data),
            self.logits.eq(intake.logits),
            array.peek.eq(self.peek.address),
            self.peek.grant.eq(array.peek_grant),
            self.peek.arrives.eq(array.peek_arrives),
            self.peek.data.eq(array.peek_data),
            self.health.saturated.eq(array.saturated),
            self.health.underflowed.eq(array.underflowed),
            self.health.norm.eq(array.norm),
        ]
        return m
