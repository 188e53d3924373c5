"""The gradient engine at the ends of its operands."""
from amaranth.sim import Simulator

from gradloom.rtl.config import LinearConfig
from gradloom.rtl.formats.linear import ACTIVATION, MASTER
from gradloom.rtl.linear.gradient import GradientEngine, GradientOperands


def test_sums_of_nothing_but_least_words_saturate_and_do_not_wrap():
    """128 products of the two least words are 2^47, which takes 49 bits."""
    tokens = 128
    config = LinearConfig(edge=16, columns=2, outputs=2, dots=1, rank=2, tokens=tokens, features=64, head=64)
    dut = GradientEngine(config)
    least = -(1 << ACTIVATION.width - 1)
    beat = sum((least & (1 << MASTER.width) - 1) << n * MASTER.width for n in range(config.beat_words))
    got = []

    async def bench(ctx):
        ctx.set(dut.o.ready, 1)
        for token in range(tokens):
            for rank in range(2):
                ctx.set(dut.hidden, {"valid": 1, "rank": rank, "slot": 0, "token": token, "value": least})
                await ctx.tick()
        ctx.set(dut.hidden.valid, 0)
        ctx.set(dut.engine.command.valid, 1)
        ctx.set(dut.engine.command.payload.args, GradientOperands.const(
            {"tiles": 1, "tokens": tokens, "rank": 2, "slot": 0, "shift": ACTIVATION.width}).as_value().value)
        await ctx.tick()
        ctx.set(dut.engine.command.valid, 0)
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.i.p, beat)
        for _ in range(tokens * config.edge // config.beat_words + 200):
            if ctx.get(dut.o.valid):
                got.append(ctx.get(dut.o.p))
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    most = (1 << ACTIVATION.width - 1) - 1
    assert got == [sum(most << n * MASTER.width for n in range(config.beat_words))] * 16
