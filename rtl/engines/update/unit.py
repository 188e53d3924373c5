"""The update engine as it stands in a machine."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped

from ...hierarchy import place
from ..ports import give, take
from .codes import GradientCodes
from .engine import UpdateEngine

__all__ = ["UpdateUnit"]


class UpdateUnit(wiring.Component):
    """:class:`~.engine.UpdateEngine` with its ports to memory.

    Members
    -------
    engine, load_*, store_*, health : see :class:`~...shell.engines.EngineSpec`.
    """

    def __init__(self, spec, config):
        self.config = config
        super().__init__(spec.members(config.data_bits))

    def elaborate(self, platform):
        m = Module()
        update = place(m, "update", UpdateEngine(self.config), platform)
        connect(m, flipped(self.engine), update.engine)
        take(m, self.load_moments, update.moment)
        words = self.load_words.beats
        m.d.comb += [
            update.parameter.valid.eq(words.valid),
            update.parameter.p.eq(words.p.data),
            self.health.saturated.eq(update.saturated),
        ]
        if self.config.records:
            codes = place(m, "codes", GradientCodes(), platform)
            m.d.comb += [
                codes.beats.valid.eq(self.load_directions.beats.valid),
                codes.beats.p.eq(self.load_directions.beats.p),
                self.load_directions.beats.ready.eq(codes.beats.ready),
                self.load_directions.refuse.eq(codes.refuse),
                # Offered only where there is room, so that words need not wait for what has none.
                # mutant blocks: update.gradient.valid.eq(codes.o.valid),
                update.gradient.valid.eq(codes.o.valid & update.gradient.ready),
                update.gradient.p.eq(codes.o.p),
                codes.o.ready.eq(update.gradient.ready),
                # mutant beside: words.ready.eq(update.room),
                words.ready.eq(update.parameter.ready),
            ]
        else:
            take(m, self.load_directions, update.gradient)
            # A beat of words never comes beside one of gradients, so room for it is all that it needs.
            m.d.comb += words.ready.eq(update.room)
        give(m, self.store_words, update.o)
        give(m, self.store_moments, update.new_moment)
        return m
