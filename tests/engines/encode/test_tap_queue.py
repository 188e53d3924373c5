"""The queue behind an encoder loses no beat while STORE serves another port, or the memory is slow."""

import pytest

from gradloom.rtl.engines.ports import TapQueue
from gradloom.sim.bench.engine import BenchLoad, BenchStore, EngineBench, pressures, simulate


@pytest.mark.parametrize("pressure", pressures(2 * TapQueue.depth), ids=str)
def test_no_beat_is_lost(pressure):
    beats = list(range(1, 3 * TapQueue.depth + 1))
    EngineBench(component=TapQueue()).check(
        BenchLoad("i", beats), BenchStore("o", len(beats)), words={"o": beats}, **pressure
    )


def test_room_for_as_many_beats_as_it_says():
    dut = TapQueue()
    taken = []

    async def give(ctx):
        ctx.set(dut.i.valid, 1)
        for _ in range(2 * TapQueue.depth):
            *_, ready = await ctx.tick().sample(dut.i.ready)
            taken.append(ready)

    simulate(dut, give)
    # Room is known a cycle late.
    assert TapQueue.depth <= sum(taken) <= TapQueue.depth + 2
