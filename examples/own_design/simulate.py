"""Sends two beats of codes through the meter in Amaranth's simulator."""

from amaranth.sim import Simulator
from range_meter import RangeMeter

meter = RangeMeter()


async def bench(ctx):
    # Codes of -1.0, 0.0 and 1.0 are 0, 7 and 15; the scale is in units of 2**-8.
    for codes, scale in (([0, 7, 7, 7], 128), ([7, 7, 15, 7], 512)):
        ctx.set(meter.codes.payload, {"codes": codes, "scale": scale, "last": 0})
        ctx.set(meter.codes.valid, 1)
        await ctx.tick().until(meter.codes.ready)
    ctx.set(meter.codes.valid, 0)
    await ctx.tick().repeat(meter._decoder.latency + 1)
    print(f"weights from {ctx.get(meter.low) / 1024} to {ctx.get(meter.high) / 1024}")


simulator = Simulator(meter)
simulator.add_clock(1e-8)
simulator.add_testbench(bench)
simulator.run()
