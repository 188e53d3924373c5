"""Both engines of Amaranth's simulator give every signal the same values, whatever the circuit."""

import operator
import random

import pytest
from amaranth.hdl import Array, Cat, ClockDomain, Const, Module, Mux, Print, Signal, signed, unsigned
from amaranth.hdl._ast import SwitchValue
from amaranth.lib.memory import Memory
from amaranth.sim import Simulator

from gradloom.sim.quick.engine import QuickEngine

CYCLES = 12
PAIRS = (
    *(operator.add, operator.sub, operator.mul, operator.and_, operator.or_, operator.xor),
    *(operator.floordiv, operator.mod, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
    lambda a, b: a << b.as_unsigned()[:3],
    lambda a, b: a >> b.as_unsigned()[:3],
    lambda a, b: Cat(a, b),
    # Not of an operator alone: beyond its last bit Amaranth's compiler and its evaluation of expressions differ.
    lambda a, b: Cat(a, b).bit_select(b.as_unsigned()[:3], 3),
    lambda a, b: Cat(a, b).word_select(a.as_unsigned()[:2], 2),
)
ALONE = (
    *(operator.neg, operator.invert),
    lambda a: a.any(),
    lambda a: a.all(),
    lambda a: a.xor(),
    lambda a: (a if len(a) else Const(1)).as_signed(),
    lambda a: a.as_unsigned(),
    lambda a: a[min(1, len(a)) :],
    lambda a: a[: len(a) // 2 + 1],
)


class Circuit:
    """A circuit by chance: three modules with a memory each, signals that are whole and in parts, two clock domains."""

    def __init__(self, seed):
        self.rng = rng = random.Random(seed)
        self.inputs = [self.signal() for _ in range(4)]
        self.signals = list(self.inputs)
        self.top = Module()
        self.top.domains.sync = self.sync = ClockDomain(async_reset=rng.random() < 0.3)
        self.top.domains.late = ClockDomain(clk_edge="neg", reset_less=True)
        for n in range(3):
            part = Module() if n else self.top
            if n:
                self.top.submodules += part
            self.memory(part)
            for _ in range(5):
                self.driven(part)
        self.sampled = self.value()

    def signal(self):
        shape = self.rng.choice((signed, unsigned))(self.rng.randint(1, 9))
        return Signal(shape, init=self.rng.randrange(1 << (shape.width - 1)), reset_less=self.rng.random() < 0.2)

    def value(self, depth=3):
        rng = self.rng
        if not depth or rng.random() < 0.2:
            return rng.choice(self.signals)
        a, b, c = self.value(depth - 1), self.value(depth - 1), self.value(0)
        match rng.randrange(6):
            case _ if len(a) + len(b) > 60:
                return a[:7] - b[:5].as_signed()
            case 0:
                return rng.choice(ALONE)(a)
            case 1:
                return Mux(c, a, b)
            case 2:
                return Array([a, b, c])[self.value(0).as_unsigned()[:2]]
            case 3:
                return SwitchValue(c, [("-" * (len(c) - 1) + "1", a), ("1" * len(c), c), (None, b)][rng.randrange(2) :])
            case _:
                return rng.choice(PAIRS)(a, b)

    def driven(self, part):
        """Two signals of one domain, by conditions and switches."""
        rng = self.rng
        domain = rng.choice(("comb", "comb", "sync", "late"))
        made = [self.signal(), self.signal()]

        def some():
            for target in rng.choices(made, k=rng.randint(0, 2)):
                ways = target, target[1:], target[:-1], target.bit_select(self.value(0).as_unsigned()[:2], 2)
                part.d[domain] += ways[rng.randrange(4) if len(target) > 2 else 0].eq(self.value())

        part.d[domain] += rng.choice(made).eq(self.value())
        if rng.random() < 0.3:
            part.d[domain] += Cat(*made).eq(self.value())
        if rng.random() < 0.3:
            part.d[domain] += Array(made)[self.value().as_unsigned()[:1]].eq(self.value())
        with part.If(self.value().bool()):
            some()
        with part.Elif(self.value().bool()):
            some()
        with part.Else():
            some()
        with part.Switch(self.value(0).as_unsigned()[:1] + Const(0, 2)):
            with part.Case(rng.choice(("--1", "001"))):
                some()
            with part.Case(0, 2):
                some()
            with part.Default():
                some()
        half = Signal(signed(6))
        part.d.comb += half[:3].eq(self.value())
        part.d.sync += half[3:].eq(self.value())
        self.signals += [*made, half]

    def memory(self, part):
        """A memory with two writers, of which one reader sees one in the same cycle, and a reader without a clock."""
        shape = self.rng.choice((signed, unsigned))(8)
        part.submodules.memory = memory = Memory(shape=shape, depth=self.rng.choice((5, 8)), init=[1, 2, 3])
        first = memory.write_port(granularity=None if shape.signed else 4)
        read = memory.read_port(transparent_for=[first])
        for port in (first, memory.write_port(), read, unclocked := memory.read_port(domain="comb")):
            part.d.comb += port.addr.eq(self.value())
            if port is not unclocked:
                part.d.comb += port.en.eq(self.value())
            if port is read or port is unclocked:
                self.signals.append(port.data)
            else:
                part.d.comb += port.data.eq(self.value())


def played(seed, engine):
    """Values of all signals of a circuit, in every cycle and after each change of an input, twice from its start."""
    circuit = Circuit(seed)
    runs = []

    async def bench(ctx):
        rng, found = random.Random(seed), []
        runs.append(found)
        for _ in range(CYCLES):
            for each in circuit.inputs:
                ctx.set(each, rng.randrange(1 << len(each)))
                found.append([ctx.get(one) for one in circuit.signals])
            ctx.set(circuit.sync.rst, rng.random() < 0.1)
            found.append([ctx.get(one) for one in circuit.signals])
            *_, sampled, signals = await ctx.tick().sample(circuit.sampled, Cat(circuit.signals))
            found.append([sampled, signals, ctx.get(circuit.sampled)])

    simulator = Simulator(circuit.top, engine=engine)
    simulator.add_clock(1e-6)
    simulator.add_clock(1.5e-6, domain="late")
    simulator.add_testbench(bench)
    simulator.run()
    simulator.reset()
    simulator.run()
    assert runs[0] == runs[1]
    return runs[0]


@pytest.mark.parametrize("seed", range(16))
def test_a_circuit_does_what_it_does_in_amaranths_own_engine(seed):
    expected = played(seed, "pysim")
    assert len({tuple(each) for each in expected}) > CYCLES
    assert played(seed, QuickEngine) == expected


def test_what_prints_runs_at_each_edge(capsys):
    top, still = Module(), Signal(init=1)
    with top.If(still):
        top.d.sync += Print("edge")

    async def bench(ctx):
        await ctx.tick().repeat(3)

    for engine in ("pysim", QuickEngine):
        simulator = Simulator(top, engine=engine)
        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)
        simulator.run()
        assert capsys.readouterr().out == "edge\n" * 3
