"""The gradient engine alone: RTL equals the reference, at the ends of its operands too."""
import numpy as np
import pytest
from amaranth.sim import Simulator

from gradloom.rtl.engines.gradient.commands import GradientOperands
from gradloom.rtl.engines.gradient.engine import GradientEngine
from gradloom.rtl.formats.linear import ACTIVATION, MASTER
from gradloom.rtl.machines.configs import LanguageConfig
from gradloom.sim.bench.pauses import drain, feed, pauses
from gradloom.sim.reference.gradient import gradient


def test_sums_of_nothing_but_least_words_saturate_and_do_not_wrap():
    """128 products of the two least words are 2^47, which takes 49 bits."""
    tokens = 128
    config = LanguageConfig(edge=16, columns=2, outputs=2, dots=1, rank=2, tokens=tokens, features=64, head=64)
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


@pytest.mark.parametrize("stall, hold", [(0.0, 0), (0.3, 200)], ids=str)
def test_sums_are_those_of_the_reference(stall, hold):
    """While its output is held, a tile has more results than the queue behind the engine has room for."""
    tokens, tiles, rank, shift = 5, 4, 4, 20
    config = LanguageConfig(edge=16, columns=4, outputs=2, dots=1, rank=rank, tokens=8, features=256, head=16)
    dut = GradientEngine(config)
    rng = np.random.default_rng(3)
    h = rng.integers(ACTIVATION.lo, ACTIVATION.hi + 1, (tokens, rank))
    x = rng.integers(ACTIVATION.lo, ACTIVATION.hi + 1, (tokens, tiles, config.edge))
    words, _ = gradient(x.reshape(tokens, -1), h, shift=shift)

    def beats(tensor):
        rows = (tensor & (1 << MASTER.width) - 1).reshape(-1, config.beat_words)
        return [sum(int(word) << n * MASTER.width for n, word in enumerate(row)) for row in rows]

    operands, expected = beats(x.swapaxes(0, 1)), beats(words.reshape(rank, tiles, -1).swapaxes(0, 1))
    moves = pauses(["o"], ["i"], stall=stall, hold=hold)
    found = []

    async def give(ctx):
        for token in range(tokens):
            for index in range(rank):
                ctx.set(dut.hidden, {"valid": 1, "rank": index, "slot": 0, "token": token,
                                     "value": int(h[token, index])})
                await ctx.tick()
        ctx.set(dut.hidden.valid, 0)
        ctx.set(dut.engine.command.valid, 1)
        ctx.set(dut.engine.command.payload.args, GradientOperands.const(
            {"tiles": tiles, "tokens": tokens, "rank": rank, "slot": 0, "shift": shift}).as_value().value)
        await ctx.tick()
        ctx.set(dut.engine.command.valid, 0)
        await feed(ctx, dut.i, operands, moves["i"])

    async def take(ctx):
        found.extend((await drain(ctx, dut.o, len(expected), moves["o"]))[0])

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(give)
    simulator.add_testbench(take)
    simulator.run()
    assert found == expected
