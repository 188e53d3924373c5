"""Walks over the rank indices of a sample."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["RankWalk"]


class RankWalk(wiring.Component):
    """Counts ``k`` as (tap, rank index) from 0 to ``last`` while ``step``.

    ``clear`` starts over.
    """

    def __init__(self, *, taps, rank):
        self.taps = taps
        self.rank = rank
        super().__init__(
            {
                "step": In(1),
                "clear": In(1),
                "k": Out(range(taps * rank)),
                "tap": Out(range(max(taps, 2))),
                "index": Out(range(max(rank, 2))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        with m.If(self.clear):
            m.d.sync += [self.k.eq(0), self.tap.eq(0), self.index.eq(0)]
        with m.Elif(self.step):
            m.d.sync += [self.k.eq(self.k + 1), self.index.eq(self.index + 1)]
            with m.If(self.index == self.rank - 1):
                m.d.sync += [self.index.eq(0), self.tap.eq(self.tap + 1)]
        return m
