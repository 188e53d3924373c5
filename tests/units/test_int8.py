"""8-bit codes in integers against 8-bit codes as mathematics has them."""

import numpy as np
import pytest

from gradloom.rtl.formats.codebook import INT8_HIGH, INT8_LOW
from gradloom.sim.reference.encode import ACTIVATION, decode_fixed, decode_int8, encode_fixed, encode_int8
from gradloom.systems.images.mathematics import int8_roundtrip, nf4_roundtrip

LAST = 2.0**-11  # half the last place of a decoded nibble


def activations(sigma, seed=0):
    return ACTIVATION.encode(np.clip(np.random.default_rng(seed).normal(0, sigma, (300, 64)), -127, 127))


@pytest.mark.parametrize("sigma", [0.003, 0.1, 1, 8, 40])
def test_a_decoded_word_is_within_half_a_step_of_the_activation(sigma):
    x = activations(sigma)
    codes, scales = encode_int8(x)
    error = np.abs(decode_int8(codes, scales) / 1024 - ACTIVATION.decode(x))
    # Two nibbles are rounded; the top code may be a 250th of a step further off.
    assert (error <= (0.504 / 128) * (scales / 256) + 2 * LAST).all()


@pytest.mark.parametrize("sigma", [1, 8, 30])
def test_words_are_near_those_of_float_and_far_better_than_four_bits(sigma):
    x = activations(sigma, 1)
    real = ACTIVATION.decode(x)
    codes, scales = encode_int8(x)
    found = decode_int8(codes, scales) / 1024
    absmax = np.abs(real).max(axis=1, keepdims=True)
    # Half a step of each, and the steps differ: by 1/255, by the scale's 2**-8 twice, and by 128 / 127.
    assert (np.abs(found - int8_roundtrip(real)) <= 0.504 / 128 * scales / 256 + absmax / 254 + 2 * LAST).all()
    rms = [
        np.sqrt(np.mean((words - real) ** 2))
        for words in (found, int8_roundtrip(real), nf4_roundtrip(real), decode_fixed(*encode_fixed(x)) / 1024)
    ]
    assert rms[0] < 1.03 * rms[1] + 2 * LAST
    assert rms[0] < rms[2] / 8 and rms[0] < rms[3] / 8


def test_zero_is_exact_and_fills_short_blocks():
    codes, scales = encode_int8(np.zeros((2, 70), int))
    assert (codes == 128).all() and codes.shape == (2, 128)
    assert (scales == 1).all()
    x = activations(5)
    x[:, ::3] = 0
    assert not decode_int8(*encode_int8(x))[:, ::3].any()


def test_codes_are_symmetric():
    for absmax in (1, 255, 256, 257, 255 << 8, 65536, 1 << 22, (1 << 23) - 1):
        codes, scales = encode_int8(np.resize([absmax, -absmax], 64))
        assert abs(int(codes[0]) + int(codes[1]) - 256) <= 1  # a tie takes the lower code, on either side
    assert encode_int8(np.full(64, ACTIVATION.lo))[1].tolist() == [(1 << 15) + (1 << 7) + 1]


def test_a_decoded_word_is_at_most_two_to_the_seventeenth():
    scale = np.full((1, 1), (1 << 15) + (1 << 7) + 1)
    words = decode_int8(np.arange(256).reshape(4, 64), np.repeat(scale, 4, axis=0))
    assert np.abs(words).max() == 1 << 17


def test_the_two_books_add_up_to_the_code():
    both = INT8_HIGH.level_table()[:, None] + INT8_LOW.level_table()
    np.testing.assert_array_equal(both.ravel(), np.arange(256) - 128)
