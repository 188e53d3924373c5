"""The collector gives each STORE its source's beats, in order, however long the memory or another STORE takes."""
import pytest
from amaranth.sim import Simulator

from gradloom.rtl.config import Config
from gradloom.rtl.machines.collector import Collector, Source
from gradloom.sim.bench.pauses import drain, feed, pauses

CONFIG = Config(rows=5, kernel=2, panels=4, rank=2, classes=4, taps=4, adapter_depth=256, weight_depth=128,
                feature_depth=64, image_depth=256, dense_depth=128, blocks=8, positions=64, width=16)
PORTS = {Source.CONVOLUTION_TAPS: "convolution_taps", Source.DENSE_TAPS: "dense_taps", Source.RAW: "raw",
         Source.HEAD: "head", Source.LOSSES: "losses"}
MANY = Collector.depth + 40


def _play(requests, *, stall, hold):
    """What leaves for ``requests`` of ``(source, arg, beats)``; each port offers the beats that are asked of it."""
    dut = Collector(CONFIG)
    offered = {name: [source << 64 | n for n in range(sum(beats for each, _, beats in requests if each == source))]
               for source, name in PORTS.items()}
    moves = pauses(["o"], PORTS.values(), stall=stall, hold=hold)
    always = pauses(["head_ask"], ["request"])
    found, asked = [], []

    def giver(name):
        async def give(ctx):
            await feed(ctx, getattr(dut, name), offered[name], moves[name])
        return give

    async def ask(ctx):
        payloads = [{"source": source, "arg": arg, "beats": beats} for source, arg, beats in requests]
        await feed(ctx, dut.request, payloads, always["request"])

    async def head(ctx):
        count = sum(source == Source.HEAD for source, *_ in requests)
        asked.extend((await drain(ctx, dut.head_ask, count, always["head_ask"], read=lambda p: p.beats))[0])

    async def words(ctx):
        # A word of one parameter a column tells its address.
        address = 0
        while True:
            ctx.set(dut.words, [address + n for n in range(CONFIG.columns)])
            *_, address = await ctx.tick().sample(dut.dump.address)

    async def take(ctx):
        found.extend((await drain(ctx, dut.o, sum(beats for *_, beats in requests), moves["o"]))[0])

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    for bench in (ask, head, take, *map(giver, PORTS.values())):
        simulator.add_testbench(bench)
    simulator.add_testbench(words, background=True)
    simulator.run()
    assert asked == [beats for source, _, beats in requests if source == Source.HEAD]
    return found


def _expected(requests):
    at = dict.fromkeys(PORTS, 0)
    beats = []
    for source, arg, count in requests:
        if source == Source.LANES:
            words = [sum(arg + word + n << 16 * n for n in range(CONFIG.columns)) for word in range((count + 1) // 2)]
            beats += [half for word in words for half in (word & (1 << 128) - 1, word >> 128)][:count]
        else:
            beats += [source << 64 | at[source] + n for n in range(count)]
            at[source] += count
    return beats


@pytest.mark.parametrize("stall, hold", [(0.0, 0), (0.3, 0), (0.2, 2 * Collector.depth)], ids=str)
def test_no_beat_is_lost_while_another_source_or_the_memory_keeps_it_waiting(stall, hold):
    """The queue of each kind of taps is full before its STORE comes, and again while the output is held."""
    requests = [(Source.CONVOLUTION_TAPS, 0, MANY), (Source.LANES, 3, 7), (Source.RAW, 0, 30), (Source.HEAD, 0, 5),
                (Source.DENSE_TAPS, 0, MANY), (Source.LOSSES, 0, 4), (Source.LANES, 0, 8),
                (Source.CONVOLUTION_TAPS, 0, MANY), (Source.DENSE_TAPS, 0, 20)]
    assert _play(requests, stall=stall, hold=hold) == _expected(requests)
