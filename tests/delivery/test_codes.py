"""Codes of 8, 4, 3 and 2 bits beside the mathematics and other writers of them."""

import numpy as np
import pytest

from gradloom.delivery.codes import BITS, BLOCK, decode, encode, encoded_bytes
from gradloom.rtl.formats.codebook import NF2, NF3, NF4
from gradloom.rtl.formats.weights.blocks import dequantize_blocks, quantize_blocks

BOOKS = {4: NF4, 3: NF3, 2: NF2}


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("count", (1, 63, 64, 65, 1000))
def test_sizes_are_as_forecast_and_a_second_time_gives_the_same(bits, count):
    values = np.random.default_rng(count).normal(0, 1e-4, count).astype(np.float32)
    coded = encode(values, bits)
    assert len(coded) == encoded_bytes(count, bits)
    assert encode(values, bits) == coded
    if bits == 32:
        assert np.array_equal(decode(coded, count, bits), values)


def test_eight_bits_are_within_half_a_step_of_127():
    """The bound follows from the format: half a step, and bfloat16's 1/128 on top of the scale."""
    values = np.random.default_rng(1).normal(0, 3e-5, 640).astype(np.float32)
    error = np.abs(decode(encode(values, 8), 640, 8) - values).reshape(-1, BLOCK)
    peak = np.abs(values).reshape(-1, BLOCK).max(axis=1, keepdims=True)
    assert (error <= peak / 127 * (1 + 2**-7) / 2 * 1.0001).all()


@pytest.mark.parametrize("bits", (4, 3, 2))
def test_a_codebook_s_values_are_those_of_the_frozen_weights_blocks(bits):
    """Where a block's peak is a bfloat16, both writers quantise alike; bitsandbytes is their witness elsewhere."""
    values = np.random.default_rng(2).uniform(-1, 1, 256).astype(np.float32)
    values[::BLOCK] = (1.0, -1.0, 1.0, -1.0)
    book = BOOKS[bits]
    theirs = dequantize_blocks(*quantize_blocks(values, book=book), book=book)
    assert np.array_equal(decode(encode(values, bits), 256, bits), theirs)


@pytest.mark.parametrize("bits", BITS)
def test_extremes_neither_overflow_nor_vanish(bits):
    top = np.finfo(np.float32).max
    values = np.array([top, -top, 0, top / 2] * 16 + [0] * 64 + [1e-45] * 64, np.float32)
    back = decode(encode(values, bits), values.size, bits)
    assert np.isfinite(back).all()
    assert (back[64:128] == 0).all()
    assert back[0] > 0.98 * top


def test_what_cannot_be_coded_is_refused():
    with pytest.raises(ValueError, match="bits=5: must be one of 32, 8, 4, 3, 2"):
        encode(np.zeros(3), 5)
    with pytest.raises(ValueError, match="2 are not finite"):
        encode(np.array([1, np.nan, np.inf]), 8)
    with pytest.raises(ValueError, match="3 bytes are not 4 values"):
        decode(b"abc", 4, 8)
