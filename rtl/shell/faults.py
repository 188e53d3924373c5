"""Records the first fault: code, command and address."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .engines import LOAD, STORE
from .registers.errors import Error

__all__ = ["Faults"]


class Faults(wiring.Component):
    """Keeps the first fault of a program.

    Of several in one cycle the first in this order: an engine's, of the lowest engine; the dispatcher's; a token's
    overflow; a deadlock; the host's reset; the watchdog.

    Members
    -------
    clear : ``In(1)``
        Forgets the fault.
    start : ``In(1)``, start_code : ``In(8)``, start_located : ``In(1)``, start_offset : ``In(32)``
        A program is to start, and is at fault unless the code is 0.
    run : ``In(1)``, flush : ``In(1)``
        It runs; it has ended, and only the watchdog may still find a fault.
    failed : ``In(n)``, codes : ``In(...)``
        A bit for each engine: it reports this code.
    load_offset, store_offset : ``In(32)``
        Offset at fault, with the error of LOAD and STORE.
    stop : ``In(1)``, stop_code : ``In(8)``, stop_located : ``In(1)``, stop_offset : ``In(32)``, index : ``In(24)``
        From :class:`~gradloom.rtl.shell.sequencer.dispatch.Dispatch`.
    overflow : ``In(1)``, posting, waiting : ``In(n)``, indices : ``In(...)``
        From :class:`~gradloom.rtl.shell.sequencer.scheduler.Scheduler`.
    locked, expired : ``In(1)``
        From :class:`~gradloom.rtl.shell.sequencer.watch.Watch`.
    reset : ``In(1)``
        The host wants it to end.
    overflows : ``Out(1)``
        A token overflowed in the cycle before, which is late: the program must not end meanwhile.
    fault : ``Out(1)``
        There is one; the four below are then valid.
    code : ``Out(8)``
    command : ``Out(24)``
        Index of the command at fault: after a token's overflow of the one that posted; where nobody is at fault, of
        the oldest that is not done. Valid once what was done has left the queues.
    located : ``Out(1)``, offset : ``Out(32)``
        It has an offset in memory, and which.
    """

    def __init__(self, engines):
        self.engines = engines
        n = len(engines)
        super().__init__(
            {
                "clear": In(1),
                "start": In(1),
                "start_code": In(8),
                "start_located": In(1),
                "start_offset": In(32),
                "run": In(1),
                "flush": In(1),
                "failed": In(n),
                "codes": In(data.ArrayLayout(8, n)),
                "load_offset": In(32),
                "store_offset": In(32),
                "stop": In(1),
                "stop_code": In(8),
                "stop_located": In(1),
                "stop_offset": In(32),
                "index": In(24),
                "overflow": In(1),
                "posting": In(n),
                "waiting": In(n),
                "indices": In(data.ArrayLayout(24, n)),
                "locked": In(1),
                "expired": In(1),
                "reset": In(1),
                "overflows": Out(1),
                "fault": Out(1),
                "code": Out(8),
                "command": Out(24),
                "located": Out(1),
                "offset": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        engine = Signal(len(self.engines))  # whose oldest command is at fault; none: what is being dispatched
        # No engine is at fault. What is done leaves its queue some cycles later: who is the oldest is decided then.
        nobody, oldest = Signal(), Signal(len(self.engines))
        # A command that posts leaves its queue in the same cycle, so its index is kept until the fault is known.
        whose, named, posted, overflowed = Signal(len(self.engines)), Signal(24), Signal(24), Signal()
        m.d.sync += self.overflows.eq(self.overflow & self.run & ~self.fault)
        m.d.comb += [
            whose.eq(Mux(self.fault, Mux(nobody, oldest, engine), self.posting)),
            named.eq(self.index),
            self.command.eq(Mux(overflowed, posted, named)),
        ]
        for e in self.engines.queued:
            m.d.comb += oldest[e].eq(self.waiting[e] & ~self.waiting[:e].any())
            with m.If(whose[e]):
                m.d.comb += named.eq(self.indices[e])
        with m.If(~self.fault & ~self.overflows):
            m.d.sync += posted.eq(named)

        with m.If(self.run & ~self.fault):
            m.d.sync += [
                self.fault.eq(self.failed.any() | self.stop | self.reset | self.expired | self.locked | self.overflows),
                self.located.eq(0),
                engine.eq(0),
                nobody.eq(0),
                overflowed.eq(0),
            ]
            with m.If(self.failed.any()):
                for e in reversed(self.engines.queued):
                    with m.If(self.failed[e]):
                        m.d.sync += [self.code.eq(self.codes[e]), engine.eq(1 << e)]
                        offset = {LOAD: self.load_offset, STORE: self.store_offset}.get(e)
                        if offset is not None:
                            m.d.sync += [self.located.eq(1), self.offset.eq(offset)]
                        else:
                            m.d.sync += self.located.eq(0)
            with m.Elif(self.stop):
                m.d.sync += [
                    self.code.eq(self.stop_code),
                    self.located.eq(self.stop_located),
                    self.offset.eq(self.stop_offset),
                ]
            with m.Elif(self.overflows):
                m.d.sync += [self.code.eq(Error.TOKEN_OVERFLOW), overflowed.eq(1)]
            with m.Elif(self.locked):
                m.d.sync += [self.code.eq(Error.DEADLOCK), nobody.eq(1)]
            with m.Elif(self.reset):
                m.d.sync += [self.code.eq(Error.ABORTED), nobody.eq(1)]
            with m.Else():
                m.d.sync += [self.code.eq(Error.WATCHDOG), nobody.eq(1)]
        with m.If(self.flush & self.expired):
            m.d.sync += [
                self.fault.eq(1),
                self.code.eq(Error.WATCHDOG),
                engine.eq(0),
                nobody.eq(0),
                overflowed.eq(0),
                self.located.eq(0),
            ]
        with m.If(self.start):
            m.d.sync += [
                self.fault.eq(self.start_code.any()),
                self.code.eq(self.start_code),
                engine.eq(0),
                nobody.eq(0),
                overflowed.eq(0),
                self.located.eq(self.start_located),
                self.offset.eq(self.start_offset),
            ]
        with m.If(self.clear):
            m.d.sync += self.fault.eq(0)
        return m
