"""The gradient engine as it stands in a machine."""

from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, connect, flipped
from amaranth.utils import bits_for, exact_log2

from ...formats.weights.linear import ACTIVATION
from ...hierarchy import place
from ...stream.product import narrow_product
from ..linear.feet import HiddenWord
from ..operands import OperandQueue
from ..ports import give, take
from .commands import HIDDEN_ARG
from .engine import GradientEngine
from .parameters import SLOTS

__all__ = ["GradientUnit"]


class GradientUnit(wiring.Component):
    """:class:`~.engine.GradientEngine` with its ports to memory.

    A queue of 512 beats is before it.

    h that does not exist is refused: of a slot or a size beyond the largest, or in another number of beats than its
    words take.

    Members
    -------
    engine, load_*, store_*, health : see :class:`~...shell.engines.EngineSpec`.
    hidden : words of h, from the linear engine.
    """

    def __init__(self, spec, config):
        self.config = config
        super().__init__({**spec.members(config.data_bits), "hidden": In(HiddenWord(config))})

    def elaborate(self, platform):
        m = Module()
        config = self.config
        gradient = place(m, "gradient", GradientEngine(config), platform)
        queue = place(m, "queue", OperandQueue(words=config.beat_words, bits=ACTIVATION.width), platform)
        connect(m, flipped(self.engine), gradient.engine)
        take(m, self.load_x, queue.i)
        connect(m, queue.o, gradient.i)
        give(m, self.store_gradients, gradient.o)
        kept = self.store_hidden.beats
        restore, request = self.load_hidden.beats, self.store_hidden.request
        back, asked = (data.View(HIDDEN_ARG, each.p.arg) for each in (restore, request))
        words = narrow_product(asked.tokens[: bits_for(config.tokens)], asked.rank[: bits_for(config.rank)])
        beats = (words + config.beat_words - 1) >> exact_log2(config.beat_words)
        m.d.comb += [
            gradient.restore.valid.eq(restore.valid),
            restore.ready.eq(gradient.restore.ready),
            gradient.restore.p.data.eq(restore.p.data),
            gradient.restore.p.first.eq(restore.p.first),
            gradient.restore.p.arg.eq(back),
            self.load_hidden.refuse.eq(self._none(back)),
            gradient.request.valid.eq(request.valid),
            gradient.request.p.eq(asked),
            request.ready.eq(gradient.request.ready),
            kept.valid.eq(gradient.kept.valid),
            kept.p.eq(gradient.kept.p),
            gradient.kept.ready.eq(kept.ready),
            gradient.hidden.eq(self.hidden),
            self.health.saturated.eq(gradient.saturated),
        ]
        m.d.sync += self.store_hidden.refuse.eq(self._none(asked) | (request.p.beats != beats))
        return m

    def _none(self, hidden):
        """Whether there is no h of that slot and size."""
        config = self.config
        return (
            (hidden.slot >= SLOTS)
            | (hidden.tokens == 0)
            | (hidden.tokens > config.tokens)
            | (hidden.rank == 0)
            | hidden.rank[0]
            | (hidden.rank > config.rank)
        )
