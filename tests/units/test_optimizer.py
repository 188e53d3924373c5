"""The optimiser: RTL equals the reference; the reference is within half a step of SGD."""

import gc
import warnings

import numpy as np
import pytest

from gradloom.rtl.formats.fixed import Rounding
from gradloom.rtl.formats.images import PARAMETER, VELOCITY
from gradloom.rtl.units.optimizer import OptimizerLane, OptimizerStep, VelocityMode
from gradloom.sim.bench.engine import BenchLoad, BenchStore, EngineBench, simulate
from gradloom.sim.reference.optimizer import Noise, optimize

FIELDS = ("w", "v", "saturated", "underflowed", "magnitude")


def words(rng, shape):
    """Mostly ordinary words, with extremes, ties and zeros among them."""
    w = rng.integers(PARAMETER.lo, PARAMETER.hi + 1, shape) >> rng.choice([0, 4], shape)
    v = rng.integers(VELOCITY.lo, VELOCITY.hi + 1, shape) >> rng.choice([0, 8, 16], shape)
    g = rng.integers(-(1 << 47), 1 << 47, shape) >> rng.choice([0, 10, 20, 30, 40], shape)
    for x, edges in (
        (w, [PARAMETER.lo, PARAMETER.hi, 0, 1]),
        (v, [VELOCITY.lo, VELOCITY.hi, 0, 1024, 3072]),
        (g, [-(1 << 47), (1 << 47) - 1, 0, 1, -1, 512, -512, 1 << 16, 3 << 16]),
    ):
        pick = rng.random(shape) < 0.3
        x[pick] = rng.choice(edges, shape)[pick]
    return w, v, g


def configure(ctx, dut, q, v_mode, apply, mu):
    for field, value in (("q", q), ("v_mode", v_mode), ("apply", apply), ("mu", mu)):
        ctx.set(getattr(dut.config, field), int(value))


@pytest.mark.parametrize("offset", [9, 16])
@pytest.mark.parametrize("rounding", list(Rounding))
def test_lane_is_the_reference_after_its_latency(offset, rounding):
    rng = np.random.default_rng(offset)
    dut = OptimizerLane(offset=offset, rounding=rounding, seed=12345)
    noise = Noise(12345) if rounding is Rounding.STOCHASTIC else None
    cases = [(q, mode, apply, mu) for q in range(4) for mode in range(3) for apply, mu in ((1, 58982), (0, 65535))]

    async def bench(ctx):
        for q, mode, apply, mu in cases:
            ctx.set(dut.config, {"q": q, "hold": 1 - apply, "factor": (0, 1 << 16, mu)[mode]})
            w, v, g = words(rng, 40)
            ref = optimize(w, v, g, q=q, offset=offset, v_mode=mode, apply=apply, mu=mu, rounding=rounding, noise=noise)
            got = {field: [] for field in FIELDS}
            before = 0
            for n in range(40 + dut.latency):
                ctx.set(dut.i.valid, n < 40)
                if n < 40:
                    ctx.set(dut.i.v, int(v[n]))
                    ctx.set(dut.i.g, int(g[n]))
                if 0 <= n - dut.w_wait < 40:
                    ctx.set(dut.w, int(w[n - dut.w_wait]))
                assert ctx.get(dut.o.valid) == (n >= dut.latency)
                assert ctx.get(dut.velocity.valid) == (0 <= n - dut.velocity_latency < 40)
                if n >= dut.latency:
                    for field in ("w", "saturated", "underflowed"):
                        got[field].append(ctx.get(getattr(dut.o, field)))
                if ctx.get(dut.velocity.valid):
                    got["v"].append(ctx.get(dut.velocity.v))
                if dut.norm_latency <= n < 40 + dut.norm_latency:
                    got["magnitude"].append(ctx.get(dut.norm_o) - before)
                before = int(rng.integers(1 << 28))
                ctx.set(dut.norm_i, before)
                await ctx.tick()
            for field in FIELDS:
                np.testing.assert_array_equal(np.array(got[field]), getattr(ref, field), f"{field} {q, mode}")

    simulate(dut, bench)


@pytest.mark.parametrize("lanes, stalls", [(1, 0.0), (3, 0.5)])
def test_step_keeps_every_word_in_order_under_stalls(lanes, stalls):
    rng = np.random.default_rng(lanes)
    dut = OptimizerStep(lanes=lanes)
    beats = 200
    w, v, g = words(rng, (beats, lanes))
    config = dict(q=1, v_mode=VelocityMode.DECAY, apply=True, mu=58982)
    ref = optimize(w, v, g, offset=9, **config)

    async def given(ctx):
        configure(ctx, dut, *(config[k] for k in ("q", "v_mode", "apply", "mu")))

    found = EngineBench(component=dut).run(
        given,
        BenchLoad(
            "i",
            [
                [dict(w=int(w[beat, n]), v=int(v[beat, n]), g=int(g[beat, n])) for n in range(lanes)]
                for beat in range(beats)
            ],
        ),
        BenchStore("o", beats),
        stall=stalls,
        hold=4 * dut.latency if stalls else 0,
        seed=lanes,
    )
    assert not found.left
    got = [[[int(getattr(p[k], f)) for f in FIELDS] for k in range(lanes)] for p in found.words["o"]]
    cycles = [cycle - found.loaded["i"][0] for cycle in found.stored["o"]]
    for n, field in enumerate(FIELDS):
        np.testing.assert_array_equal(np.array(got)[:, :, n], getattr(ref, field), field)
    if not stalls:
        assert cycles[-1] - cycles[0] == beats - 1, "one beat a cycle"
        assert cycles[0] == dut.latency


@pytest.mark.parametrize("q", range(4))
def test_reference_is_sgd_with_momentum_within_half_a_step(q):
    rng = np.random.default_rng(q)
    w, v = rng.integers(-8000, 8000, 1000), rng.integers(-(1 << 22), 1 << 22, 1000)
    frac = 24 - 4 * q + 9
    g = rng.integers(-(1 << (frac - 1)), 1 << (frac - 1), 1000)
    out = optimize(w, v, g, q=q, offset=9, v_mode=2, apply=True, mu=int(0.9 * 65536))
    velocity = int(0.9 * 65536) / 65536 * VELOCITY.decode(v) + g * 2.0**-frac
    assert np.abs(VELOCITY.decode(out.v) - velocity).max() <= VELOCITY.step
    exact = PARAMETER.decode(w) - VELOCITY.decode(out.v)
    assert np.abs(PARAMETER.decode(out.w) - exact).max() <= PARAMETER.step / 2
    assert not out.saturated.any()


def test_stochastic_rounding_moves_a_word_by_less_than_a_step_on_average():
    w = np.zeros(20000, np.int64)
    g = np.full(20000, 300 << 10)  # 300 / 2048 of a step
    out = optimize(w, w, g, q=0, offset=9, v_mode=0, apply=True, rounding=Rounding.STOCHASTIC, noise=Noise(7))
    assert abs(out.w.mean() + 300 / 2048) < 4 * np.sqrt(0.15 * 0.85 / 20000)


@pytest.mark.parametrize("bad", [dict(offset=40), dict(seed=0), dict(seed=1 << 31)])
def test_lane_refuses_what_it_cannot_do(bad):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Amaranth misses a component that was refused
        with pytest.raises(ValueError, match=next(iter(bad))):
            OptimizerLane(**bad)
        gc.collect()
