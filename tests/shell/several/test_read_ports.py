"""Several ports that read as one: data, order, errors and rates under random latencies and holds."""

import random

import pytest
from amaranth.hdl import Module, ResetInserter, Signal

from gradloom.rtl.shell.bus.read_ports import ReadPorts, burst_words
from gradloom.sim.bench.engine import simulate

from ...deep import deep
from .memory import PortMemory, word_at


def uneven(most):
    """Latencies at random up to ``most``, of each burst."""
    return lambda generator: generator.randint(1, most)


def bursts(count, words, step, *, seed=None):
    """Addresses and lengths in words: one after another, or anywhere with any length within a stripe."""
    if seed is None:
        return [(n * words * step, words) for n in range(count)]
    generator = random.Random(seed)
    found = []
    for _ in range(count):
        first = generator.randrange(words)
        found.append(((generator.randrange(64) * words + first) * step, generator.randint(1, words - first)))
    return found


class Reader:
    """Asks for bursts at ``wide``, and checks what comes; ``hold``: cycles of long holds of the answers."""

    def __init__(self, unit, asked, *, latency, stall=0.0, hold=0, bad=None, seed=0):
        self.unit, self.asked, self.hold = unit, list(asked), hold
        self.random = random.Random(seed)
        self.stall = stall
        self.memories = [
            PortMemory(
                n,
                getattr(unit, f"port_{n}"),
                ports=unit.ports,
                port_bits=unit.port_bits,
                latency=latency,
                stall=stall,
                seed=seed,
                outstanding=unit.outstanding,
                bad=bad,
            )
            for n in range(unit.ports)
        ]
        self.step = unit.data_bits // 8
        self.bad = bad or {}
        self.times = []

    def _expected(self):
        for address, words in self.asked:
            for n in range(words):
                where = address + n * self.step
                parts = range(where, where + self.step, self.unit.port_bits // 8)
                worst = 0
                for part in parts:
                    worst |= self.bad.get(part, 0)
                yield word_at(where, self.unit.data_bits, self.unit.port_bits), worst, int(n == words - 1)

    async def run(self, ctx, cycles=None):
        wide, expected = self.unit.wide, list(self._expected())
        next_burst, cycle, rest, shown = 0, 0, 0, False
        while len(self.times) < len(expected) if cycles is None else cycle < cycles:
            for memory in self.memories:
                memory.show(ctx)
            if not shown and next_burst < len(self.asked):
                shown = self.random.random() >= self.stall
                if shown:
                    address, words = self.asked[next_burst]
                    ctx.set(wide.araddr, address)
                    ctx.set(wide.arlen, words - 1)
                ctx.set(wide.arvalid, shown)
            if self.hold and not rest and self.random.random() < 1 / self.hold:
                rest = self.hold
            rest -= rest > 0
            ctx.set(wide.rready, not rest and (not self.stall or self.random.random() >= self.stall))
            if ctx.get(wide.rvalid) and ctx.get(wide.rready):
                got = tuple(ctx.get(getattr(wide, name)) for name in ("rdata", "rresp", "rlast"))
                assert got == expected[len(self.times)], len(self.times)
                self.times.append(cycle)
            for memory in self.memories:
                memory.step(ctx)
            if shown and ctx.get(wide.arready):
                shown, next_burst = False, next_burst + 1
            await ctx.tick()
            if not shown:
                ctx.set(wide.arvalid, 0)
            cycle += 1
            assert cycle < 100_000

    def rate(self, skip):
        """Bytes a cycle after the first ``skip`` words."""
        times = self.times[skip:]
        return (len(times) - 1) * self.step / (times[-1] - times[0])


def read(unit, asked, **options):
    reader = Reader(unit, asked, **options)
    simulate(unit, reader.run)
    return reader


def test_two_ports_bring_thirty_of_thirty_two_bytes_a_cycle():
    unit = ReadPorts(ports=2, data_bits=256, port_bits=128)
    reader = read(unit, bursts(120, 8, 32), latency=uneven(200))
    assert reader.rate(160) >= 30
    assert {memory.most for memory in reader.memories} == {16}


@deep
@pytest.mark.parametrize("ports, data_bits, least", [(2, 256, 31.5), (4, 512, 62), (4, 256, 31.9), (2, 128, 15.9)])
@pytest.mark.parametrize("latency", (uneven(200), lambda generator: 200, lambda generator: generator.choice((1, 200))))
def test_ports_keep_their_rate(ports, data_bits, least, latency):
    unit = ReadPorts(ports=ports, data_bits=data_bits, port_bits=128)
    words = burst_words(data_bits, 128)
    reader = read(unit, bursts(800, words, data_bits // 8), latency=latency)
    assert reader.rate(1600 // (16 // words)) >= least


@pytest.mark.parametrize("ports, data_bits, port_bits", [(2, 128, 64), (2, 64, 64), (4, 256, 64)])
def test_words_come_in_order_under_stalls_and_long_holds(ports, data_bits, port_bits):
    unit = ReadPorts(ports=ports, data_bits=data_bits, port_bits=port_bits, outstanding=4)
    words = burst_words(data_bits, port_bits)
    asked = bursts(60, words, data_bits // 8, seed=ports)
    part = port_bits // 8
    bad = {n * part: code for n, code in zip(range(5, 64 * 16, 37), (2, 3) * 99)}
    for options in ({"stall": 0.0}, {"stall": 0.3, "hold": 150}):
        reader = read(unit, asked, latency=uneven(60), bad=bad, **options)
        assert max(memory.most for memory in reader.memories) == 4


def test_a_lone_burst_takes_as_long_as_promised():
    """A word is there 2 cycles after its last part, which follow each other from the latency on."""
    for ports, data_bits in ((2, 128), (2, 256)):
        unit = ReadPorts(ports=ports, data_bits=data_bits, port_bits=128)
        words, parts = burst_words(data_bits, 128), data_bits // 128
        reader = read(unit, [(4096, words)], latency=lambda generator: 9)
        assert reader.times == [9 + parts * (n + 1) - 1 + 2 for n in range(words)]


def test_answers_from_before_a_reset_are_dropped():
    inner = ReadPorts(ports=2, data_bits=128, port_bits=64, outstanding=4)
    m, reset = Module(), Signal()
    m.submodules.unit = ResetInserter(reset)(inner)
    before = Reader(inner, bursts(8, 8, 16), latency=lambda generator: 40)
    after = Reader(inner, bursts(20, 8, 16, seed=1), latency=lambda generator: 3)

    async def process(ctx):
        await before.run(ctx, cycles=30)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        assert all(memory.reads for memory in before.memories)
        for memory in before.memories:
            memory.open = len(memory.reads)
        while any(memory.reads for memory in before.memories):
            for memory in before.memories:
                memory.show(ctx)
                memory.step(ctx)
            assert not ctx.get(inner.wide.rvalid)
            await ctx.tick()
        for memory in before.memories:
            memory.show(ctx)
        await after.run(ctx)

    simulate(m, process)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"ports": 3}, "ports is 3, must be 2 or 4"),
        ({"data_bits": 96}, "data_bits is 96, must be one of 64, 128, 256, 512"),
        ({"data_bits": 512, "port_bits": 64}, "data_bits is 512, must be 1, 2 or 4 times port_bits=64"),
    ],
)
def test_what_cannot_be_made_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ReadPorts(**options)
