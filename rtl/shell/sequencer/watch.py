"""Notices that nothing goes on: a watchdog, and a search for deadlocks."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Watch"]

# mutant deadlock-early: _DEADLOCK_CYCLES = 7
_DEADLOCK_CYCLES = 8


class Watch(wiring.Component):
    """Counts cycles without movement, and detects a deadlock.

    A deadlock is a state in which nothing can move again.

    Members
    -------
    watchdog : ``In(32)``
        Cycles without movement to wait for; 0: for ever.
    moved : ``In(1)``
        Something moved.
    rewind : ``In(1)``
        Begin anew.
    stuck : ``In(1)``
        What is to be done next waits, and no engine works.
    expired : ``Out(1)``
        For a cycle, when ``watchdog`` cycles have passed since the last movement.
    locked : ``Out(1)``
        ``stuck`` has been high for 8 cycles.
    """

    def __init__(self):
        super().__init__(
            {"watchdog": In(32), "moved": In(1), "rewind": In(1), "stuck": In(1), "expired": Out(1), "locked": Out(1)}
        )

    def elaborate(self, platform):
        m = Module()
        clock = Signal(32)
        runs = Signal()  # ``clock`` is not 0
        ends = Signal()  # it is 1
        moving = Signal()
        m.d.sync += moving.eq(self.moved)
        # mutant despite-movement: m.d.comb += self.expired.eq(ends)
        # mutant a-cycle-early: m.d.comb += self.expired.eq((clock == 2) & ~moving)
        m.d.comb += self.expired.eq(ends & ~moving)
        with m.If(moving | self.rewind):
            m.d.sync += [clock.eq(self.watchdog), runs.eq(self.watchdog.any()), ends.eq(self.watchdog == 1)]
        with m.Elif(runs):
            m.d.sync += [clock.eq(clock - 1), runs.eq(~ends), ends.eq(clock == 2)]
        quiet = Signal(range(_DEADLOCK_CYCLES + 1))
        m.d.comb += self.locked.eq(quiet == _DEADLOCK_CYCLES)
        with m.If(self.stuck & ~self.locked):
            m.d.sync += quiet.eq(quiet + 1)
        with m.Else():
            m.d.sync += quiet.eq(0)
        return m
