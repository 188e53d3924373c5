"""An engine that only takes time."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.rtl.shell.registers.errors import Error
from gradloom.rtl.shell.signature import EngineSignature

__all__ = ["BAD", "HANG", "TIME", "Timer"]

TIME, HANG, BAD = 0, 1, 2


class Timer(wiring.Component):
    """Opcode 0 takes ``args`` cycles, 1 takes for ever, 2 has a bad operand."""

    def __init__(self):
        super().__init__({"port": In(EngineSignature())})

    def elaborate(self, platform):
        m = Module()
        left = Signal(32)
        command = self.port.command
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += command.ready.eq(1)
                m.d.sync += left.eq(command.payload.args[:32])
                with m.If(command.valid):
                    with m.Switch(command.payload.opcode):
                        with m.Case(TIME):
                            m.next = "RUN"
                        with m.Case(HANG):
                            m.next = "HANG"
                        with m.Case(BAD):
                            m.next = "BAD"
                        with m.Default():
                            m.next = "UNKNOWN"
            with m.State("RUN"):
                m.d.sync += left.eq(left - 1)
                with m.If(left <= 1):
                    m.d.comb += self.port.done.eq(1)
                    m.next = "IDLE"
            with m.State("HANG"):
                pass
            with m.State("BAD"):
                m.d.comb += [self.port.error.valid.eq(1), self.port.error.code.eq(Error.BAD_OPERAND)]
            with m.State("UNKNOWN"):
                m.d.comb += [self.port.error.valid.eq(1), self.port.error.code.eq(Error.UNKNOWN_OPCODE)]
        return m
