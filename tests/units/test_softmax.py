"""Softmax and cross-entropy: RTL equals the reference; the reference is within its bound."""

import gc
import warnings

import numpy as np
import pytest

from gradloom.rtl.formats.images import ACTIVATION
from gradloom.rtl.formats.interpolation import Interpolation
from gradloom.rtl.units.softmax import SoftmaxCrossEntropy
from gradloom.sim.bench.engine import BenchLoad, BenchStore, EngineBench, simulate
from gradloom.sim.reference.loss import loss_bound, probability_bound, softmax_cross_entropy


def logits(rng, shape):
    """Rows of every spread: flat, ordinary, one winner, ties, and both ends of the format."""
    spread = rng.choice([0.0, 0.01, 1.0, 8.0, 60.0], (shape[0], 1))
    z = ACTIVATION.encode(rng.normal(0, 1, shape) * spread + rng.choice([-100, -3, 0, 3, 100], (shape[0], 1)))
    ends = rng.random(shape[0]) < 0.1
    z[ends] = rng.choice([ACTIVATION.lo, ACTIVATION.hi, 0], shape)[ends]
    return z


def mathematics(z):
    x = ACTIVATION.decode(z)
    x = x - x.max(axis=1, keepdims=True)
    total = np.exp(x).sum(axis=1, keepdims=True)
    return np.exp(x) / total, np.log(total) - x


def run(dut, vectors, *, stalls=0.0, seed=0):
    """``(d, (loss, correct), cycles of d, cycles of the logits taken)`` of vectors ``[(z, target)]``."""
    beats = [
        dict(z=int(v), target=int(n == target), first=int(n == 0), last=int(n == len(z) - 1))
        for z, target in vectors
        for n, v in enumerate(z)
    ]
    # Both queues, of logarithms and of sums, are fuller than they may be if the unit does not wait for room.
    hold = 2 * (dut.max_length + dut.latency) if stalls else 0
    found = EngineBench(component=dut).run(
        BenchLoad("i", beats),
        BenchStore("o", len(beats)),
        BenchStore("o_loss", len(vectors)),
        stall=stalls,
        hold=hold,
        seed=seed,
    )
    assert not found.left
    return (
        np.array([(p.d, p.first, p.last) for p in found.words["o"]]),
        np.array([(p.loss, p.correct) for p in found.words["o_loss"]]),
        np.array(found.stored["o"]),
        np.array(found.loaded["i"]),
    )


@pytest.mark.parametrize("length, max_length, stalls", [(10, 16, 0.0), (10, 16, 0.4), (2, 2, 0.2), (40, 40, 0.1)])
def test_rtl_is_the_reference(length, max_length, stalls):
    rng = np.random.default_rng(length)
    count = 800 // length
    z, target = logits(rng, (count, length)), rng.integers(0, length, count)
    dut = SoftmaxCrossEntropy(max_length=max_length)
    d, loss, cycles, taken = run(dut, list(zip(z, target)), stalls=stalls)
    ref = softmax_cross_entropy(z, target, max_length=max_length)
    np.testing.assert_array_equal(d[:, 0].reshape(z.shape), ref.d)
    np.testing.assert_array_equal(loss, np.stack([ref.loss, ref.correct], axis=1))
    assert (d[:, 1].reshape(z.shape) == (np.arange(length) == 0)).all()
    assert (d[:, 2].reshape(z.shape) == (np.arange(length) == length - 1)).all()
    if not stalls:
        assert cycles[-1] - cycles[0] == d.shape[0] - 1, "one logit a cycle over back-to-back vectors"
        assert cycles[0] - taken[length - 1] == SoftmaxCrossEntropy.latency


def test_vectors_of_any_length_follow_each_other():
    rng = np.random.default_rng(5)
    vectors = [(logits(rng, (1, 1))[0], 0)] * 40  # more sums than the unit holds at a time
    vectors += [(logits(rng, (1, n))[0], rng.integers(0, n + 1)) for n in rng.integers(1, 13, 60)]
    d, loss, _, _ = run(SoftmaxCrossEntropy(max_length=12), vectors, stalls=0.2)
    at = 0
    for (z, target), got in zip(vectors, loss):
        ref = softmax_cross_entropy(z[None], [target], max_length=12)
        np.testing.assert_array_equal(d[at : at + len(z), 0], ref.d[0])
        assert tuple(got) == (ref.loss[0], ref.correct[0])
        at += len(z)


def test_a_vector_that_is_too_long_is_cut_and_reported():
    dut = SoftmaxCrossEntropy(max_length=4)
    errors = []

    async def feed(ctx):
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.o_loss.ready, 1)
        # The first vector is as long as there is room for.
        for n in (0, 1, 2, 3, 0, 1, 2, 3, 4, 5):
            ctx.set(dut.i.payload, dict(z=n, target=0, first=n == 0, last=len(errors) in (3, 9)))
            ctx.set(dut.i.valid, 1)
            await ctx.tick().until(dut.i.ready)
            errors.append(ctx.get(dut.error))

    simulate(dut, feed)
    assert errors == [0, 0, 0, 0, 0, 0, 0, 1, 0, 0]


@pytest.mark.parametrize("length", [1, 2, 10, 16, 300])
def test_reference_is_within_its_bound_of_softmax(length):
    rng = np.random.default_rng(length)
    z, target = logits(rng, (4000, length)), rng.integers(0, length, 4000)
    ref = softmax_cross_entropy(z, target, max_length=max(2, length))
    p, minus_log = mathematics(z)
    rows = np.arange(len(z))
    d = p - (np.arange(length) == target[:, None])
    assert np.abs(ref.d / 65536 - d).max() <= probability_bound(length) < 2**-15
    loss = minus_log[rows, target]
    assert (np.abs(ref.loss / 65536 - loss) <= loss_bound(length, loss)).all()
    np.testing.assert_array_equal(ref.correct, np.argmax(z, axis=1) == target)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_reference_agrees_with_the_model_behind_the_cases_of_onnx(reduction):
    pytest.importorskip("onnx")
    from onnx.backend.test.case.node.softmaxcrossentropy import softmaxcrossentropy

    rng = np.random.default_rng(0)
    z, target = rng.normal(0, 3, (30, 5)), rng.integers(0, 5, 30)
    loss = softmax_cross_entropy(ACTIVATION.encode(z), target).loss / 65536
    loss = {"none": loss, "mean": loss.mean(), "sum": loss.sum()}[reduction]
    # Rounding the logits to 16 fraction bits adds half a step on either side.
    bound = (2**-15 + 2**-16) * (30 if reduction == "sum" else 1)
    np.testing.assert_allclose(loss, softmaxcrossentropy(z, target, reduction=reduction), rtol=3e-6, atol=bound)


@pytest.mark.parametrize(
    "function, mathematics",
    [
        ("exp2", lambda x: np.exp2(x) - 1),
        ("log2", lambda x: np.log2(1 + x)),
        ("inverse", lambda x: 1 - 1 / (1 + x)),
        ("sqrt", np.sqrt),
    ],
)
def test_interpolation_is_within_its_bound(function, mathematics):
    table = Interpolation(function=function, frac_in=18, frac_out=20)
    x = np.arange(1 << 16 if function == "sqrt" else 0, 1 << 18)
    y = table(x)
    assert np.abs(y * 2.0**-20 - mathematics(x * 2.0**-18)).max() <= table.error
    assert y.min() >= 0 and y.max() < (1 << 21)
    assert function != "exp2" or y.max() < 1 << 20


@pytest.mark.parametrize("max_length", [1, 65537])
def test_unit_refuses_what_it_cannot_do(max_length):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Amaranth misses a component that was refused
        with pytest.raises(ValueError, match="max_length"):
            SoftmaxCrossEntropy(max_length=max_length)
        gc.collect()
