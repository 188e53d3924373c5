"""Machines of dummy engines: as many as asked for, with one or two phases and none to several ports each."""

from enum import IntEnum

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from gradloom.rtl.machines.fabric import Machine, Wire
from gradloom.rtl.shell.engines import Engines, EngineSpec, LoadPort, Loop, StorePort
from gradloom.rtl.shell.signature import ControlOperands

from .timer import Timer

__all__ = ["DEPTH", "FAMILIES", "Dummy", "family", "machine", "stored"]

#: Engines of the machines that are tried.
FAMILIES = (1, 2, 4, 7)
#: Load ports and store ports, by engine.
_PORTS = ((2, 3), (0, 2), (1, 0), (0, 0), (3, 1), (1, 1), (4, 4))
#: Beats behind a load port.
DEPTH = 64


class _Opcode(IntEnum):
    TIME = 0
    HANG = 1
    BAD = 2


def stored(engine, port, engines, word, loaded):
    """Beat ``word`` of a store port, in a machine of ``engines`` engines; ``loaded``: words by load port."""
    mark = (engine - 1) % engines << 64 | engine << 40 | port << 32
    return loaded[port][word] ^ mark if port < len(loaded) else mark | word


class Dummy(wiring.Component):
    """Takes time. Behind each load port is a memory; store port s gives that of load port s, or its numbers.

    ``tell`` is the engine's number; ``told`` is that of another, which stores show.
    """

    def __init__(self, spec, number, data_bits):
        self.loads, self.stores = len(spec.loads), len(spec.stores)
        self.number, self.data_bits = number, data_bits
        super().__init__({**spec.members(data_bits), "tell": Out(8), "told": In(8)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.timer = timer = Timer()
        connect(m, flipped(self.engine), timer.port)
        m.d.comb += [self.tell.eq(self.number), self.health.saturated.eq(timer.port.done)]
        memories = []
        for n in range(self.loads):
            port = getattr(self, f"load_l{n}")
            m.submodules[f"memory_{n}"] = memory = Memory(shape=self.data_bits, depth=DEPTH, init=[])
            write, place = memory.write_port(), Signal(33)
            memories.append(memory.read_port(domain="comb"))
            # The last port takes a beat every other cycle.
            slow = Signal()
            m.d.sync += slow.eq(~slow)
            m.d.comb += [
                port.beats.ready.eq(slow if n == self.loads - 1 else 1),
                place.eq(port.beats.p.arg + port.beats.p.index),
                port.refuse.eq(place >= DEPTH),
                write.addr.eq(place),
                write.data.eq(port.beats.p.data),
                write.en.eq(port.beats.valid & port.beats.ready & ~port.refuse),
            ]
        for n in range(self.stores):
            port = getattr(self, f"store_s{n}")
            request = port.request
            left, word = Signal(24), Signal(range(2 * DEPTH))
            m.d.sync += port.refuse.eq(request.p.arg + request.p.beats > DEPTH)
            m.d.comb += [request.ready.eq(left == 0), port.beats.valid.eq(left != 0)]
            with m.If(request.valid & request.ready):
                m.d.sync += [left.eq(request.p.beats), word.eq(request.p.arg)]
            with m.Elif(port.beats.valid & port.beats.ready):
                m.d.sync += [left.eq(left - 1), word.eq(word + 1)]
            mark = self.told << 64 | self.number << 40 | n << 32
            if n < len(memories):
                m.d.comb += [memories[n].addr.eq(word), port.beats.p.eq(memories[n].data ^ mark)]
            else:
                m.d.comb += port.beats.p.eq(mark | word)
        return m


def family(count, data_bits=128):
    """``count`` engines; the last one's queue keeps fewer operands."""
    specs = []
    for n in range(count):
        loads, stores = _PORTS[n % len(_PORTS)]
        specs.append(
            EngineSpec(
                name=f"dummy_{n}",
                opcodes=_Opcode,
                default=ControlOperands,
                phases=tuple(f"phase_{n}_{p}" for p in range(n % 2 + 1)),
                loads=tuple(LoadPort(f"l{p}", "words") for p in range(loads)),
                stores=tuple(StorePort(f"s{p}", "words") for p in range(stores)),
                unit=lambda spec, config, n=n: Dummy(spec, n, data_bits),
                loop=_loop if n == 0 else None,
                operand_bits=32 if n == count - 1 else 160,
            )
        )
    return Engines(*specs)


def _loop(config):
    """Bits from 32 on have marks."""
    return Loop(load="l0", store="s0", beats=9, bits=32, kept=1, group=4, arg=7)


def machine(engines):
    """A machine of them: each tells the next its number."""
    names = [each.name for each in engines.own]
    return Machine(
        engines, tuple(Wire(f"{one}.tell", f"{other}.told") for one, other in zip(names, [*names[1:], names[0]]))
    )
