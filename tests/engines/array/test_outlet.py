"""Adapter words leave in order, two beats a word, however long the memory takes; those beyond the last are refused."""

import pytest

from gradloom.rtl.engines.array.outlet import LaneOutlet
from gradloom.sim.bench.engine import simulate
from gradloom.sim.bench.pauses import drain, pauses

from .small import CONFIG

REQUESTS = [(3, 7), (0, 8), (255, 2), (17, 1), (17, 40)]


@pytest.mark.parametrize("stall, hold", [(0.0, 0), (0.3, 0), (0.2, 50)], ids=str)
def test_words_leave_as_beats(stall, hold):
    dut = LaneOutlet(CONFIG)
    moves = pauses(["beats"], [], stall=stall, hold=hold)["beats"]
    found = []

    async def ask(ctx):
        for arg, beats in REQUESTS:
            ctx.set(dut.port.request.p, {"arg": arg, "beats": beats})
            ctx.set(dut.port.request.valid, 1)
            assert ctx.get(dut.port.request.ready)
            await ctx.tick()
            ctx.set(dut.port.request.valid, 0)
            found.append((await drain(ctx, dut.port.beats, beats, moves))[0])
            # Nothing more is read than was asked for.
            for _ in range(12):
                *_, reads, offers = await ctx.tick().sample(dut.dump.valid, dut.port.beats.valid)
                assert not reads and not offers

    async def words(ctx):
        # A word of one parameter a column tells its address.
        address = 0
        while True:
            ctx.set(dut.words, [address + n for n in range(CONFIG.columns)])
            *_, address = await ctx.tick().sample(dut.dump.address)

    simulate(dut, ask, background=[words])
    expected = []
    for arg, count in REQUESTS:
        values = [sum(arg + at + n << 16 * n for n in range(CONFIG.columns)) for at in range((count + 1) // 2)]
        expected.append([half for word in values for half in (word & (1 << 128) - 1, word >> 128)][:count])
    assert found == expected


def test_words_beyond_the_last_are_refused():
    dut = LaneOutlet(CONFIG)
    cases = {(0, 512): 0, (255, 2): 0, (255, 3): 1, (256, 1): 1, (0, 513): 1, (1 << 31, 1): 1, (0, 1 << 23): 1}

    async def judge(ctx):
        for (arg, beats), refused in cases.items():
            ctx.set(dut.port.request.p, {"arg": arg, "beats": beats})
            await ctx.tick()
            assert ctx.get(dut.port.refuse) == refused, (arg, beats)

    simulate(dut, judge)
