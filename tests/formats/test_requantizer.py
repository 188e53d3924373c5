"""Requantisers: each kind of arithmetic equals its thresholds, and these equal rounding in exact numbers."""

from fractions import Fraction

import numpy as np
import pytest

from gradloom.rtl.formats.requantizer import Requantizer, rounding_thresholds, step_thresholds

N = np.arange(-3000, 3001)


def rounded(scale, offset, lo, hi):
    """By Python's exact numbers: round() of a Fraction is half to even."""
    return np.clip([round(int(n) * scale + offset) for n in N], lo, hi)


@pytest.mark.parametrize(
    ("kind", "scale", "offset", "lo", "hi"),
    [
        ("nothing", Fraction(1), Fraction(0), -128, 127),
        ("shift", Fraction(1, 128), Fraction(0), -8, 7),  # ties
        ("shift", Fraction(1, 128), Fraction(1, 3), -8, 7),  # none
        ("shift", Fraction(1, 16), Fraction(-3, 16), -128, 127),
        ("multiply", Fraction(float(np.float32(0.0123))), Fraction(float(np.float32(0.3))), -32, 31),
        ("multiply", Fraction(3, 32), Fraction(0), -128, 127),  # ties at every sixteenth
        ("multiply", Fraction(5), Fraction(0), -128, 127),
        ("multiply", Fraction(1, 6), Fraction(0), -32, 31),  # ties, and no power of two
        ("multiply", Fraction(7, 4608), Fraction(-5, 18), -8, 7),
    ],
)
def test_rounding_half_to_even_is_exact_for_every_integer(kind, scale, offset, lo, hi):
    thresholds = rounding_thresholds(Fraction(1), [scale], [offset], lo, hi)
    made = Requantizer.of(thresholds, lo, hi, slopes=[scale], offsets=[offset])
    assert made.kind == kind
    want = rounded(scale, offset, lo, hi)
    np.testing.assert_array_equal(made.by_thresholds(N), want)
    np.testing.assert_array_equal(made(N), want)


def test_channels_have_offsets_of_their_own():
    scale, offsets = Fraction(float(np.float32(0.00176))), [Fraction(k, 7) for k in range(-3, 4)]
    made = Requantizer.of(rounding_thresholds(Fraction(1), [scale] * 7, offsets, -4, 3), -4, 3)
    assert made.kind == "multiply" and len(set(made.multiplier)) == 1 and len(set(made.addend)) == 7
    want = np.stack([rounded(scale, offset, -4, 3) for offset in offsets], axis=-1)
    np.testing.assert_array_equal(made(np.repeat(N[:, None], 7, axis=1)), want)


def test_channels_have_multipliers_of_their_own_where_one_does_not_do():
    scales = [Fraction(float(np.float32(each))) for each in (0.01, 0.02, 0.05)]
    made = Requantizer.of(rounding_thresholds(Fraction(1), scales, [Fraction(0)] * 3, -8, 7), -8, 7)
    assert made.kind == "multiply" and len(set(made.multiplier)) == 3
    want = np.stack([rounded(scale, Fraction(0), -8, 7) for scale in scales], axis=-1)
    np.testing.assert_array_equal(made(np.repeat(N[:, None], 3, axis=1)), want)


def test_channels_with_ties_have_slopes_of_their_own():
    scales, offsets = [Fraction(each, 32) for each in (3, 5, 11)], [Fraction(each, 16) for each in (0, 1, -7)]
    thresholds = rounding_thresholds(Fraction(1), scales, offsets, -32, 31)
    made = Requantizer.of(thresholds, -32, 31, slopes=scales, offsets=offsets)
    assert made.kind == "multiply" and made.half_even
    want = np.stack([rounded(*pair, -32, 31) for pair in zip(scales, offsets)], axis=-1)
    np.testing.assert_array_equal(made(np.repeat(N[:, None], 3, axis=1)), want)


def test_a_slope_beyond_64_bits_is_a_table_or_a_line():
    scale = Fraction((1 << 60) + 1, 1 << 40)
    made = Requantizer.of(
        rounding_thresholds(Fraction(1), [scale], [Fraction(1, 2)], -2, 1),
        -2,
        1,
        slopes=[scale],
        offsets=[Fraction(1, 2)],
    )
    np.testing.assert_array_equal(made(N), rounded(scale, Fraction(1, 2), -2, 1))


def test_thresholds_as_given_become_a_line_or_a_table():
    levels = np.array([[-1.5, -0.5, 0.5, 1.5]])
    thresholds = step_thresholds(levels, [Fraction(1, 4)], [Fraction(1, 8)])
    want = (N[:, None] / 4 + 1 / 8 >= levels).sum(axis=1) - 2
    even = Requantizer.of(thresholds, -2, 2)
    assert even.kind == "shift" and not even.half_even
    np.testing.assert_array_equal(even(N), want)
    uneven = Requantizer.of(np.array([[-100, -7, -6, 300]]), 0, 4)
    assert uneven.kind == "table"
    np.testing.assert_array_equal(uneven(N), [sum(t <= n for t in (-100, -7, -6, 300)) for n in N])
