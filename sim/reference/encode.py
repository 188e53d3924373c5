"""Bit-exact integer reference of encoder and decoder."""

import numpy as np

from gradloom.rtl.formats.codebook import INT8_HIGH, INT8_LOW, NF4, Codebook
from gradloom.rtl.formats.fixed import Fixed
from gradloom.rtl.formats.rounding import requantize, round_shift

__all__ = [
    "ACTIVATION",
    "DECODED",
    "SCALE",
    "encode_fixed",
    "decode_fixed",
    "decode_codes",
    "scaled_levels",
    "encode_int8",
    "decode_int8",
]

ACTIVATION = Fixed(width=24, frac=16)
DECODED = Fixed(width=18, frac=10)
SCALE = Fixed(width=16, frac=8, is_signed=False)


def encode_fixed(
    x, book: Codebook = NF4, block: int = 64, *, fmt: Fixed = ACTIVATION, thresholds=None, threshold_frac: int = 16
) -> tuple[np.ndarray, np.ndarray]:
    """Encodes integers of ``fmt`` in blocks along the last axis.

    Returns ``(codes, scales)``.

    ``codes`` is uint8, its last axis padded to whole blocks with the code of 0; ``scales`` is uint16
    in units of 2**-8: the block's absmax rounded up.

    Parameters
    ----------
    thresholds : 15 integers, optional
        A rewritten table, in units of ``2**-threshold_frac``, instead of ``book``'s.
    """
    if fmt.width - fmt.frac > SCALE.width - SCALE.frac:
        raise ValueError(
            f"fmt={fmt}: its largest magnitude must fit the scale, so width - frac <= {SCALE.width - SCALE.frac}"
        )
    x = np.asarray(x)
    if not x.shape or not x.shape[-1]:
        raise ValueError(f"x.shape={x.shape}: the last axis needs at least 1 element")
    if x.min() < fmt.lo or x.max() > fmt.hi:
        raise ValueError(f"x in [{x.min()}, {x.max()}]: must lie in [{fmt.lo}, {fmt.hi}]")
    if thresholds is None:
        thresholds = book.threshold_table(threshold_frac)
    # The thresholds times the scale need a bit more than x: 32 bits when they suffice, they are 3x faster.
    x = x.astype(np.int32 if fmt.width <= 30 else np.int64)
    n = x.shape[-1]
    blocks = -(-n // block)
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, blocks * block - n)]).reshape(*x.shape[:-1], blocks, block)
    # -(floor(-m / d)) rounds up. The most negative word fits, since its negation is only taken in int64.
    absmax = np.maximum(x.max(axis=-1).astype(np.int64), -x.min(axis=-1).astype(np.int64))
    scales = -round_up_shift(absmax, fmt.frac - SCALE.frac)
    # In an all-zero block 1 stands in for the scale: any positive number puts 0 between the same thresholds.
    scale = np.maximum(scales, 1)
    codes = np.zeros(x.shape, np.uint8)
    for t in np.asarray(thresholds, np.int64):
        # x > t * scale, both integers: the product's bits below x's own are floored away without loss.
        limit = (scale * t) >> (threshold_frac + SCALE.frac - fmt.frac)
        codes += x > limit[..., None].astype(x.dtype)
    return codes.reshape(*codes.shape[:-2], blocks * block), scales.astype(np.uint16)


def round_up_shift(x, shift):
    """Minus ``x * 2**-shift`` rounded up."""
    return -x >> shift if shift >= 0 else -x << -shift


def scaled_levels(scales, levels=None, book: Codebook = NF4, *, fmt: Fixed = DECODED, level_frac: int = 7):
    """For each scale a last axis of the 16 levels times it.

    They are int64 words of ``fmt``, rounded and saturated.
    """
    levels = book.level_table(level_frac) if levels is None else np.asarray(levels, np.int64)
    product = np.asarray(scales, np.int64)[..., None] * levels
    return requantize(fmt, product, level_frac + SCALE.frac)[0]


def decode_fixed(
    codes, scales, book: Codebook = NF4, block: int = 64, *, fmt: Fixed = DECODED, levels=None, level_frac: int = 7
) -> np.ndarray:
    """int64 words of ``fmt`` of codes.

    The last axis of the codes is at most ``block`` times as long as that of scales.
    """
    codes = np.asarray(codes)
    table = scaled_levels(scales, levels, book, fmt=fmt, level_frac=level_frac)
    n, blocks = codes.shape[-1], table.shape[-2]
    if not (blocks - 1) * block < n <= blocks * block:
        raise ValueError(f"scales={blocks} a row: {n} codes in blocks of {block} need {-(-n // block)}")
    index = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, blocks * block - n)])
    index = index.reshape(*codes.shape[:-1], blocks, block)
    x = np.take_along_axis(table, index.astype(np.int64), axis=-1)
    return x.reshape(*codes.shape[:-1], blocks * block)[..., :n]


def encode_int8(x, block: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Encodes words of Q8.16 in blocks along the last axis.

    Returns ``(codes, scales)``: uint8, 128 for 0; uint16 in units of 2**-8.

    The scale is the absmax, rounded up, plus a 256th of it and 1; the code is ``x`` in units of ``scale / 128``, to
    nearest, ties down, plus 128.
    """
    x = np.asarray(x, np.int64)
    n = x.shape[-1]
    blocks = -(-n // block)
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, blocks * block - n)]).reshape(*x.shape[:-1], blocks, block)
    absmax = -round_up_shift(np.abs(x).max(axis=-1), ACTIVATION.frac - SCALE.frac)
    scales = absmax + (absmax >> 8) + 1
    step = 2 * scales[..., None]
    # Half a step and 128 steps on, less the last place, floor rounds ties down.
    codes = np.minimum((x + 128 * step + step // 2 - 1) // step, 255)
    return codes.reshape(*codes.shape[:-2], blocks * block).astype(np.uint8), scales.astype(np.uint16)


def decode_int8(codes, scales, block: int = 64) -> np.ndarray:
    """Words of Q8.10 of 8-bit codes.

    They are those of both nibbles, each rounded and saturated, added up.
    """
    codes = np.asarray(codes)
    return decode_fixed(codes >> 4, scales, INT8_HIGH, block) + decode_fixed(codes & 15, scales, INT8_LOW, block)


def decode_codes(codes, scale, levels, *, fmt: Fixed = DECODED, level_frac: int = 7) -> np.ndarray:
    """int64 words of ``fmt`` of codes with a scale each.

    ``codes`` and ``scale`` broadcast.
    """
    product = np.asarray(levels, np.int64)[np.asarray(codes)] * np.asarray(scale, np.int64)
    return np.clip(round_shift(product, level_frac + SCALE.frac - fmt.frac), fmt.lo, fmt.hi)
