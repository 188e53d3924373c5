"""Operands of optimisers: what they stand for makes the steps of torch's rules, in float64."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gradloom.program.descent import AdamW, Lion, at_rate, command, learning_rate, scaled
from gradloom.rtl.engines.update.commands import UpdateOpcode
from gradloom.rtl.formats.adamw import BETA, BIAS, EPS, FRACTION

GRADIENT, WORD = 20, 22
RULES = [
    AdamW(lr=1e-3),
    AdamW(lr=0.3, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
    AdamW(lr=2e-5, betas=(0, 0.5), weight_decay=1e-3),
]


@pytest.mark.parametrize("rule", RULES, ids=["usual", "large", "no first moment"])
@pytest.mark.parametrize("step", [1, 2, 100])
def test_adamw_is_that_of_torch(rule, step):
    held = rule.operands(step, GRADIENT, WORD)
    first, second = held["beta1"] / 2**BETA, held["beta2"] / 2**BETA
    np.testing.assert_allclose((first, second), rule.betas, atol=2.0**-BETA)
    sums = np.random.default_rng(step).normal(0, 0.1, (2, 50)) ** np.array([[1], [2]])
    assert rule.moment_scales == (1 - first, 1 - second)
    m, v = sums * np.array([[1 - first], [1 - second]])
    expected = rule.lr * (m / (1 - first**step)) / (np.sqrt(v / (1 - second**step)) + rule.eps)
    rate = held["rate"] * 2.0 ** (BIAS - WORD - held["exponent"])
    eps = held["eps"] * 2.0 ** (held["eps_exponent"] - EPS)
    # Words of 16 bits or more, rounded.
    np.testing.assert_allclose(rate * sums[0] / (np.sqrt(sums[1]) + eps), expected, rtol=2.0**-15)
    unit = 2.0 ** -(BETA + 5 * held["decay_shift"])
    assert held["decay"] * unit == pytest.approx(rule.lr * rule.weight_decay, abs=unit / 2)
    assert held["decay"] < 1 << BETA
    assert held["gradient"] == BIAS - GRADIENT and 1 << BETA - 1 <= held["rate"] < 1 << BETA


def test_small_decays_take_the_shift_that_keeps_their_bits():
    shifts = []
    for decay in (0.5, 1e-2, 1e-4, 1e-6):
        held = AdamW(lr=1, weight_decay=decay).operands(1, GRADIENT, WORD)
        shifts.append(held["decay_shift"])
        assert held["decay"] / 2.0 ** (BETA + 5 * held["decay_shift"]) == pytest.approx(decay, rel=1e-3)
    assert shifts == [0, 1, 2, 3]
    # One that would be 2^17 with a shift has none.
    held = AdamW(lr=1, weight_decay=2.0**-5).operands(1, GRADIENT, WORD)
    assert (held["decay"], held["decay_shift"]) == (1 << BETA - 5, 0)


def test_the_furthest_way_is_that_of_the_worst_gradients():
    """Gradients that grow by the ratio of the decays, for which the inequality is an equality."""
    rule = AdamW(lr=1, betas=(0.9, 0.99))
    first, second = (each / 2**BETA for each in rule.beta_words)
    gradients = (second / first) ** np.arange(400.0)
    weights = np.arange(400)[::-1]
    m, v = (1 - first) * (first**weights * gradients).sum(), (1 - second) * (second**weights * gradients**2).sum()
    assert m / math.sqrt(v) == pytest.approx(rule.furthest, rel=1e-6)
    assert AdamW(lr=1, betas=(0.99, 0.9)).furthest == math.inf and Lion(lr=1).furthest == 1


@pytest.mark.parametrize("betas", [(0.9, 0.99), (0.95, 0.98)])
def test_lion_is_that_of_its_paper(betas):
    """The sign of ``beta1 m + (1 - beta1) g`` by the sum ``M = beta2 M + g`` in memory, ``m = (1 - beta2) M``."""
    rule = Lion(lr=3e-4, betas=betas, weight_decay=0.5)
    held = rule.operands(7, GRADIENT, WORD)
    assert held == rule.operands(1, GRADIENT, WORD) and held["sign"] == 1 and held["eps"] == held["eps_exponent"] == 0
    now, kept = betas
    assert held["beta1"] / 2**BETA == pytest.approx(kept, abs=2.0**-BETA)
    assert held["beta2"] / 2**BETA == pytest.approx(now * (1 - kept) / (1 - now), abs=2.0**-BETA)
    assert held["rate"] * 2.0 ** (FRACTION - WORD - held["exponent"]) == pytest.approx(3e-4, rel=2.0**-16)
    assert held["decay"] / 2.0 ** (BETA + 5 * held["decay_shift"]) == pytest.approx(1.5e-4, rel=1e-3)
    still = replace(rule, lr=0).operands(1, GRADIENT, WORD)
    assert still["rate"] == still["exponent"] == still["decay"] == 0


@pytest.mark.parametrize("rate", [1.0, 0.1, 3e-5, 1 - 2.0**-20])
def test_sgd_steps_by_its_rate(rate):
    word, shift = learning_rate(rate, GRADIENT, WORD)
    assert word * 2.0 ** (GRADIENT - WORD - shift) == pytest.approx(rate, rel=2.0**-16) and word < 1 << 16
    assert learning_rate(0, GRADIENT, WORD) == (0, 0)
    assert command(rate, 3, GRADIENT, WORD) == (UpdateOpcode.SGD, {"rate": word, "shift": shift})


def test_what_no_operand_holds_is_refused():
    for rate, shift in ((2.0**60, -47), (2.0**-60, 73)):
        with pytest.raises(ValueError, match=f"its step needs a shift of {shift}, must be 0 to 63"):
            learning_rate(rate, GRADIENT, WORD)
    # A word that rounds up to 2^16 is halved where its shift allows.
    assert learning_rate(1 - 2.0**-20, 20, 22) == (1 << 15, 13) and learning_rate(1 - 2.0**-20, 4, 20) == (1 << 16, 0)
    # The least and the largest shift.
    assert learning_rate(2.0**13, GRADIENT, WORD)[1] == 0 and learning_rate(2.0**-50, GRADIENT, WORD)[1] == 63
    with pytest.raises(ValueError, match="its step needs a shift of"):
        Lion(lr=2.0**-60).operands(1, GRADIENT, WORD)
    with pytest.raises(ValueError, match="step=0: must be at least 1"):
        AdamW(lr=1).operands(0, GRADIENT, WORD)
    with pytest.raises(ValueError, match="gradient_frac: an exponent of .* does not fit 10 bits"):
        AdamW(lr=1).operands(1, -400, WORD)
    for more in ({"lr": -1}, {"betas": (1, 0.9)}, {"betas": (0.9, 0.4)}, {"eps": -1}, {"weight_decay": 1}):
        with pytest.raises(ValueError, match="must be at least"):
            AdamW(**{"lr": 1, **more})
    with pytest.raises(ValueError, match="must be below 1"):
        Lion(lr=1, betas=(0.99, 0.5))


def test_rules_of_scaled_words_and_of_other_rates():
    rule = AdamW(lr=1e-3, eps=1e-6, weight_decay=0.1)
    own = scaled(rule, 4)
    # w of factor w / 4: the same change of w.
    assert (own.lr, own.eps, own.weight_decay) == (4e-3, 2.5e-7, 0.025) and own.lr * own.weight_decay == pytest.approx(
        rule.lr * rule.weight_decay
    )
    assert scaled(0.1, 4) == pytest.approx(1.6)
    assert at_rate(rule, 0.5).lr == 5e-4 and at_rate(0.1, 0.5) == 0.05
    opcode, held = command(rule, 3, GRADIENT, WORD)
    assert opcode == UpdateOpcode.ADAMW and held == rule.operands(3, GRADIENT, WORD)
