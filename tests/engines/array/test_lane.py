"""An adapter lane alone: words that are fed, learnt and written are those of the reference."""

# amaranth: UnusedElaboratable=no
import numpy as np
import pytest

from gradloom.rtl.engines.array.operands.lane import AdapterLanes
from gradloom.rtl.formats.images import PARAMETER
from gradloom.sim.bench.engine import simulate
from gradloom.sim.reference.optimizer import optimize

DEPTH = 32


async def write(ctx, dut, words, at=0):
    for n, word in enumerate(words):
        ctx.set(dut.write, {"valid": 1, "address": at + n, "data": [int(word)]})
        await ctx.tick()
    ctx.set(dut.write.valid, 0)


async def fetch(ctx, dut, addresses):
    """One address a cycle; each word comes ``read_latency`` cycles after its own."""
    got = []
    for n in range(len(addresses) + dut.read_latency):
        if n >= dut.read_latency:
            got.append(ctx.get(dut.w[0]))
        ctx.set(dut.read.valid, n < len(addresses))
        if n < len(addresses):
            ctx.set(dut.read.address, int(addresses[n]))
        await ctx.tick()
    return got


@pytest.mark.parametrize("q", range(4))
def test_a_lane_learns_what_the_reference_learns(q):
    rng = np.random.default_rng(q)
    dut = AdapterLanes(depth=DEPTH, panels=1)
    w = rng.integers(PARAMETER.lo, PARAMETER.hi + 1, DEPTH)
    v = np.zeros(DEPTH, np.int64)

    async def script(ctx):
        nonlocal w, v
        await write(ctx, dut, w)
        order = rng.permutation(DEPTH)
        assert await fetch(ctx, dut, order) == w[order].tolist()
        # A first pass forgets what velocity there was; microbatches keep it, steps decay it.
        for v_mode, apply in ((0, 0), (1, 1), (2, 1), (2, 0), (1, 1), (0, 1)):
            mu = int(rng.integers(0, 1 << 16))
            start, stop = (0, DEPTH) if v_mode == 0 else sorted(rng.choice(DEPTH + 1, 2, replace=False).tolist())
            g = rng.integers(-1 << 47, 1 << 47, stop - start) >> rng.choice([0, 8, 16, 24, 40], stop - start)
            ctx.set(dut.config, {"q": q, "hold": 1 - apply, "factor": (0, 1 << 16, mu)[v_mode]})
            pending, healths = list(range(start, stop)), []
            rest = dut.latency
            while rest:
                # Sums come with gaps.
                now = bool(pending) and rng.random() < 0.8
                ctx.set(dut.gradient.valid, now)
                if now:
                    address = pending.pop(0)
                    ctx.set(dut.gradient.address, address)
                    ctx.set(dut.g[0], int(g[address - start]))
                elif not pending:
                    rest -= 1
                await ctx.tick()
                healths.append((ctx.get(dut.saturated), ctx.get(dut.underflowed), ctx.get(dut.norm_o)))
            want = optimize(w[start:stop], v[start:stop], g, q=q, offset=9, v_mode=v_mode, apply=apply, mu=mu)
            assert sum(h[0] for h in healths) == want.saturated.sum()
            assert sum(h[1] for h in healths) == want.underflowed.sum()
            assert [h[2] for h in healths if h[2]] == [m for m in want.magnitude.tolist() if m]
            w, v = w.copy(), v.copy()
            w[start:stop], v[start:stop] = want.w, want.v
            assert await fetch(ctx, dut, range(DEPTH)) == w.tolist()

    simulate(dut, script)
    assert v.any()


def test_a_learnt_word_may_be_read_after_the_latency_and_not_before():
    dut = AdapterLanes(depth=DEPTH, panels=1)
    old, g = 1000, 1 << 30
    new = int(optimize([old], [0], [g], q=0, offset=9, v_mode=0, apply=True).w[0])
    assert new != old

    async def script(ctx):
        ctx.set(dut.config, {"q": 0, "hold": 0, "factor": 0})
        for wait, word in ((dut.latency - 1, old), (dut.latency, new)):
            await write(ctx, dut, [old], at=5)
            ctx.set(dut.gradient, {"valid": 1, "address": 5})
            ctx.set(dut.g[0], g)
            await ctx.tick()
            ctx.set(dut.gradient.valid, 0)
            await ctx.tick().repeat(wait - 1)
            assert await fetch(ctx, dut, [5]) == [word]
            await ctx.tick().repeat(2)

    simulate(dut, script)


def test_learning_leaves_other_words_alone():
    rng = np.random.default_rng(9)
    dut = AdapterLanes(depth=DEPTH, panels=1)
    w = rng.integers(PARAMETER.lo, PARAMETER.hi + 1, DEPTH)

    async def script(ctx):
        ctx.set(dut.config, {"q": 3, "hold": 0, "factor": 0})
        await write(ctx, dut, w)
        ctx.set(dut.gradient, {"valid": 1, "address": 7})
        ctx.set(dut.g[0], -1 << 47)
        await ctx.tick()
        ctx.set(dut.gradient.valid, 0)
        await ctx.tick().repeat(dut.latency)
        got = await fetch(ctx, dut, range(DEPTH))
        assert [n for n in range(DEPTH) if got[n] != w[n]] == [7]

    simulate(dut, script)
