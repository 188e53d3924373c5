"""Fixed-point arithmetic beside APyTypes, a library of it that is not ours: rounding, saturation, a dense layer."""

import numpy as np
import pytest
from apytypes import APyFixedArray, OverflowMode, QuantizationMode

from gradloom.rtl.formats.fixed import Fixed, Rounding
from gradloom.rtl.formats.rounding import requantize
from gradloom.sim.reference.array import ACTIVATION, dense_layer

_MODES = {Rounding.NEAREST_EVEN: QuantizationMode.TIES_EVEN, Rounding.FLOOR: QuantizationMode.TO_NEG}


def theirs(values, fmt):
    return APyFixedArray(np.asarray(values).tolist(), bits=fmt.width, frac_bits=fmt.frac)


def cast(values, fmt, rounding=Rounding.NEAREST_EVEN):
    """Words of ``values`` in another format, as signed integers."""
    made = values.cast(
        int_bits=fmt.width - fmt.frac, frac_bits=fmt.frac, quantization=_MODES[rounding], overflow=OverflowMode.SAT
    )
    found = np.array(made.to_bits(), np.int64)
    return found - ((found >> (fmt.width - 1)) << fmt.width)


@pytest.mark.parametrize("rounding", _MODES)
@pytest.mark.parametrize("fmt", [ACTIVATION, Fixed(width=16, frac=12), Fixed(width=8, frac=-3), Fixed(width=5, frac=9)])
def test_rounding_and_saturation_are_the_librarys(fmt, rounding):
    """Random words, all ties around 0, and the words at which saturation begins."""
    wide = Fixed(width=40, frac=20)
    drop = wide.frac - fmt.frac
    ends = [(edge << drop) + (1 << drop) // 2 + step for edge in (fmt.lo - 1, fmt.hi) for step in (-1, 0, 1)]
    ends += [fmt.lo << drop, fmt.hi << drop]
    ties = [(n << drop) + (1 << drop) // 2 for n in range(-8, 8)]
    drawn = np.random.default_rng(7).integers(2 * fmt.lo << drop, 2 * fmt.hi << drop, 2000)
    given = np.clip([*drawn, *drawn >> 4, *ends, *ties], wide.lo, wide.hi)
    expected = cast(theirs(given, wide), fmt, rounding)
    found, saturated = requantize(fmt, given, wide.frac, rounding)
    np.testing.assert_array_equal(found, expected)
    # A format of enough bits says what no end limits.
    free = cast(theirs(given, wide), Fixed(width=44, frac=fmt.frac), rounding)
    assert saturated == ((free < fmt.lo) | (free > fmt.hi)).sum() > 0 and len(np.unique(found)) > 20


def test_a_dense_layer_is_the_librarys():
    rng = np.random.default_rng(8)
    weight = Fixed(width=16, frac=12)
    x, w = rng.integers(ACTIVATION.lo, ACTIVATION.hi, (7, 50)), rng.integers(weight.lo, weight.hi, (9, 50))
    x[:4] >>= 6
    bias = rng.integers(-1 << 20, 1 << 20, 9)
    sums = theirs(x, ACTIVATION) @ theirs(w.T, weight) + theirs(np.tile(bias, (7, 1)), ACTIVATION)
    found, saturated = dense_layer(x, w, bias, relu=False)
    np.testing.assert_array_equal(found, cast(sums, ACTIVATION))
    assert saturated.any() and not saturated.all()
