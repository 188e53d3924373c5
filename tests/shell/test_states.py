"""The sequencer alone: a reset of a machine in which nothing runs."""

import pytest

from gradloom.rtl.machines.images import IMAGES
from gradloom.rtl.shell.sequencer.sequencer import Sequencer
from gradloom.sim.bench.engine import simulate


@pytest.mark.parametrize("idle_from", [0, 4, 20])
def test_a_reset_takes_4_cycles_and_ends_within_4_of_an_idle_bus(idle_from):
    """Engines and bus are reset meanwhile, and the machine is busy."""
    sequencer, high = Sequencer(IMAGES, data_bits=128, slots=64, depth=4), []

    async def process(ctx):
        for cycle in range(-1, 40):
            ctx.set(sequencer.reset, cycle == -1)
            ctx.set(sequencer.bus_idle, cycle >= idle_from)
            told = [ctx.get(each) for each in (sequencer.abort, sequencer.bus_abort, sequencer.busy)]
            assert len({*told}) == 1
            high.extend([cycle] * told[0])
            await ctx.tick()

    simulate(sequencer, process)
    least = max(4, idle_from + 1)
    assert high == list(range(len(high))) and least <= len(high) < least + 4 and (idle_from or len(high) == 4)
