"""Factors between layers, a channel each: the same network, whose codes lose less."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.graph.integers import IntegerReading
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.operations import Add, Concat, Reduce
from gradloom.graph.scaling import filled

from ..compiler.nets import conv, network, tensor


def unequal(*, joined=False):
    """Channels of 1 to 1,000 times the least, through a depthwise layer, a sum and a mean of rows."""
    x = tensor("x", 6, 5, 8)
    first = conv(x, "first", 16, 3, pads=1, positive=True)
    thin = conv(first.o, "thin", 16, 3, pads=1, groups=16, positive=True)
    mixed = conv(thin.o, "mixed", 16, 1)
    both = Add((mixed.o, first.o), tensor("both", 6, 5, 16), positive=True)
    pair = conv(both.o, "pair", 8, 3, groups=4, stride=2, positive=True)
    listed = [first, thin, mixed, both, pair]
    if joined:
        other = conv(both.o, "other", 4, 3, stride=2, positive=True)
        listed += [other, Concat((pair.o, other.o), tensor("joined", 2, 2, 12), 2)]
    o = listed[-1].o
    listed.append(Reduce((o,), tensor("mean", 1, 1, o.features), "mean", True))
    last = conv(listed[-1].o, "last", 5, 1)
    made = network([*listed, last], [x], seed=3)
    scale = np.logspace(0, 3, 16)
    values = dict(made.values)
    for name, factor in (("first", scale), ("mixed", scale), ("thin", scale[::-1] ** 0.5)):
        values[f"{name}.weight"] = values[f"{name}.weight"] * factor[:, None, None, None]
        values[f"{name}.bias"] = values[f"{name}.bias"] * factor
    return made.with_operations(made.operations, values)


def samples(seed, count=12):
    return np.random.default_rng(seed).standard_normal((count, 6, 5, 8))


def away(made, want):
    return np.sqrt(np.square(made - want).mean() / np.square(want - want.mean(0)).mean())


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("learner", [None, "thin.bias", "mixed.weight"])
def test_factors_change_no_result_and_nothing_beside_what_learns(joined, learner):
    plain, x = unequal(joined=joined), samples(0)
    made = filled(plain, () if learner is None else (learner,), x)
    np.testing.assert_allclose(FloatReading(made).run(x)[0], FloatReading(plain).run(x)[0], rtol=1e-9)
    changed = {name for name, value in made.values.items() if not np.array_equal(value, plain.values[name])}
    assert changed, "no factor at all"
    if learner is not None:
        assert learner not in changed and f"{learner.partition('.')[0]}.weight" not in changed


def test_channels_far_apart_lose_less():
    """On other samples than those that gave the factors."""
    plain, x = unequal(), samples(1)
    want = FloatReading(plain).run(x)[0]
    before, after = (away(IntegerReading(each).run(x)[0], want) for each in (plain, filled(plain, (), samples(0))))
    assert after < 0.5 * before


def test_a_channel_that_is_always_zero_has_no_part():
    plain = unequal()
    first = plain.values["first.weight"].copy()
    first[3], bias = 0, plain.values["first.bias"].copy()
    bias[3] = -1
    made = filled(replace(plain, values={**plain.values, "first.weight": first, "first.bias": bias}), (), samples(0))
    assert all(np.isfinite(value).all() for value in made.values.values())
