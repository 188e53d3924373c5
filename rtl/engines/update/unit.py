"""The update engine as it stands in a machine."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped

from ...hierarchy import place
from ..ports import give, take
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
        take(m, self.load_directions, update.gradient)
        take(m, self.load_moments, update.moment)
        words = self.load_words.beats
        m.d.comb += [
            # A beat of words never comes beside one of gradients, so room for it is all that it needs.
            update.parameter.valid.eq(words.valid),
            update.parameter.p.eq(words.p.data),
            words.ready.eq(update.room),
            self.health.saturated.eq(update.saturated),
        ]
        give(m, self.store_words, update.o)
        give(m, self.store_moments, update.new_moment)
        return m
