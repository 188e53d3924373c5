"""The vector engine's softmax is near float64: by bounds from its tables and formats."""

import numpy as np
import pytest

from gradloom.rtl.formats.vector import EXP2, EXPONENT_FRAC, FINE, LOG2, PROBABILITY_FRAC
from gradloom.sim.reference import vector_softmax as reference
from gradloom.systems.text.operations import vector as plan

LN2 = np.log(2)
#: Relative, of a power: the table's, and bits of an argument that are cut.
POWER = EXP2.error + LN2 * 2.0**-EXPONENT_FRAC
#: Of a level, in bits: the powers', the table's, its argument's.
LEVEL = POWER / LN2 + LOG2.error + 2.0**-EXPONENT_FRAC / LN2


def encode(s):
    frac = min(plan.frac_of(np.abs(s).max()), 40)
    return np.rint(s * 2.0**frac).astype(np.int64), frac


def masked(s, limit, causal):
    last = limit + causal * np.arange(len(s))[:, None]
    return np.where(np.arange(s.shape[1]) <= last, s, -np.inf)


def exact(s):
    """``(p, level)`` of a softmax to base 2."""
    top = s.max(axis=1, keepdims=True)
    power = np.exp2(s - top)
    total = power.sum(axis=1, keepdims=True)
    return power / total, (top + np.log2(total))[:, 0]


def level_bound(s, level):
    """Powers that are rounded, and what is cut when the unit rises, a few times a row at most."""
    finest = 2.0 ** -(PROBABILITY_FRAC + FINE + 1)
    largest = s.max(axis=1)
    near = np.isfinite(s).sum(axis=1) * finest + np.exp2(level - largest) * 2.0**-14 * 2.0**-8
    return LEVEL + (near + 2.0**-20) / LN2 / np.exp2(level - largest)


@pytest.mark.parametrize(
    "shape, spread, limit, causal",
    [
        ((64, 64), 3, 0, True),
        ((64, 512), 80, 100, True),
        ((32, 2048), 300, 2047, False),
        ((64, 320), 1e-3, 300, False),
        ((4, 49152), 4, 49151, False),
        ((4, 49152), 3, 49000, False),
    ],
    ids=str,
)
def test_softmax(shape, spread, limit, causal):
    rng = np.random.default_rng(shape[1])
    words, frac = encode(rng.normal(size=shape) * spread)
    operands = plan.softmax(frac)
    s = masked(words * 2.0**-frac, limit, causal)
    p, level = exact(s)
    masks = {"limit": limit, "causal": causal}
    levels = reference.levels(words, gate_shift=operands["gate_shift"], lanes=8, **masks)
    off = np.abs(levels * 2.0**-EXPONENT_FRAC - level)
    assert (off <= level_bound(s, level)).all() and off.max() < 3e-5
    targets = rng.integers(0, limit + 1, shape[0])
    targets[0] = -1
    found = reference.softmax(words, levels, **masks, **operands)
    got = found.words * 2.0**-PROBABILITY_FRAC
    bound = p * (POWER + LN2 * level_bound(s, level)[:, None]) + 2.0 ** -(PROBABILITY_FRAC + 1)
    assert found.saturated == 0 and (np.abs(got - p) <= bound * 1.001).all()
    assert (np.abs(got - p) <= p.max(axis=1, keepdims=True) * 2.0**-16 + 2.0**-23).all()
    # A long row's probabilities below a word's last place are lost.
    assert np.abs(got.sum(axis=1) - 1).max() < (2.0**-14 if shape[1] <= 2048 else 2.0**-10)

    aimed = reference.softmax(words, levels, targets=targets, **masks, **operands)
    rows = np.flatnonzero((targets >= 0) & (targets <= limit + causal * np.arange(shape[0])))
    assert aimed.counted == len(rows) and not aimed.words[0].any()
    np.testing.assert_array_equal((found.words - aimed.words)[rows, targets[rows]], 1 << PROBABILITY_FRAC)
    loss = (level[rows] - s[rows, targets[rows]]).sum()
    assert abs(aimed.loss / 65536 - loss) <= 3e-5 * len(rows) + 2.0**-16


@pytest.mark.parametrize("elements, spread", [(64, 2), (320, 40)])
def test_backward(elements, spread):
    rng = np.random.default_rng(elements)
    words, frac = encode(rng.normal(size=(64, elements)) * spread)
    operands = plan.softmax(frac)
    level = reference.levels(words, gate_shift=operands["gate_shift"], lanes=8, limit=0, causal=True)
    p = reference.softmax(words, level, limit=0, causal=True, **operands)
    dp, dpf = encode(rng.standard_t(4, words.shape) * 1e-3)
    meant, _ = exact(masked(words * 2.0**-frac, 0, True))
    real = dp * 2.0**-dpf
    ds = meant * (real - (meant * real).sum(axis=1, keepdims=True))
    dsf = encode(ds)[1]
    shifts = plan.softmax_backward(dpf, dsf)
    pull = reference.pulled(p.words, dp, **shifts["sums"])
    found = reference.softmax_backward(p.words, dp, pull.words, **shifts["result"])
    error = found.words * 2.0**-dsf - ds
    assert found.saturated == pull.saturated == 0
    assert np.sqrt(np.mean(error**2) / np.mean(ds**2)) < 1e-4


def test_plans_refuse_what_a_softmax_cannot_take():
    with pytest.raises(ValueError, match="at least 12"):
        plan.softmax(11)
    for refused in (lambda: plan.softmax(72), lambda: plan.softmax_backward(0, 23)):
        with pytest.raises(ValueError, match="too far apart"):
            refused()
