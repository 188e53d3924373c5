"""Requests: a second program, and its status registers."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Requests"]


class Requests(wiring.Component):
    """Whether a request is pending or runs; its registers.

    Members
    -------
    bell : ``In(1)``, open : ``In(1)``
        Queue a request; bells are heard.
    serve : ``In(1)``
        The request that is pending runs from the next cycle on.
    begun : ``In(1)``
        It fetches.
    end, fail : ``In(1)``
        It ended; an error ends it, pending or running.
    drop : ``In(1)``
        The error has been dealt with.
    pending, serving : ``Out(1)``
        A request waits; a request runs.
    busy, done, error, refused : ``Out(1)``
        As ``request_busy`` and so on in STATUS.
    waited, cycles : ``Out(32)``
        As the registers ``request_waited`` and ``request_cycles``.
    """

    def __init__(self):
        super().__init__(
            {
                "bell": In(1),
                "open": In(1),
                "serve": In(1),
                "begun": In(1),
                "end": In(1),
                "fail": In(1),
                "drop": In(1),
                "pending": Out(1),
                "serving": Out(1),
                "busy": Out(1),
                "done": Out(1),
                "error": Out(1),
                "refused": Out(1),
                "waited": Out(32),
                "cycles": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.busy.eq(self.pending | self.serving)
        with m.If(self.bell):
            with m.If(self.open & ~self.busy):
                m.d.sync += [
                    self.pending.eq(1),
                    self.refused.eq(0),
                    self.done.eq(0),
                    self.error.eq(0),
                    self.cycles.eq(0),
                ]
            with m.Else():
                m.d.sync += self.refused.eq(1)
        total = Signal(33)
        m.d.comb += total.eq(self.cycles + 1)
        with m.If(self.busy):
            m.d.sync += self.cycles.eq(total[:32] | total[32].replicate(32))
        with m.If(self.begun & self.serving):
            m.d.sync += self.waited.eq(self.cycles)
        with m.If(self.serve):
            m.d.sync += [self.pending.eq(0), self.serving.eq(1)]
        with m.If(self.end):
            m.d.sync += [self.serving.eq(0), self.done.eq(1)]
        with m.If(self.drop):
            m.d.sync += [self.pending.eq(0), self.serving.eq(0)]
        with m.If(self.fail):
            m.d.sync += self.error.eq(self.error | self.busy)
        return m
