"""Expressions of hardware are the integers that model them."""

import numpy as np
import pytest
from amaranth.hdl import Signal, signed, unsigned

from gradloom.rtl.formats.fixed import Rounding
from gradloom.rtl.formats.rounding import round_shift, round_shift_hdl, saturate, saturate_hdl
from gradloom.rtl.formats.weights.linear import half_up, half_up_hdl

from .values import values_of

WORDS = np.arange(-128, 128)


@pytest.mark.parametrize("shift", [1, 2, 5])
def test_halves_are_rounded_up(shift):
    x = Signal(signed(8))
    found = values_of([x], [half_up_hdl(x, shift)], zip(WORDS))
    assert [value for (value,) in found] == half_up(WORDS, shift).tolist()


@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("shift", [-2, 0, 1, 4])
def test_words_lose_bits_by_each_rounding(rounding, shift):
    x, noise = Signal(signed(8)), Signal(6)
    drawn = np.random.default_rng(shift + 2).integers(0, 1 << 6, len(WORDS))
    found = values_of([x, noise], [round_shift_hdl(x, shift, rounding, noise)], zip(WORDS, drawn))
    wanted = round_shift(WORDS, shift, rounding, drawn & (1 << max(shift, 0)) - 1)
    assert [value for (value,) in found] == wanted.tolist()


@pytest.mark.parametrize("shape", [signed(4), unsigned(4), signed(8), unsigned(7)], ids=str)
def test_words_beyond_a_shape_are_its_ends(shape):
    x, width = Signal(signed(8)), shape.width
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if shape.signed else (0, (1 << width) - 1)
    found = np.array(values_of([x], saturate_hdl(x, shape), zip(WORDS)))
    clipped, count = saturate(WORDS, low, high)
    beyond = [not low <= word <= high for word in WORDS.tolist()]
    assert found[:, 0].tolist() == clipped.tolist() == [min(max(word, low), high) for word in WORDS.tolist()]
    assert found[:, 1].tolist() == beyond and count == sum(beyond)
