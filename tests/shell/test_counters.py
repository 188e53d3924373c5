"""Counters of the register map that amounts fill: they stay at their most until the next bell."""

import pytest

from gradloom.rtl.shell.counters import Counters
from gradloom.sim.bench.engine import simulate

MOST = (1 << 32) - 1


def shown(ctx, dut, name):
    return ctx.get(dut.value[name].value)


@pytest.mark.parametrize("name, amount", [("CACHE_HITS", "hits"), ("CACHE_MISSES", "misses")])
def test_lookups_fill_a_counter_and_the_bell_empties_it(name, amount):
    dut = Counters(phases=2)

    async def process(ctx):
        async def count(value):
            ctx.set(dut.looked_up, 1)
            ctx.set(getattr(dut, amount), value)
            await ctx.tick()
            ctx.set(dut.looked_up, 0)
            await ctx.tick().repeat(3)
            return shown(ctx, dut, name)

        assert await count(MOST - 1) == MOST - 1
        assert await count(1) == MOST
        assert await count(1) == MOST  # 2**32, which has no room
        assert await count(5) == MOST
        assert [shown(ctx, dut, other) for other in ("CACHE_HITS", "CACHE_MISSES")].count(0) == 1
        # What comes with the bell is of the program before it.
        ctx.set(dut.clear, 1)
        ctx.set(dut.looked_up, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        ctx.set(dut.looked_up, 0)
        await ctx.tick().repeat(3)
        assert shown(ctx, dut, name) == 0
        assert await count(7) == 7

    simulate(dut, process)


@pytest.mark.parametrize("times", [5, (1 << 16) + 2])
def test_a_norm_has_two_registers_and_stays_at_their_most(times):
    dut = Counters(phases=2)
    most = (1 << len(dut.health.norm)) - 1

    async def process(ctx):
        ctx.set(dut.health.norm, most)
        await ctx.tick().repeat(times)
        ctx.set(dut.health.norm, 0)
        await ctx.tick().repeat(3)
        low, high = (shown(ctx, dut, f"GRADIENT_NORM_{part}") for part in ("LO", "HI"))
        assert (high << 32) + low == min(times * most, (1 << 64) - 1)

    simulate(dut, process)


def test_each_event_has_its_counter():
    dut = Counters(phases=2)
    events = {
        "finished": "COMMANDS_DONE",
        "dropped": "COMMANDS_DROPPED",
        "read_beat": "READ_BEATS",
        "write_beat": "WRITE_BEATS",
    }

    async def process(ctx):
        for times, event in enumerate(events, 1):
            ctx.set(getattr(dut, event), 1)
            await ctx.tick().repeat(times)
            ctx.set(getattr(dut, event), 0)
        ctx.set(dut.counting, 1)
        await ctx.tick().repeat(9)
        ctx.set(dut.counting, 0)
        for times, event in enumerate(("saturated", "underflowed"), 5):
            ctx.set(getattr(dut.health, event), 1)
            await ctx.tick().repeat(times)
            ctx.set(getattr(dut.health, event), 0)
        await ctx.tick().repeat(3)
        assert [shown(ctx, dut, name) for name in events.values()] == [1, 2, 3, 4]
        assert [shown(ctx, dut, name) for name in ("SATURATED", "UNDERFLOWED")] == [5, 6]
        assert [shown(ctx, dut, name) for name in ("CYCLES_LO", "CYCLES_HI")] == [9, 0]

    simulate(dut, process)
