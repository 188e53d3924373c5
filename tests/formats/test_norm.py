"""Constants and sizes of the norm engine's words."""

import math
from fractions import Fraction

import pytest

from gradloom.rtl.formats.tiles.codes import EDGE, WIDE
from gradloom.rtl.formats.tiles.norm import PULL_WORD, at_once, constant, least_shift, positions


@pytest.mark.parametrize("features", [1, 2, 3, 64, 65, 320, 1 << 13])
def test_sums_of_products_fit_a_pull_and_lose_no_bit_more(features):
    """Of codes of the greatest magnitude, if their number is the next power of two."""
    largest = (1 << (features - 1).bit_length()) * (1 << WIDE - 1) ** 2
    assert largest >> least_shift(features) == 1 << PULL_WORD - 1
    # The greatest sum that codes have is one product short of it, or has a code of the other sign.
    assert (features * (1 << WIDE - 1) * ((1 << WIDE - 1) - 1)) >> least_shift(features) < 1 << PULL_WORD - 1


@pytest.mark.parametrize("bits", [16, 17])
@pytest.mark.parametrize("value", [1.0, 1e-5, 1 / 3, math.log2(math.e) / 8, 2**17 - 0.25, 1 - 2**-20, 3 * 2.0**-40])
def test_a_constant_is_the_nearest_there_is(value, bits):
    """Its mantissa has all its bits."""
    mantissa, exponent = constant(value, bits)
    assert 1 << bits - 1 <= mantissa < 1 << bits
    step = Fraction(2) ** exponent
    assert abs(mantissa * step - Fraction(value)) <= step / 2
    assert constant(value) == constant(value, 17)


def test_lanes_are_added_up_as_fast_as_beats_come():
    """As many positions as a row of a tile has beats, or as a beat has lanes, whatever is less."""
    assert [at_once(lanes) for lanes in (2, 4, 8, 16, 32, 64)] == [1, 1, 1, 4, 16, 64]
    for lanes in (2, 4, 8, 16, 32, 64):
        assert positions(lanes) == min(lanes, EDGE // lanes) and positions(lanes, columns=True) == lanes
