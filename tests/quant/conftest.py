"""Drives a stream unit with random stalls on both sides."""
import random

import pytest
from amaranth.sim import Simulator


async def feed(ctx, port, payloads, stall, rng):
    """Gives each payload once. A raised ``valid`` stays until taken, as the stream rules want."""
    for payload in payloads:
        while rng.random() < stall:
            await ctx.tick()
        ctx.set(port.payload, payload)
        ctx.set(port.valid, 1)
        await ctx.tick().until(port.ready)
        ctx.set(port.valid, 0)


async def drain(ctx, port, count, stall, rng, read):
    """``count`` payloads as ``read(payload)``, and the cycle in which each was taken."""
    got, at, cycle = [], [], 0
    while len(got) < count:
        ready = rng.random() >= stall
        ctx.set(port.ready, ready)
        _, _, valid, payload = await ctx.tick().sample(port.valid, port.payload)
        if valid and ready:
            got.append(read(payload))
            at.append(cycle)
        cycle += 1
        assert cycle - (at[-1] if at else 0) < 5000, f"{len(got)} of {count} payloads, then silence"
    ctx.set(port.ready, 0)
    return got, at


@pytest.fixture
def run_stream():
    """``run(unit, payloads, count, read, stall, setup)`` -> ``(payloads out, cycles)``.

    ``stall`` is the share of cycles in which a side pauses, or one for each side.
    """
    def run(unit, payloads, count, read, *, stall=0.3, seed=1, setup=None):
        result = {}
        stall_in, stall_out = stall if isinstance(stall, tuple) else (stall, stall)

        async def source(ctx):
            if setup is not None:
                await setup(ctx)
            await feed(ctx, unit.i, payloads, stall_in, random.Random(seed))

        async def sink(ctx):
            result["out"] = await drain(ctx, unit.o, count, stall_out, random.Random(seed + 1), read)

        sim = Simulator(unit)
        sim.add_clock(1e-6)
        sim.add_testbench(source)
        sim.add_testbench(sink)
        sim.run()
        return result["out"]
    return run
