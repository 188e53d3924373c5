"""The vector engine as it stands in a machine."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped

from ...formats.vector import TERM
from ...hierarchy import place
from ..operands import OperandQueue
from ..ports import give, take
from .engine import VectorEngine

__all__ = ["VectorUnit"]


class VectorUnit(wiring.Component):
    """:class:`~.engine.VectorEngine` with its ports to memory.

    Queues of 512 beats are before a, b and c, and behind o and q.

    Members
    -------
    engine, load_*, store_*, health : see :class:`~...shell.engines.EngineSpec`.
    """

    def __init__(self, spec, config):
        self.config = config
        super().__init__(spec.members(config.data_bits))

    def elaborate(self, platform):
        m = Module()
        config = self.config
        vector = place(
            m,
            "vector",
            VectorEngine(
                lanes=config.beat_words,
                tokens=config.tokens,
                features=config.features,
                head=config.head,
                depth=OperandQueue.depth,
                gelu=bool(config.gelu),
            ),
            platform,
        )
        connect(m, flipped(self.engine), vector.engine)
        for name in "abc":
            queue = place(m, f"queue_{name}", OperandQueue(words=config.beat_words, bits=TERM.width), platform)
            take(m, getattr(self, f"load_{name}"), queue.i)
            connect(m, queue.o, getattr(vector, name))
        give(m, self.store_o, vector.o)
        give(m, self.store_q, vector.q)
        m.d.comb += self.health.saturated.eq(vector.saturated)
        return m
