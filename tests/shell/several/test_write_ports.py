"""Several ports that write as one: data, order of responses, errors and rates under random latencies and stalls."""

import random

import pytest
from amaranth.hdl import Module, ResetInserter, Signal

from gradloom.rtl.shell.bus.read_ports import burst_words
from gradloom.rtl.shell.bus.write_ports import WritePorts
from gradloom.sim.bench.engine import simulate

from ...deep import deep
from .memory import PortMemory, part_at, word_at
from .test_read_ports import bursts, uneven


class Writer:
    """Writes bursts at ``wide``, data at once or after its address, and checks responses and what memory holds."""

    def __init__(self, unit, asked, *, latency, stall=0.0, bad=None, seed=0):
        self.unit, self.asked, self.stall, self.bad = unit, list(asked), stall, bad or {}
        self.random = random.Random(seed)
        self.step = unit.data_bits // 8
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
        self.answers, self.times = [], []

    def _goes(self):
        return not self.stall or self.random.random() >= self.stall

    async def run(self, ctx, cycles=None):
        wide = self.unit.wide
        words = [(address + n * self.step, int(n == words - 1)) for address, words in self.asked for n in range(words)]
        bursts_sent = words_sent = cycle = 0
        shown, data = False, False
        ctx.set(wide.bready, 1)
        while len(self.answers) < len(self.asked) if cycles is None else cycle < cycles:
            for memory in self.memories:
                memory.show_writes(ctx)
            if not shown and bursts_sent < len(self.asked):
                shown = self._goes()
                address, length = self.asked[bursts_sent]
                ctx.set(wide.awaddr, address)
                ctx.set(wide.awlen, length - 1)
            ctx.set(wide.awvalid, shown)
            if not data and words_sent < len(words):
                data = self._goes()
                address, last = words[words_sent]
                ctx.set(wide.wdata, word_at(address, self.unit.data_bits, self.unit.port_bits))
                ctx.set(wide.wlast, last)
            ctx.set(wide.wvalid, data)
            if ctx.get(wide.bvalid):
                self.answers.append(ctx.get(wide.bresp))
            for memory in self.memories:
                memory.step_writes(ctx)
            if shown and ctx.get(wide.awready):
                shown, bursts_sent = False, bursts_sent + 1
            if data and ctx.get(wide.wready):
                data, words_sent = False, words_sent + 1
                self.times.append(cycle)
            await ctx.tick()
            cycle += 1
            assert cycle < 100_000
        ctx.set(wide.awvalid, 0)
        ctx.set(wide.wvalid, 0)

    def check(self):
        part = self.unit.port_bits // 8
        parts = [range(address, address + words * self.step, part) for address, words in self.asked]
        assert self.answers == [max(self.bad.get(where, 0) for where in each) for each in parts]
        for number, memory in enumerate(self.memories):
            assert memory.written == {
                where: part_at(where, self.unit.port_bits)
                for each in parts
                for where in each
                if where // (16 * part) % self.unit.ports == number
            }

    def rate(self, skip):
        times = self.times[skip:]
        return (len(times) - 1) * self.step / (times[-1] - times[0])


def write(unit, asked, **options):
    writer = Writer(unit, asked, **options)
    simulate(unit, writer.run)
    writer.check()
    return writer


def test_two_ports_take_thirty_of_thirty_two_bytes_a_cycle():
    writer = write(WritePorts(ports=2, data_bits=256, port_bits=128), bursts(100, 8, 32), latency=uneven(200))
    assert writer.rate(160) >= 30
    assert all(memory.most <= 16 for memory in writer.memories)


@deep
@pytest.mark.parametrize("ports, data_bits, least", [(2, 256, 31.5), (4, 512, 62), (2, 128, 15.9)])
def test_ports_keep_their_rate(ports, data_bits, least):
    words = burst_words(data_bits, 128)
    unit = WritePorts(ports=ports, data_bits=data_bits, port_bits=128)
    assert write(unit, bursts(800, words, data_bits // 8), latency=uneven(200)).rate(1600 // (16 // words)) >= least


@pytest.mark.parametrize("ports, data_bits, port_bits", [(2, 128, 64), (2, 64, 64), (4, 256, 64)])
def test_words_and_responses_keep_their_order_under_stalls(ports, data_bits, port_bits):
    unit = WritePorts(ports=ports, data_bits=data_bits, port_bits=port_bits, outstanding=4)
    asked = bursts(60, burst_words(data_bits, port_bits), data_bits // 8, seed=ports)
    bad = {n * port_bits // 8: code for n, code in zip(range(5, 64 * 16, 37), (2, 3) * 99)}
    for stall in (0.0, 0.4):
        writer = write(unit, asked, latency=uneven(90), bad=bad, stall=stall)
        assert max(memory.most for memory in writer.memories) == 4


def test_responses_from_before_a_reset_are_dropped():
    inner = WritePorts(ports=2, data_bits=128, port_bits=64, outstanding=4)
    m, reset = Module(), Signal()
    m.submodules.unit = ResetInserter(reset)(inner)
    before = Writer(inner, bursts(4, 8, 16), latency=lambda generator: 80)
    after = Writer(inner, bursts(20, 8, 16, seed=1), latency=lambda generator: 3)

    async def process(ctx):
        await before.run(ctx, cycles=60)
        assert all(memory.answers for memory in before.memories)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        while any(memory.answers for memory in before.memories):
            for memory in before.memories:
                memory.show_writes(ctx)
                memory.step_writes(ctx)
            assert not ctx.get(inner.wide.bvalid)
            await ctx.tick()
        for memory in before.memories:
            memory.show_writes(ctx)
        await after.run(ctx)
        after.check()

    simulate(m, process)


def test_what_cannot_be_made_is_refused():
    with pytest.raises(ValueError, match="ports is 8, must be 2 or 4"):
        WritePorts(ports=8)
