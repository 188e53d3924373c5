"""Bit-exact blocks of codes (``rtl/engines/update/pack.py``).

Codes are rounded up by chance, so that what an update adds to a word survives on average, however small; the chance
is a sequence of numbers that a command's seed begins.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gradloom.rtl.formats.adamw import FRACTION, LARGEST
from gradloom.rtl.formats.weights.linear import LEVEL, MASTER
from gradloom.rtl.formats.weights.packed import (
    BLOCKS,
    FINE,
    GAPS,
    INVERSES,
    LEVELS,
    LONG,
    NOISE,
    RECORD,
    SIDES,
    TOP,
    PackedShape,
)

__all__ = ["Unpacked", "noise", "pack", "unpack"]

Words = NDArray[np.int64]
_ONE = 1 << LEVEL.frac
_LEVELS, _GAPS, _INVERSES = (np.array(each) for each in (LEVELS, GAPS, INVERSES))
_EXPONENT = MASTER.width - 1 - FRACTION


@dataclass(frozen=True)
class Unpacked:
    """``words [blocks, edge]``, and how many had to be clipped."""

    words: Words
    saturated: int


def noise(seeds: Words, count: int) -> Words:
    """Marsaglia's xorshift of 32 bits, ``[seeds, count]``.

    The sequence of each seed begins with the seed itself.
    """
    made = np.asarray(seeds, np.uint32)[:, None]
    step = 0
    while made.shape[1] < count:
        further = np.zeros_like(made)
        for bit, image in enumerate(_jump(step)):
            further ^= np.where(made >> np.uint32(bit) & np.uint32(1), np.uint32(image), np.uint32(0))
        made = np.concatenate([made, further], axis=1)
        step += 1
    return made[:, :count].astype(np.int64)


@lru_cache(maxsize=32)
def _jump(power: int) -> tuple[int, ...]:
    """Result of ``2**power`` steps for each bit."""
    if not power:
        made = []
        for bit in range(32):
            word = 1 << bit
            for left, right in ((13, 0), (0, 17), (5, 0)):
                word ^= (word << left & 0xFFFFFFFF) if left else word >> right
            made.append(word)
        return tuple(made)
    before = _jump(power - 1)
    return tuple(_image(before, word) for word in before)


def _image(jump: tuple[int, ...], word: int) -> int:
    made = 0
    for bit, image in enumerate(jump):
        made ^= image if word >> bit & 1 else 0
    return made


def pack(words: Words, *, wide: bool, moments: bool, seeds: Words) -> bytes:
    """Bytes of ``words [blocks, edge]``.

    They are in groups of :data:`BLOCKS` with a seed each; of ``moments``, blocks of m and v alternate.
    """
    words = np.asarray(words, np.int64)
    blocks, edge = words.shape
    shape = PackedShape(blocks=blocks, wide=wide, edge=edge)
    groups = len(shape.groups)
    flat = np.zeros((groups * BLOCKS, edge), np.int64)
    flat[:blocks] = words
    # [groups, batches, sides, edge], of which the last group may have fewer batches.
    whole: Words = flat.reshape(groups, BLOCKS // SIDES, SIDES, edge)
    chance = noise(seeds, BLOCKS * edge).reshape(groups, BLOCKS // SIDES, SIDES * edge)
    by_code = _by_blocks(chance, wide and moments, edge)
    negative, floats = _floats(whole, moments)
    largest = floats.max(axis=-1)
    scales, codes = np.zeros_like(largest), np.zeros_like(floats)
    linear = slice(0, 1) if moments else slice(0, SIDES)
    scales[:, :, linear] = _scales(largest[:, :, linear], wide)
    codes[:, :, linear] = _codes(
        negative[:, :, linear], floats[:, :, linear], scales[:, :, linear], by_code[:, :, linear], wide
    )
    if moments:
        scales[:, :, 1] = _long_scales(largest[:, :, 1], wide)
        codes[:, :, 1] = _long_codes(floats[:, :, 1], scales[:, :, 1], by_code[:, :, 1], wide)
    top = scales.max(axis=1)
    stored = np.where(scales == 0, 0, np.maximum(255 - (top[:, None] - scales), 0))
    if moments:
        stored[:, :, 1] = np.where(scales[:, :, 1] == 0, 0, np.maximum(stored[:, :, 1], 1))
    made = b""
    order = codes.reshape(groups, BLOCKS // SIDES, SIDES, 2, edge // 2)
    if wide and moments:
        order = order.swapaxes(2, 3)
    order = order.reshape(groups, -1).astype(np.uint8)
    for group, count in enumerate(shape.groups):
        mine = order[group, : count * edge]
        made += (mine if wide else mine[::2] << 4 | mine[1::2]).tobytes()
        record = np.zeros(shape.record * shape.beat, np.uint8)
        record[:4] = top[group].astype("<u2").view(np.uint8)
        record[8 : 8 + count] = stored[group].reshape(-1)[:count]
        made += record.tobytes()
    return made


def unpack(data: bytes, *, blocks: int, edge: int, wide: bool, moments: bool) -> Unpacked:
    """``words [blocks, edge]`` again."""
    shape = PackedShape(blocks=blocks, wide=wide, edge=edge)
    left = np.frombuffer(data, np.uint8)
    made = []
    saturated = 0
    for count in shape.groups:
        size, record = shape.codes(count) * shape.beat, shape.record * shape.beat
        mine, head, left = left[:size], left[size : size + record], left[size + record :]
        mine = mine if wide else np.stack([mine >> 4, mine & 15], axis=-1).reshape(-1)
        codes: Words = mine.astype(np.int64).reshape(count // SIDES, SIDES, 2, edge // 2)
        if wide and moments:
            codes = codes.reshape(count // SIDES, 2, SIDES, edge // 2).swapaxes(1, 2)
        codes = codes.reshape(count // SIDES, SIDES, edge)
        top = head[:4].copy().view("<u2").astype(np.int64) & 0xFFF
        stored = head[8 : 8 + count].astype(np.int64).reshape(-1, SIDES)
        scales = np.where(stored == 0, 0, np.maximum(top - 255 + stored, 0))
        words = np.zeros_like(codes)
        for side in range(SIDES):
            if moments and side:
                words[:, side] = _long_values(codes[:, side], scales[:, side], wide)
            else:
                words[:, side], lost = _values(codes[:, side], scales[:, side], wide, moments)
                saturated += lost
        made.append(words.reshape(-1, edge))
    return Unpacked(np.concatenate(made), saturated)


def _by_blocks(values: Words, halves: bool, edge: int) -> Words:
    """Values by blocks, from the order of codes."""
    if not halves:
        return values.reshape(*values.shape[:2], SIDES, edge)
    return values.reshape(*values.shape[:2], 2, SIDES, edge // 2).swapaxes(2, 3).reshape(*values.shape[:2], SIDES, edge)


def _floats(words: Words, moments: bool) -> tuple[NDArray[np.bool_], Words]:
    """Signs, and floats without them."""
    if moments:
        floats = words & (1 << MASTER.width - 1) - 1
        return (words >> MASTER.width - 1 & 1).astype(bool), np.where(floats >> FRACTION == 0, 0, floats)
    negative = words < 0
    size = np.where(negative, ~words, words)
    bits = np.frexp(size.astype(np.float64))[1].astype(np.int64)
    top = size << MASTER.width - 1 - bits
    fraction = top >> _EXPONENT - 1 & (1 << FRACTION) - 1
    return negative, np.where(size == 0, 0, 126 + bits << FRACTION | fraction)


def _mantissa(floats: Words) -> Words:
    return np.where(floats == 0, 0, floats & (1 << FRACTION) - 1 | 1 << FRACTION)


def _scales(largest: Words, wide: bool) -> Words:
    """Up, so that no element is beyond; 8-bit codes reach 127 of 128."""
    more = _mantissa(largest) >> 7 if wide else 0
    scales = largest + more + (1 << FRACTION - FINE) - 1 >> FRACTION - FINE
    return np.where(largest == 0, 0, np.minimum(scales, TOP[FINE]))


def _codes(negative: NDArray[np.bool_], floats: Words, scales: Words, chance: Words, wide: bool) -> Words:
    scales = scales[..., None]
    down = np.minimum((scales >> FINE) - (floats >> FRACTION), 31)
    part = np.where(floats == 0, 0, _mantissa(floats) >> FRACTION - LEVEL.frac >> np.maximum(down, 0))
    unit = np.minimum(part * _INVERSES[scales & 15] >> LEVEL.frac, _ONE)
    if wide:
        number = np.minimum(unit + (chance >> 32 - NOISE["wide"]) >> NOISE["wide"], 127)
        return 128 + np.where(negative, -number, number)
    unit = np.where(negative, -unit, unit)
    code = np.searchsorted(_LEVELS, unit, side="right") - 1
    above = unit - _LEVELS[code] << 9
    return code + (above > _GAPS[code] * (2 * (chance >> 32 - NOISE["narrow"]) + 1)) * (code < 15)


def _long_scales(largest: Words, wide: bool) -> Words:
    """Of v: above the largest."""
    scales = (largest >> FRACTION - LONG) + 1 if wide else (largest >> FRACTION) + 1 << LONG
    return np.where(largest == 0, 0, np.minimum(scales, TOP[LONG] if wide else 254 << LONG))


def _long_codes(floats: Words, scales: Words, chance: Words, wide: bool) -> Words:
    """Codes of v: distance below the block's scale, never nothing.

    The unit is an eighth of an octave or an octave.
    """
    scales = scales[..., None]
    drop = FRACTION - LONG if wide else FRACTION
    high, most = (TOP[LONG], 255) if wide else (254, 15)
    place = np.minimum(floats + (chance >> 32 - drop) >> drop, high)
    code = most - ((scales if wide else scales >> LONG) - place)
    return np.where(floats == 0, 0, np.maximum(code, 1))


def _values(codes: Words, scales: Words, wide: bool, moments: bool) -> tuple[Words, int]:
    scales = scales[:, None]
    level = codes - 128 << 9 if wide else _LEVELS[np.minimum(codes, 15)]
    negative, product = level < 0, np.where(scales == 0, 0, np.abs(level) * (16 + (scales & 15)))
    bits = np.frexp(product.astype(np.float64))[1].astype(np.int64)
    exponent = (scales >> FINE) + bits - 21
    mantissa = product << 24 - np.minimum(bits, 24)
    nothing = (product == 0) | (exponent < 1)
    if moments:
        over = ~nothing & (exponent > 254)
        words = np.where(over, LARGEST, exponent << FRACTION | mantissa & (1 << FRACTION) - 1)
        return np.where(nothing, 0, words | np.where(negative, 1 << 31, 0)), int(over.sum())
    over = ~nothing & (exponent > 157)
    size = mantissa << 7 >> np.minimum(np.maximum(157 - exponent, 0), 31)
    size = np.where(nothing, 0, np.where(over, (1 << 31) - 1, size))
    return np.where(negative & ~nothing, ~size, size), int(over.sum())


def _long_values(codes: Words, scales: Words, wide: bool) -> Words:
    scales = scales[:, None]
    if wide:
        place = np.minimum(scales - (255 - codes), TOP[LONG])
        nothing, words = place < 1 << LONG, place << FRACTION - LONG
    else:
        place = np.minimum((scales >> LONG) - (15 - codes), 254)
        nothing, words = place < 1, place << FRACTION
    return np.where(nothing | (codes == 0) | (scales == 0), 0, words)


assert RECORD == 8 + BLOCKS
