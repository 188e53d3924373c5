"""Codebooks and block quantisation against bitsandbytes' own outputs."""

from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from gradloom.rtl.formats.codebook import CODEBOOKS, FP4, INT4, NF2, NF3, NF4, Codebook, pack_nibbles, unpack_nibbles
from gradloom.rtl.formats.weights.blocks import (
    dequantize_blocks,
    dequantize_scales,
    dynamic_map,
    quantize_blocks,
    quantize_scales,
)

GOLDEN = Path(__file__).parents[1] / "golden"
NPZ = np.load(GOLDEN / "nf4.npz")
CASES = sorted({key.split(".")[0] for key in NPZ.files})


def case(name):
    return {key.split(".")[1]: NPZ[key] for key in NPZ.files if key.startswith(name + ".")}


@pytest.mark.parametrize("name", CASES)
def test_codes_and_scales_are_bitsandbytes(name):
    c = case(name)
    codes, absmax = quantize_blocks(c["w"], block=int(c["blocksize"]))
    np.testing.assert_array_equal(pack_nibbles(codes), c["packed"])
    np.testing.assert_array_equal(absmax, c["absmax"])
    w = dequantize_blocks(codes, absmax, block=int(c["blocksize"]))
    np.testing.assert_array_equal(w, c["dequant"].ravel())


@pytest.mark.parametrize("name", CASES)
def test_double_quantised_scales_are_bitsandbytes(name):
    c = case(name)
    codes, absmax2, offset = quantize_scales(c["absmax"], c["dq_offset"])
    np.testing.assert_array_equal(codes, c["dq_absmax"])
    np.testing.assert_array_equal(absmax2, c["dq_absmax2"])
    scales = dequantize_scales(codes, absmax2, offset)
    w = dequantize_blocks(unpack_nibbles(c["packed"], c["w"].size), scales, block=int(c["blocksize"]))
    np.testing.assert_array_equal(w, c["dq_dequant"].ravel())


@pytest.mark.parametrize("name", CASES)
def test_own_mean_is_within_two_ulps_of_bitsandbytes(name):
    c = case(name)
    np.testing.assert_array_max_ulp(quantize_scales(c["absmax"])[2], c["dq_offset"], maxulp=2)


def test_dynamic_map_is_bitsandbytes():
    golden = np.loadtxt(GOLDEN / "dynamic_map_256.txt").astype(np.float32)
    np.testing.assert_array_equal(dynamic_map(), golden)
    np.testing.assert_array_equal(dynamic_map(), NPZ[f"{CASES[0]}.dq_code"])


@pytest.mark.parametrize("book", CODEBOOKS.values(), ids=CODEBOOKS)
def test_a_level_encodes_to_itself(book):
    codes = np.arange(len(book.levels))
    np.testing.assert_array_equal(book.encode(book.decode(codes)), codes)
    assert book.decode(book.zero_code) == 0


@pytest.mark.parametrize("book", CODEBOOKS.values(), ids=CODEBOOKS)
def test_fixed_tables_are_the_float_tables_within_half_a_step(book):
    assert len(book.level_table()) == 16 and len(book.threshold_table()) == 15
    n = len(book.levels)
    assert np.abs(book.level_table()[:n] / 2**7 - book.levels).max() <= 2**-8
    assert np.abs(book.threshold_table()[: n - 1] / 2**16 - book.thresholds).max() <= 2**-17
    assert (np.diff(book.threshold_table()) >= 0).all()
    assert book.threshold_table().max() < 2**17 and book.level_table().max() < 2**8


@pytest.mark.parametrize(
    "book, offset",
    [
        pytest.param(NF4, 0.9677083, id="nf4"),
        pytest.param(NF3, 1 - (1 / 14 + 1 / 16) / 2, id="nf3"),
        pytest.param(NF2, 1 - (1 / 6 + 1 / 8) / 2, id="nf2"),
    ],
)
def test_normal_float_levels_are_quantiles(book, offset):
    half = len(book.levels) // 2
    inv = NormalDist().inv_cdf
    up = [inv(p) for p in np.linspace(offset, 0.5, half + 1)[:-1]]
    down = [-inv(p) for p in np.linspace(offset, 0.5, half)[:-1]]
    np.testing.assert_allclose(book.levels, np.sort([*up, *down, 0.0]) / max(up), atol=2e-7)


def test_value_on_a_threshold_takes_the_lower_code():
    t = np.asarray(NF4.thresholds, np.float32)
    np.testing.assert_array_equal(NF4.encode(t), np.arange(15))
    np.testing.assert_array_equal(NF4.encode(np.nextafter(t, np.float32(2))), np.arange(1, 16))


def test_first_element_is_in_the_high_nibble():
    assert pack_nibbles([1, 2, 3]).tolist() == [0x12, 0x37]
    assert unpack_nibbles([0x12, 0x37], 3).tolist() == [1, 2, 3]


def test_symmetric_books_are_symmetric():
    for book in (FP4, INT4):
        np.testing.assert_array_equal(book.levels, [-v for v in reversed(book.levels)])


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(levels=(0.0,)), "levels=1"),
        (dict(levels=tuple(np.linspace(-1, 1, 17))), "levels=17"),
        (dict(levels=(0.0, 1.5)), "within"),
        (dict(levels=(0.5, 0.5)), "ascending"),
        (dict(levels=(0.0, float("nan"))), "ascending"),
        (dict(levels=(0.0, 1.0), thresholds=(0.1, 0.2)), "thresholds=2"),
        (dict(levels=(0.0, 1.0), thresholds=(1.1,)), "between"),
    ],
)
def test_bad_book_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Codebook(name="x", **change)


@pytest.mark.parametrize(
    "w, block, message",
    [(np.zeros(4), 48, "block=48"), (np.zeros(0), 64, "no elements"), (np.array([1, np.nan]), 64, r"w\[1\]")],
)
def test_bad_tensor_is_refused(w, block, message):
    with pytest.raises(ValueError, match=message):
        quantize_blocks(w, block=block)
