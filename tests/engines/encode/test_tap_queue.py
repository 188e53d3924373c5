"""The queue behind an encoder loses no beat while STORE serves another port, or the memory is slow."""
import pytest
from amaranth.sim import Simulator

from gradloom.rtl.engines.ports import TapQueue
from gradloom.sim.bench.pauses import drain, feed, pauses

MANY = 3 * TapQueue.depth


@pytest.mark.parametrize("stall, hold", [(0.0, 0), (0.3, 0), (0.2, 2 * TapQueue.depth)], ids=str)
def test_no_beat_is_lost(stall, hold):
    dut = TapQueue()
    moves = pauses(["o"], ["i"], stall=stall, hold=hold)
    found = []

    async def give(ctx):
        await feed(ctx, dut.i, range(1, MANY + 1), moves["i"])

    async def take(ctx):
        found.extend((await drain(ctx, dut.o, MANY, moves["o"]))[0])

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(give)
    simulator.add_testbench(take)
    simulator.run()
    assert found == list(range(1, MANY + 1))


def test_room_for_as_many_beats_as_it_says():
    dut = TapQueue()
    taken = []

    async def give(ctx):
        ctx.set(dut.i.valid, 1)
        for _ in range(2 * TapQueue.depth):
            *_, ready = await ctx.tick().sample(dut.i.ready)
            taken.append(ready)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(give)
    simulator.run()
    # Room is known a cycle late.
    assert TapQueue.depth <= sum(taken) <= TapQueue.depth + 2
