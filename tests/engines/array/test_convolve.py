"""Convolutions: what has no room in a row's codes, or no place in a memory of results, is told."""

import pytest

from gradloom.rtl.engines.array.control.convolve import ConvolveControl
from gradloom.rtl.engines.array.feet import Finish
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.sim.bench.engine import simulate

CONFIG = ImageConfig(
    rows=9,
    panels=4,
    rank=2,
    classes=4,
    taps=6,
    adapter_depth=128,
    weight_depth=1024,
    bias_depth=16,
    feature_depth=128,
    image_depth=512,
    dense_depth=256,
    blocks=4,
    kernel=3,
    width=16,
    positions=128,
)


@pytest.mark.parametrize("encode, channels, astray", [(1, 4, 0), (1, 5, 1), (0, 5, 0)])
def test_a_tap_larger_than_a_row_goes_astray(encode, channels, astray):
    dut = ConvolveControl(CONFIG)
    fields = (
        {"height": 8, "width": 8, "channels": channels, "encode": encode, "out_height": 8, "out_width": 8}
        | {f"{name}_{side}": 3 if name == "kernel" else 1 for name in ("kernel", "stride") for side in "hw"}
        | {f"pad_{side}": 1 for side in ("top", "left", "bottom", "right")}
    )

    async def bench(ctx):
        ctx.set(dut.positions, 64)
        ctx.set(dut.tap.ready, 1)
        for name, value in fields.items():
            ctx.set(dut.i.p[name], value)
        ctx.set(dut.i.valid, 1)
        await ctx.tick()
        ctx.set(dut.i.valid, 0)
        cycles = 0
        while not ctx.get(dut.idle):
            await ctx.tick()
            cycles += 1
            assert cycles < 2000
        assert ctx.get(dut.astray) == astray

    simulate(dut, bench)


@pytest.mark.parametrize(
    "run, good",
    [
        ({"target": CONFIG.feature_depth - 16}, True),
        ({"target": CONFIG.feature_depth - 15}, False),
        ({"target": CONFIG.dense_depth - 64, "to_dense": 1, "stride": 4, "final": 3}, True),
        ({"target": CONFIG.dense_depth - 63, "to_dense": 1, "stride": 4, "final": 3}, False),
    ],
    ids=str,
)
def test_results_beyond_the_end_go_astray_and_are_never_done(run, good):
    dut = Finish(CONFIG)

    async def bench(ctx):
        for name, value in ({"height": 4, "width": 4, "pool": 1} | run).items():
            ctx.set(dut.run.p[name], value)
        ctx.set(dut.run.valid, 1)
        await ctx.tick()
        ctx.set(dut.run.valid, 0)
        await ctx.tick().repeat(8)
        ctx.set(dut.sums.valid, 1)
        await ctx.tick().repeat(16)
        ctx.set(dut.sums.valid, 0)
        done = 0
        for _ in range(120):
            done += ctx.get(dut.done)
            await ctx.tick()
        assert (done, ctx.get(dut.astray)) == (good, not good)

    simulate(dut, bench)
