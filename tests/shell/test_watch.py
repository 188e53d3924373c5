"""The watchdog's last cycle, and the search for deadlocks."""

import pytest

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
