"""The linear engine as it stands in a machine."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect, flipped

from ...hierarchy import place
from ..ports import give
from .engine import LinearEngine
from .feet import HiddenWord
from .intake import LinearIntake

__all__ = ["LinearUnit"]


class LinearUnit(wiring.Component):
    """:class:`~.engine.LinearEngine` with its ports to memory.

    Members
    -------
    engine, load_*, store_*, health : see :class:`~...shell.engines.EngineSpec`.
    hidden : words of h, as they are made.
    """

    def __init__(self, spec, config):
        self.config = config
        super().__init__({**spec.members(config.data_bits), "hidden": Out(HiddenWord(config))})

    def elaborate(self, platform):
        m = Module()
        linear = place(m, "linear", LinearEngine(self.config), platform)
        intake = place(m, "intake", LinearIntake(self.config), platform)
        connect(m, flipped(self.engine), linear.engine)
        for name in ("tables", "tiles", "operands", "lanes"):
            connect(m, flipped(getattr(self, f"load_{name}")), getattr(intake, f"load_{name}"))
        connect(m, intake.tables, linear.tables)
        connect(m, intake.tiles, linear.tiles)
        give(m, self.store_outputs, linear.o)
        m.d.comb += [
            intake.refuse_tile.eq(linear.refuse),
            linear.operand_write.eq(intake.operand_write),
            linear.lane_write.eq(intake.lane_write),
            self.hidden.eq(linear.hidden),
            self.health.saturated.eq(linear.saturated),
        ]
        return m
