"""Gives STORE the adapter words of the array."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...formats.images import PARAMETER
from ...shell.signature import StoreSignature
from ..compare import beyond

__all__ = ["LaneOutlet"]


class LaneOutlet(wiring.Component):
    """Sends adapter words from word ``arg`` on, two beats in six cycles.

    Members
    -------
    port : store port. ``refuse``: words beyond the last.
    dump : adapter words that ``words`` holds 2 cycles later.
    """

    def __init__(self, config):
        self.config = config
        super().__init__(
            {
                "port": In(StoreSignature(128)),
                "dump": Out(data.StructLayout({"valid": 1, "address": ceil_log2(config.adapter_depth)})),
                "words": In(data.ArrayLayout(PARAMETER.shape, config.columns)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        request, beats = self.port.request, self.port.beats
        bits = ceil_log2(self.config.adapter_depth) + 1
        # In beats: a word is two.
        end = Cat(Const(0, 1), request.p.arg[:bits]) + request.p.beats[: bits + 1]
        m.d.sync += self.port.refuse.eq(
            request.p.arg[bits:].any() | request.p.beats[bits + 1 :].any() | beyond(end, 2 * self.config.adapter_depth)
        )

        # Asked for, there two cycles later, and then as two beats.
        busy, left = Signal(), Signal(bits)
        wait, word = Signal(2), Signal.like(self.dump.address)
        high, held, have = Signal(), Signal(256), Signal()
        m.d.comb += [
            request.ready.eq(1),
            self.dump.valid.eq(busy & (wait != 3) & ~have),
            self.dump.address.eq(word),
            beats.valid.eq(have),
            beats.p.eq(held.word_select(high, 128)),
        ]
        with m.If(request.valid):
            m.d.sync += [busy.eq(1), left.eq(request.p.beats - 1), word.eq(request.p.arg)]
        with m.If(self.dump.valid):
            m.d.sync += wait.eq(wait + 1)
        with m.If((wait == 3) & ~have):
            m.d.sync += [held.eq(self.words.as_value()), have.eq(1), high.eq(0)]
        with m.If(have & beats.ready):
            m.d.sync += [high.eq(1), left.eq(left - 1)]
            with m.If(left == 0):
                m.d.sync += busy.eq(0)
            with m.If(high | (left == 0)):
                m.d.sync += [have.eq(0), wait.eq(0), word.eq(word + 1)]
        return m
