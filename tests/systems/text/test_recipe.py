"""Integers and floating point follow a schedule of rates alike."""

import numpy as np
import pytest

from gradloom.program.descent import AdamW as MachineAdamW
from gradloom.program.descent import Lion, at_rate, command
from gradloom.rtl.engines.update.commands import UpdateOpcode
from gradloom.sim.reference.update import adamw, update
from gradloom.systems.rates import Schedule
from gradloom.systems.text.reference.optimizers import FloatAdamW, FloatLion, Sgd
from gradloom.systems.text.workload import CardOptions


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_integers_follow_a_schedule_and_decay_as_floating_point_does(decay):
    """Ten updates by AdamW, in words of 28 fraction bits and in float64 by the formula of Loshchilov and Hutter."""
    random, schedule, lr = np.random.default_rng(3), Schedule.of("cosine", 10, 0.2), 0.03
    w = random.normal(0, 0.5, (3, 40))
    words, m, v = np.rint(w * 2.0**28).astype(np.int64), np.zeros(w.shape, np.int64), np.zeros(w.shape, np.int64)
    first, second, rule = np.zeros_like(w), np.zeros_like(w), MachineAdamW(lr=lr, weight_decay=decay)
    ours, held = FloatAdamW(lr=lr, weight_decay=decay), {"w": w.copy()}
    for number in range(1, 11):
        g = np.rint(random.normal(0, 0.01, w.shape) * 2.0**24)
        factor = schedule.factor(number)
        _, operands = command(at_rate(rule, factor), number, 24, 28)
        words, m, v, clipped = adamw(words, g.astype(np.int64), m, v, **operands)
        assert clipped == 0
        g = g * 2.0**-24
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
        root = np.sqrt(second / (1 - 0.999**number)) + 1e-8
        w = w - factor * lr * (decay * w + first / (1 - 0.9**number) / root)
        ours.step(held, {"w": g}, factor)
        np.testing.assert_allclose(held["w"], w, rtol=1e-10)
    np.testing.assert_allclose(words * 2.0**-28, w, atol=2e-5)


@pytest.mark.parametrize("betas, decay", [((0.9, 0.99), 0.0), ((0.95, 0.98), 0.5), ((0.0, 0.5), 1.0)])
def test_lion_in_integers_is_its_formula(betas, decay):
    """Chen et al., 2302.06675, in float64; gradients of zero move nothing."""
    random, schedule, lr, size = np.random.default_rng(4), Schedule.of("linear", 12, 2), 0.01, (3, 500)
    words = np.rint(random.normal(0, 0.5, size) * 2.0**28).astype(np.int64)
    m, v, kept = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size)
    rule, ours = Lion(lr=lr, betas=betas, weight_decay=decay), FloatLion(lr=lr, betas=betas, weight_decay=decay)
    held = {"w": words * 2.0**-28}
    for number in range(1, 13):
        g = np.rint(random.normal(0, 10.0 ** random.uniform(-4, -1), size) * 2.0**24).astype(np.int64)
        g[:, :50] = 0
        factor, before = schedule.factor(number), held["w"]
        opcode, operands = command(at_rate(rule, factor), number, 24, 28)
        words, m, v, clipped = adamw(words, g, m, v, **operands)
        assert opcode == UpdateOpcode.ADAMW and clipped == 0 and not v.any()
        g = g * 2.0**-24
        way = np.sign(betas[0] * kept + (1 - betas[0]) * g)
        wanted = before - factor * lr * (decay * before + way)
        kept = betas[1] * kept + (1 - betas[1]) * g
        ours.step(held, {"w": g}, factor)
        np.testing.assert_allclose(held["w"], wanted, rtol=1e-12, atol=1e-15)
        # Where both parts of the sum nearly cancel, a rounded beta may turn it.
        far = np.abs(words * 2.0**-28 - wanted) > lr * (2.0**-17 + 2.0**-15 * decay * np.abs(before)) + 2.0**-27
        assert far.mean() < 2e-3
        held["w"] = words * 2.0**-28
    moments = m.astype(np.uint32).view(np.float32).astype(float) * (1 - betas[1])
    np.testing.assert_allclose(moments, kept, atol=2e-4 * np.abs(kept).max())


@pytest.mark.parametrize(
    "more, message",
    [
        ({"betas": (0.99, 0.9)}, r"betas=\(0\.99, 0\.9\): betas\[0\] \* \(2 - betas\[1\]\) must be below 1"),
        ({"lr": 1e-20}, "lr=1e-20: its step needs a shift of"),
    ],
)
def test_a_lion_that_the_machine_has_not_is_refused(more, message):
    with pytest.raises(ValueError, match=message):
        command(Lion(**{"lr": 1e-4} | more), 1, 20, 28)


def test_a_card_has_no_lion():
    with pytest.raises(ValueError, match="optimizer=lion: must be one of adamw, sgd"):
        CardOptions(data=__file__, optimizer="lion").check()


def test_sgd_follows_a_schedule_and_a_rate_of_0_moves_nothing():
    words, g = np.array([[1 << 20, -5]]), np.array([[1 << 10, 1 << 12]])
    found = []
    for factor in (0.0, 0.25):
        opcode, operands = command(at_rate(0.5, factor), 1, 12, 20)
        assert opcode is UpdateOpcode.SGD
        found.append(update(words, g, **operands)[0].tolist())
    assert found == [words.tolist(), [[(1 << 20) - (1 << 15), -5 - (1 << 17)]]]
    held = {"w": np.array([1.0])}
    Sgd(lr=0.5).step(held, {"w": np.array([2.0])}, 0.25)
    assert held["w"] == 0.75
    held = {"x.a": np.array([1.0]), "x.b": np.array([1.0])}
    Sgd(lr=0.5).step(held, dict.fromkeys(held, np.array([0.5])), {"x.a": 1.0, "x.b": 4.0})
    assert (held["x.a"], held["x.b"]) == (0.75, 0.0)
    again = adamw(words, g, np.zeros((1, 2), int), np.zeros((1, 2), int), **MachineAdamW(lr=0.0).operands(1, 12, 20))
    assert again[0].tolist() == words.tolist()
