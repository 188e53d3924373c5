"""Two engines at one queue of commands."""
from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..shell.signature import EngineSignature

__all__ = ["VECTOR", "SharedQueue"]

#: Opcodes of the queue ENCODE from here on are the vector engine's, which sees them less this.
VECTOR = 8


class SharedQueue(wiring.Component):
    """Passes commands below :data:`VECTOR` to one engine, all others to a second one, in order.

    A command goes to the other engine from the cycle after the one before was done; commands for the same engine follow
    each other as that engine takes them.

    Members
    -------
    i : from the shell. first, second : to the engines.
    """

    def __init__(self):
        super().__init__({"i": In(EngineSignature()), "first": Out(EngineSignature()),
                          "second": Out(EngineSignature())})

    def elaborate(self, platform):
        m = Module()
        command, ports = self.i.command, (self.first, self.second)
        owner, wanted, allowed = Signal(), Signal(), Signal()
        under_way = Signal(6)
        taken = Signal()
        m.d.comb += [
            wanted.eq(command.p.opcode[3:].any()), allowed.eq((under_way == 0) | (wanted == owner)),
            command.ready.eq(allowed & Mux(wanted, self.second.command.ready, self.first.command.ready)),
            taken.eq(command.valid & command.ready),
            self.i.done.eq(self.first.done | self.second.done),
            self.i.error.valid.eq(self.first.error.valid | self.second.error.valid),
            self.i.error.code.eq(Mux(owner, self.second.error.code, self.first.error.code)),
        ]
        for n, port in enumerate(ports):
            m.d.comb += [port.command.valid.eq(command.valid & allowed & (wanted == n)),
                         port.command.p.args.eq(command.p.args)]
        m.d.comb += [
            self.first.command.p.opcode.eq(command.p.opcode),
            self.second.command.p.opcode.eq(Cat(command.p.opcode[:3], (command.p.opcode[3:] - 1)[:5])),
        ]
        m.d.sync += under_way.eq(under_way + taken - self.i.done)
        with m.If(taken):
            m.d.sync += owner.eq(wanted)
        return m
