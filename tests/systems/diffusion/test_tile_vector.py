"""Operations between products are float's, within bounds that their formats give."""

import numpy as np
import pytest

from gradloom.graph.functions import FUNCTIONS
from gradloom.rtl.formats.tiles import functions
from gradloom.rtl.formats.tiles.codes import WIDE, coded
from gradloom.rtl.formats.tiles.element import LIFT
from gradloom.sim.reference.tiles import vector

RNG = np.random.default_rng(0)


def drawn(*shape, scale=1.0):
    return coded(RNG.standard_normal(shape) * scale, WIDE).values


X, DY = drawn(128, 128, scale=3.0), drawn(128, 128, scale=1e-4)


def test_sums_lose_what_lies_eight_bits_below_the_larger_code():
    for far in (1.0, 2.0**-7, 2.0**-40, 2.0**40):
        other = far * DY
        unit = np.maximum(np.abs(X).max(), np.abs(other).max()) * 2.0 ** -(WIDE - 2 + LIFT)
        assert np.abs(vector.add(X, other) - (X + other)).max() <= unit
        assert np.abs(vector.add(X, other, subtract=True) - (X - other)).max() <= unit
    made = vector.add(X, DY[:2])
    np.testing.assert_array_equal(made, vector.add(X, DY[:2].repeat(64, axis=0)))
    nothing = np.zeros_like(X)
    np.testing.assert_array_equal(vector.add(X, nothing), X)
    np.testing.assert_array_equal(vector.add(nothing, nothing), nothing)
    shaped = DY.reshape(2, 64, 128)
    assert np.abs(vector.total(DY, (1,), shaped.shape) - shaped.sum(1)).max() <= 64 * np.abs(DY).max() * 2.0**-22


def test_products_and_masks_are_exact():
    np.testing.assert_array_equal(vector.multiply(X, DY), X * DY)
    np.testing.assert_array_equal(vector.multiply(X, DY[:2]), X * DY[:2].repeat(64, axis=0))
    np.testing.assert_array_equal(vector.mask(DY, X), DY * (X > 0))
    np.testing.assert_array_equal(vector.mask(DY, np.zeros_like(X)), np.zeros_like(X))


def test_what_is_below_0_goes():
    np.testing.assert_array_equal(vector.add(X, DY, positive=True), np.maximum(vector.add(X, DY), 0))
    np.testing.assert_array_equal(vector.scaled(X, 1.0, positive=True), np.maximum(X, 0))


@pytest.mark.parametrize("far", [1.0, 2.0**-3, 2.0**5])
def test_maxima_keep_eight_bits_more_and_their_place_is_found(far):
    """Of four tensors under several exponents: the gradient goes to the largest, and to nothing else but equals."""
    several = [drawn(64, 64) * scale for scale in (1.0, far, 1.0, 1.0)]
    made = several[0]
    for each in several[1:]:
        unit = np.maximum(np.abs(made).max(), np.abs(each).max()) * 2.0 ** -(WIDE - 2 + LIFT)
        assert np.abs(vector.larger(made, each) - np.maximum(made, each)).max() <= unit
        made = coded(vector.larger(made, each), WIDE).values
    dy = drawn(64, 64)
    shares = np.array([vector.equal(dy, each, made) for each in several])
    first = np.argmax(several, axis=0)
    np.testing.assert_array_equal(np.take_along_axis(shares, first[None], 0)[0], dy)
    # Others are within a unit of the largest tile's codes.
    unit = max(np.abs(each).max() for each in several) * 2.0 ** -(WIDE - 2)
    assert (np.abs(np.array(several) - made)[shares != 0] <= unit).all() and ((shares != 0).sum(0) <= 2).all()


def test_activations_are_within_their_tables_errors():
    for table, made, exact, size in (
        (functions.SILU.value, vector.silu(X), FUNCTIONS["silu"].of(X), X),
        (functions.SILU.slope, vector.silu_back(DY, X), DY * FUNCTIONS["silu"].slope(X), DY),
    ):
        assert (np.abs(made - exact) <= table.error * np.abs(size)).all()
    gelu, (x, other) = FUNCTIONS["gelu"], np.split(X, 2, axis=1)
    value, gate = np.abs(x), np.abs(other)
    term = 2.0**-15 * np.abs(X).max()
    bound = functions.GELU.value.error * gate * value + term * value
    assert (np.abs(vector.geglu(X) - x * gelu.of(other)) <= bound).all()
    dy = DY[:, :64]
    bound = np.hstack(
        [
            (functions.GELU.value.error * gate + term) * np.abs(dy),
            (functions.GELU.slope.error * value + term) * np.abs(dy),
        ]
    )
    exact = np.hstack([dy * gelu.of(other), dy * x * gelu.slope(other)])
    assert (np.abs(vector.geglu_back(dy, X) - exact) <= bound).all()


@pytest.mark.parametrize("scale", [1e-9, 0.1, 20.0, 1e5])
def test_softmax_and_its_gradient(scale):
    """Probabilities to the vector engine's 2e-5, and a gradient to as much of the largest dp."""
    scores, factor = drawn(2, 2, 64, 8, scale=scale), 32**-0.5
    powers = np.exp(factor * (scores - scores.max(-1, keepdims=True)))
    exact = powers / powers.sum(-1, keepdims=True)
    # The argument has a constant of 17 bits and a word of 24.
    bound = 2e-5 + np.abs(factor * scores).max() * 2.0**-16
    assert np.abs(vector.softmax(scores, factor) - exact).max() <= bound
    p, dp = coded(exact, WIDE).values, drawn(2, 2, 64, 8, scale=1e-3)
    wanted = factor * p * (dp - (p * dp).sum(-1, keepdims=True))
    assert np.abs(vector.softmax_back(p, dp, factor) - wanted).max() <= factor * np.abs(dp).max() * 2.0**-16


@pytest.mark.parametrize(("rows", "groups"), [(64, 8), (16, 4), (1, 1)])
@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e4])
def test_norms_at_all_scales(rows, groups, scale):
    """At 1e-12 eps is far above the variance, at 1e4 far below. A reciprocal root is good to 2**-15."""
    gain, bias = drawn(1, 128)[0], drawn(1, 128)[0]
    norm = vector.TileNorm(gain, bias, rows=rows, groups=groups, eps=1e-5)
    x = coded((X + 0.5) * scale, WIDE).values
    shaped = x.reshape(-1, rows, groups, 128 // groups)
    deviation = np.sqrt(shaped.var((1, 3), keepdims=True) + 1e-5)
    unit = (shaped - shaped.mean((1, 3), keepdims=True)) / deviation
    dn = (DY * gain).reshape(shaped.shape)
    dx = (dn - dn.mean((1, 3), keepdims=True) - unit * (dn * unit).mean((1, 3), keepdims=True)) / deviation
    unit, dx = unit.reshape(x.shape), dx.reshape(x.shape)
    assert (np.abs(norm.forward(x) - unit * gain - bias) <= 2.0**-14 * (np.abs(unit) + 1) * np.abs(gain).max()).all()
    assert np.abs(norm.backward(DY, x) - dx).max() <= 2.0**-13 * np.abs(dx).max()


def test_a_constant_group_is_its_bias():
    norm = vector.TileNorm(np.ones(128), np.full(128, 0.5), rows=64, groups=8, eps=1e-5)
    assert (norm.forward(np.full((64, 128), 3.0)) == 0.5).all() and (norm.forward(np.zeros((64, 128))) == 0.5).all()
    assert np.isfinite(norm.backward(DY[:64], np.zeros((64, 128)))).all()


def test_a_group_that_is_too_large_is_refused():
    with pytest.raises(ValueError, match="has 65536 values, must have at most 32768"):
        vector.TileNorm(np.ones(64), np.ones(64), rows=1024, groups=1, eps=1e-5)


def test_groups_of_whole_tiles_of_rows_are_norms_of_their_own():
    """Gradients of a tile of rows have the bits of the one with the least root, also of groups."""
    random = np.random.default_rng(3)
    x, dy = random.standard_normal((2, 70, 256)) * np.geomspace(1, 1e3, 70)[:, None]
    gain, bias = random.standard_normal((2, 256))
    whole = vector.TileNorm(gain, bias, rows=1, groups=2, eps=1e-5, by_row=True)
    for at in (slice(0, 128), slice(128, 256)):
        own = vector.TileNorm(gain[at], bias[at], rows=1, groups=1, eps=1e-5)
        np.testing.assert_array_equal(whole.forward(x)[:, at], own.forward(x[:, at]))
        np.testing.assert_array_equal(whole.backward(dy, x)[:, at], own.backward(dy[:, at], x[:, at]))
