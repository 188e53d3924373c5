"""Layouts of commands and words, and of a linear layer's tensors in memory, by numbers of their own."""

import importlib
import math
import pkgutil
import struct

import numpy as np
import pytest
from amaranth.lib import data

import gradloom.rtl.formats
from gradloom.rtl.formats import adamw
from gradloom.rtl.formats.fixed import Fixed
from gradloom.rtl.formats.weights.linear import half_up
from gradloom.rtl.formats.weights.packed import INVERSES, PackedShape
from gradloom.rtl.formats.weights.tiles import fraction_bits, tile_moments, tile_rows, untile_moments, untile_rows

#: Bits of a command's operands, of the operand ``arg`` of LOAD and STORE, of a beat.
OPERANDS, ARGUMENT, BEAT = 160, 32, 128


def layouts():
    for module in pkgutil.walk_packages(gradloom.rtl.formats.__path__, "gradloom.rtl.formats."):
        for name, found in vars(importlib.import_module(module.name)).items():
            if isinstance(found, data.StructLayout):
                yield pytest.param(name, found, id=f"{module.name.split('.', 3)[3]}-{name}")


@pytest.mark.parametrize("name, layout", [*layouts()])
def test_fields_fill_what_holds_them(name, layout):
    if name.endswith("Operands"):
        spare = {"NormOperands": 4}.get(name, 0)
        assert layout.size == OPERANDS - spare
    else:
        assert layout.size == (
            ARGUMENT if name in ("TargetWord", "TileArgument", "GradientArgument", "TapArgument") else BEAT
        )


@pytest.mark.parametrize("largest", [1.0, 0.75, 0.5, 3.0, 4.0, 1e-6, 1e6, 2.0**-100])
@pytest.mark.parametrize("width, headroom", [(18, 0), (24, 2), (32, 5)])
def test_the_largest_value_fits_and_one_bit_more_does_not(largest, width, headroom):
    bits = fraction_bits(np.array([[0.0, -largest], [largest / 3, 0.0]]), width, headroom=headroom)
    bound = 2.0 ** (width - 1 - headroom)
    assert largest * 2.0**bits < bound <= largest * 2.0 ** (bits + 1)


def test_zeros_have_all_bits_behind_the_point():
    assert fraction_bits(np.zeros((2, 2)), 18) == 17 and fraction_bits(np.zeros((0, 4)), 18, headroom=3) == 14


@pytest.mark.parametrize("edge", [32, 64])
def test_words_lie_by_tile_of_features_then_row(edge):
    rows, features = 3, 2 * edge
    words = np.arange(rows * features).reshape(rows, features) - 100
    lying = [words[row, tile * edge + n] for tile in range(2) for row in range(rows) for n in range(edge)]
    content = tile_rows(words, edge)
    assert content == struct.pack(f"<{len(lying)}i", *lying)
    found = untile_rows(content, rows, features, edge)
    assert found.dtype == np.int64 and np.array_equal(found, words)


@pytest.mark.parametrize("edge", [32, 64])
def test_halves_of_beats_of_moments_alternate(edge):
    half, rng = edge // 16, np.random.default_rng(edge)
    m, v = rng.integers(1 << 31, 1 << 32, (2, 3, 2 * edge))
    content = tile_moments(m.astype(np.uint32).astype(np.int32), v.astype(np.uint32).astype(np.int32), edge)
    lines = np.frombuffer(content, "<u4").reshape(-1, 2, half)
    tiled = [words.reshape(3, 2, edge).swapaxes(0, 1).reshape(-1, half) for words in (m, v)]
    assert np.array_equal(lines[:, 0], tiled[0]) and np.array_equal(lines[:, 1], tiled[1])
    for found, words in zip(untile_moments(content, 3, 2 * edge, edge), (m, v)):
        assert np.array_equal(found, words)


@pytest.mark.parametrize(
    "blocks, wide, edge, groups, size",
    [
        # A record of 24 bytes behind each 16 blocks, in beats of 32 bytes or two of 16.
        (2, False, 64, (2,), 2 * 32 + 32),
        (16, False, 64, (16,), 16 * 32 + 32),
        (18, False, 64, (16, 2), 18 * 32 + 2 * 32),
        (34, True, 64, (16, 16, 2), 34 * 64 + 3 * 32),
        (18, True, 32, (16, 2), 18 * 32 + 2 * 32),
    ],
)
def test_a_record_follows_each_group_of_blocks(blocks, wide, edge, groups, size):
    shape = PackedShape(blocks=blocks, wide=wide, edge=edge)
    assert (shape.groups, shape.bytes) == (groups, size)


def test_a_scales_fractions_have_their_inverses_rounded_up():
    """Of each sixteenth of an octave 2**20 over it, which no whole number below reaches."""
    assert len(INVERSES) == 16
    for fraction, inverse in enumerate(INVERSES):
        assert (inverse - 1) * (16 + fraction) < 1 << 20 <= inverse * (16 + fraction)


@pytest.mark.parametrize("blocks", [0, 1, 3, 17])
def test_odd_counts_of_blocks_are_refused(blocks):
    with pytest.raises(ValueError, match=f"blocks={blocks}: must be even, and at least 2"):
        PackedShape(blocks=blocks, wide=False)


@pytest.mark.parametrize(
    "module, name, least, most, step",
    [
        ("images", "ACTIVATION", -128, 128, 2**-16),
        ("images", "PARAMETER", -8, 8, 2**-12),
        ("images", "DECODED", -128, 128, 2**-10),
        ("images", "SCALE", 0, 256, 2**-8),
        ("images", "LEVEL", -2, 2, 2**-7),
        ("images", "VELOCITY", -8, 8, 2**-23),
        ("images", "PROBABILITY", -2, 2, 2**-16),
        ("weights.linear", "ACTIVATION", -(2**23), 2**23, 1),
        ("weights.linear", "WEIGHT", -(2**17), 2**17, 1),
        ("weights.linear", "MASTER", -(2**31), 2**31, 1),
        ("weights.linear", "LEVEL", -2, 2, 2**-16),
        ("weights.linear", "SCALE", -(2**17), 2**17, 2**-6),
        ("vector", "TERM", -(2**24), 2**24, 1),
    ],
)
def test_a_format_reaches_from_its_least_to_its_largest_value(module, name, least, most, step):
    found = getattr(importlib.import_module(f"gradloom.rtl.formats.{module}"), name)
    assert (found.lo * found.step, (found.hi + 1) * found.step, found.step) == (least, most, step)
    assert found.shape.width == round(math.log2((most - least) / step)) and found.shape.signed == (least < 0)


def test_a_moment_is_a_float32():
    """Its mantissa counts from the last of its 23 bits."""
    values = np.random.default_rng(6).normal(size=100).astype(np.float32) * np.float32(2.0) ** np.arange(-100, 100, 2)
    for value, bits in zip(values.astype(np.float64), values.astype(np.float32).view(np.uint32).tolist()):
        exponent, fraction = bits >> adamw.FRACTION & (1 << adamw.EXPONENTS) - 1, bits & (1 << adamw.FRACTION) - 1
        assert ((1 << adamw.FRACTION) + fraction) * 2.0 ** (exponent - adamw.BIAS) == abs(value)
    assert adamw.LARGEST == int(np.finfo(np.float32).max.view(np.uint32))


@pytest.mark.parametrize("width", [0, 1])
def test_a_format_has_a_sign_and_a_bit(width):
    assert (Fixed(width=2, frac=0).lo, Fixed(width=2, frac=0).hi) == (-2, 1)
    with pytest.raises(ValueError, match=f"width={width}: a fixed-point format needs at least 2 bits"):
        Fixed(width=width, frac=0)


@pytest.mark.parametrize(
    "bits, kept", [(8, "int8_t"), (9, "int16_t"), (32, "int32_t"), (33, "int64_t"), (64, "int64_t")]
)
def test_the_smallest_c_type_holds_a_word(bits, kept):
    assert Fixed(width=bits, frac=3).c_type == kept and Fixed(width=bits, frac=3, is_signed=False).c_type == "u" + kept
    with pytest.raises(ValueError, match="width=65: "):
        _ = Fixed(width=65, frac=3).c_type


@pytest.mark.parametrize("shift", [1, 2, 7, 40])
def test_halves_are_rounded_up(shift):
    ends = [sign * ((n << shift) + (1 << shift - 1)) + off for n in (0, 1, 5) for sign in (1, -1) for off in (-1, 0, 1)]
    x = np.array([*ends, *np.random.default_rng(shift).integers(-(1 << 45), 1 << 45, 200)])
    assert half_up(x, shift).tolist() == [(2 * int(n) + (1 << shift)) // (2 << shift) for n in x]
