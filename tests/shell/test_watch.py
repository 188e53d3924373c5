"""The watchdog's last cycle, the search for deadlocks, and a reset of a machine in which nothing runs."""

import pytest

from gradloom.rtl.machines.images import IMAGES
from gradloom.rtl.shell.sequencer.sequencer import Sequencer
from gradloom.rtl.shell.sequencer.watch import Watch
from gradloom.sim.bench.engine import simulate


def _cycles(inputs, output, *, watchdog=0, length):
    """Cycles in which ``output`` is high, if each of ``inputs`` is high in the cycles given."""
    watch, high = Watch(), []

    async def process(ctx):
        ctx.set(watch.watchdog, watchdog)
        for cycle in range(length):
            for name, cycles in inputs.items():
                ctx.set(getattr(watch, name), cycle in cycles)
            if ctx.get(getattr(watch, output)):
                high.append(cycle)
            await ctx.tick()

    simulate(watch, process)
    return high


@pytest.mark.parametrize("cycles", [1, 2, 3, 10])
def test_the_watchdog_expires_in_the_cycle_after_so_many_without_movement(cycles):
    assert _cycles({"moved": {5}}, "expired", watchdog=cycles, length=60) == [5 + cycles + 1]
    # What moves in the last of them is in time, and what moves behind it is too late.
    assert _cycles({"moved": {5, 5 + cycles}}, "expired", watchdog=cycles, length=60) == [5 + 2 * cycles + 1]
    late = 5 + cycles + 1
    assert _cycles({"moved": {5, late}}, "expired", watchdog=cycles, length=60) == [late, late + cycles + 1]
    # A rewind counts for a movement in the cycle before.
    assert _cycles({"rewind": {5}}, "expired", watchdog=cycles, length=60) == [4 + cycles + 1]


def test_a_watchdog_of_0_never_expires():
    assert _cycles({"moved": {5}, "rewind": {9}}, "expired", length=60) == []


def test_a_deadlock_is_found_after_8_cycles_without_a_break():
    assert _cycles({"stuck": set(range(10, 17))}, "locked", length=60) == []
    assert _cycles({"stuck": set(range(10, 18))}, "locked", length=60) == [18]


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
