"""Drives a stream unit with random stalls and long holds on both sides."""
import pytest
from amaranth.sim import Simulator

from gradloom.sim.bench.pauses import drain, feed, pauses


@pytest.fixture
def run_stream():
    """``run(unit, payloads, count, read, stall, hold, setup)`` -> ``(payloads out, cycles)``.

    ``stall`` is the share of cycles in which a side pauses, or one for each side; ``hold`` the length of long holds.
    """
    def run(unit, payloads, count, read, *, stall=0.3, hold=0, seed=1, setup=None):
        result = {}
        stall_in, stall_out = stall if isinstance(stall, tuple) else (stall, stall)
        giving = pauses(["o"], ["i"], stall=stall_in, hold=hold, seed=seed)["i"]
        taking = pauses(["o"], ["i"], stall=stall_out, hold=hold, seed=seed)["o"]

        async def source(ctx):
            if setup is not None:
                await setup(ctx)
            await feed(ctx, unit.i, payloads, giving)

        async def sink(ctx):
            result["out"] = await drain(ctx, unit.o, count, taking, read=read)

        sim = Simulator(unit)
        sim.add_clock(1e-6)
        sim.add_testbench(source)
        sim.add_testbench(sink)
        sim.run()
        return result["out"]
    return run
