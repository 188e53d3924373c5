"""The head as it stands in a machine."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, connect, flipped

from ...hierarchy import place
from ..array.feet import HiddenWords
from ..array.unit import GradientSignature
from ..array.writes import logits_write
from ..ports import give
from .engine import Head

__all__ = ["HeadUnit"]


class HeadUnit(wiring.Component):
    """:class:`~.engine.Head` with its ports to memory.

    Members
    -------
    engine, load_*, store_*, health : see :class:`~...shell.engines.EngineSpec`.
    h, dh, logits : of the array engine.
    """

    def __init__(self, spec, config):
        self.config = config
        super().__init__(
            {
                **spec.members(128),
                "h": In(HiddenWords(config)),
                "dh": In(GradientSignature(config)),
                "logits": In(logits_write(config)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        head = place(
            m,
            "head",
            Head(
                rows=config.rows,
                rank=config.rank,
                max_taps=config.taps,
                max_classes=config.classes,
                activation=config.activation,
            ),
            platform,
        )
        connect(m, flipped(self.engine.command), head.command)
        m.d.comb += [self.engine.done.eq(head.done), self.engine.error.eq(head.error), self.health.eq(head.health)]
        # Its samples may have more bits than the array's.
        m.d.comb += [
            *(head.i_h[name].eq(self.h[name]) for name in ("valid", "tap", "sample", "h")),
            *(head.i_logits[name].eq(self.logits[name]) for name in ("valid", "half", "sample", "beat", "data")),
            *(head.dh_address[name].eq(self.dh.address[name]) for name in ("tap", "sample")),
            self.dh.data.eq(head.dh),
        ]
        self._take(m, head)
        give(m, self.store_losses, head.o_loss)
        give(m, self.store_b, head.o_b)
        request = self.store_b.request
        m.d.comb += [
            head.i_dump.valid.eq(request.valid),
            head.i_dump.p.beats.eq(request.p.beats),
            request.ready.eq(head.i_dump.ready),
        ]
        m.d.sync += self.store_b.refuse.eq(request.p.beats > 2 * config.taps * config.rank)
        return m

    def _take(self, m, head):
        """B and labels, each from a register, unless the beat is refused."""
        words, labels = self.load_b.beats, self.load_labels.beats
        # The beats before were the last that have room.
        words_full, labels_full = Signal(), Signal()
        m.d.comb += [
            words.ready.eq(1),
            labels.ready.eq(1),
            self.load_b.refuse.eq(words_full),
            self.load_labels.refuse.eq(labels.p.arg[1:].any() | labels_full),
        ]
        with m.If(words.valid):
            m.d.sync += words_full.eq(
                ~words.p.last & (words_full | (words.p.index[:9] == 2 * self.config.taps * self.config.rank - 1))
            )
        with m.If(labels.valid):
            m.d.sync += labels_full.eq(~labels.p.last & (labels_full | labels.p.index[0]))
        m.d.sync += [
            head.i_b.valid.eq(words.valid & ~self.load_b.refuse),
            head.i_b.index.eq(words.p.index),
            head.i_b.data.eq(words.p.data),
            head.i_labels.valid.eq(labels.valid & ~self.load_labels.refuse),
            head.i_labels.half.eq(labels.p.arg[0]),
            head.i_labels.beat.eq(labels.p.index),
            head.i_labels.data.eq(labels.p.data),
        ]
