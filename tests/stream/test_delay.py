"""Delay lines, and what a reset does to them."""

import pytest
from amaranth.hdl import Module, ResetSignal, Signal

from gradloom.rtl.stream.delay import delay, held, registered
from gradloom.sim.bench.engine import simulate


@pytest.mark.parametrize("cycles", [0, 1, 3])
def test_data_passes_a_reset_and_control_does_not(cycles):
    m = Module()
    value, enable, reset = Signal(8), Signal(), Signal()
    m.d.comb += ResetSignal().eq(reset)
    line, control = delay(m, value, cycles), delay(m, value, cycles, reset_less=False)
    once, kept = registered(m, value), held(m, value, enable)
    # Index 0 is the word before the first cycle; the reset is asserted in cycle 5.
    words = [0, *range(11, 31)]

    async def process(ctx):
        for cycle, word in enumerate(words[1:], start=1):
            ctx.set(value, word)
            ctx.set(reset, int(cycle == 5))
            ctx.set(enable, int(cycle % 4 == 1))
            if cycle > cycles:
                assert ctx.get(line) == words[cycle - cycles]
                assert ctx.get(control) == (0 if cycle > 5 >= cycle - cycles else words[cycle - cycles])
            if cycle > 1:
                assert ctx.get(once) == words[cycle - 1]
                assert ctx.get(kept) == words[(cycle - 2) // 4 * 4 + 1]
            await ctx.tick()

    simulate(m, process)


def test_a_register_has_the_shape_that_is_asked_for():
    m = Module()
    assert len(registered(m, Signal(8))) == 8 and len(registered(m, Signal(8), 3)) == 3
