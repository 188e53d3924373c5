"""Reference of the linear engine, word for word, on arrays."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradloom.rtl.formats.codebook import NF4, Codebook
from gradloom.rtl.formats.rounding import saturate
from gradloom.rtl.formats.weights.blocks import GROUP
from gradloom.rtl.formats.weights.linear import (
    ACTIVATION,
    DOT_GUARD,
    LEVEL,
    MASTER,
    SCALE_GUARD,
    SCALE_MAX,
    WEIGHT,
    half_up,
    level_table,
    map_table,
)

from .units.exact import matmul

__all__ = ["LinearSums", "bias_of", "decoded", "dense_words", "table_words", "scales", "weights", "lanes", "product"]

Words = NDArray[np.int64]


def bias_of(frac: int) -> int:
    """Exponent from which a tensor's tables count.

    The weights have ``frac`` fraction bits.
    """
    return 150 - frac - SCALE_GUARD


def table_words(values: ArrayLike, bias: int) -> tuple[Words, int]:
    """``(words, saturated)`` of second-level scales or an offset, float32."""
    bits = np.asarray(values, "<f4").reshape(-1).view("<u4").astype(np.int64)
    exponent = bits >> 23 & 255
    mantissa = np.where(exponent == 0, 0, bits & 0x7FFFFF | 0x800000)
    distance = bias - exponent
    magnitude = ((mantissa << 1 >> np.clip(distance, 0, 32)) + 1) >> 1
    magnitude = np.where((distance < 0) & (mantissa != 0), SCALE_MAX + 1, magnitude)
    over = magnitude > SCALE_MAX
    return np.where(bits >> 31, -1, 1) * np.where(over, SCALE_MAX, magnitude), int(over.sum())


def scales(codes: ArrayLike, second: Words, offset: int) -> tuple[Words, int]:
    """``(words, saturated)`` of block scales from their codes.

    They come block by block in the tensor's order.
    """
    codes = np.asarray(codes)
    group = np.arange(codes.size).reshape(codes.shape) // GROUP
    value = half_up(map_table()[codes] * second[group], LEVEL.frac) + offset
    return saturate(value, -SCALE_MAX, SCALE_MAX)


def weights(codes: ArrayLike, block_scales: Words, *, book: Codebook = NF4) -> Words:
    """Words of ``W [outputs, inputs]`` from codes and scales.

    Codes have the same shape, and there is a scale a block along the inputs.
    """
    codes = np.asarray(codes)
    block = codes.shape[1] // block_scales.shape[1]
    return half_up(level_table(book)[codes] * np.repeat(block_scales, block, axis=1), LEVEL.frac + SCALE_GUARD)


def decoded(
    codes: ArrayLike, scale_codes: ArrayLike, absmax2: ArrayLike, offset: ArrayLike, *, frac: int, book: Codebook = NF4
) -> tuple[Words, int]:
    """Words of ``W [outputs, inputs]`` from its stored parts.

    Returns ``(words, saturated)``. The words have ``frac`` fraction bits.

    ``scale_codes [outputs, blocks]``.
    """
    tables = np.append(np.asarray(absmax2, np.float32), np.asarray(offset, np.float32))
    second, lost = table_words(tables, bias_of(frac))
    block_scales, clipped = scales(scale_codes, second[:-1], int(second[-1]))
    return weights(codes, block_scales, book=book), lost + clipped


def lanes(master: ArrayLike) -> Words:
    """Adapter words as the array takes them, from the words in memory."""
    return np.minimum(half_up(master, MASTER.width - WEIGHT.width), WEIGHT.hi)


def dense_words(words: ArrayLike, *, halves: bool = False) -> Words:
    """Words of a dense tile as the array takes them.

    They come from activations, or with ``halves`` from words of 16 bits.
    """
    words = np.asarray(words, np.int64)
    if halves:
        return words << WEIGHT.width - 16
    return np.minimum(half_up(words, ACTIVATION.width - WEIGHT.width), WEIGHT.hi)


@dataclass(frozen=True, kw_only=True)
class LinearSums:
    """Result of a product.

    ``y [tokens, outputs]``, ``h [tokens, rank]``, how many words of both were clipped.
    """

    y: Words
    h: Words
    saturated: int


def product(x: Words, w: Words, a: Words, b: Words, *, hidden_shift: int, dot_shift: int, shift: int) -> LinearSums:
    """``x w' + (x a') b'``.

    Shapes: ``w [outputs, inputs]``, ``a [rank, inputs]``, ``b [outputs, rank]``.
    """
    h, clipped = saturate(half_up(matmul(x, a.T), hidden_shift), ACTIVATION.lo, ACTIVATION.hi)
    total = matmul(x, w.T) + (matmul(h, b.T) << DOT_GUARD >> dot_shift)
    y, lost = saturate(half_up(total, shift), ACTIVATION.lo, ACTIVATION.hi)
    return LinearSums(y=y, h=h, saturated=clipped + lost)
