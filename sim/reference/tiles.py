"""Products of codes of tiles, as the array and its feet make them.

A product of a tile is a sum of 64 products of codes, exact. A foot aligns it with the token's other tiles: it is
shifted to the exponent of the largest, with guard bits, rounded half up, and added to a sum of 36 bits. A bias is one
more addend. Integers lie in floats, which hold them exactly.
"""

from dataclasses import dataclass

import numpy as np

from gradloom.rtl.formats.tile_codes import ACCUMULATOR, EDGE, GUARD, ZERO, Coded

__all__ = ["NEVER", "Sums", "blocks", "gathered", "sums", "transposed"]

#: Exponent of what is not there, below all sums of exponents.
NEVER = -(1 << 12)
#: Bits of a tile's product, the sign not counted, and of a bias.
_PRODUCT, _BIAS = 20, 15


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums ``[..., rows, columns]`` and exponents ``[..., rows, tiles]``.

    ``lost``: products of tiles other than zero that alignment made zero.
    """

    words: np.ndarray
    exponents: np.ndarray
    lost: int

    @property
    def values(self) -> np.ndarray:
        """``word * 2**exponent``."""
        scale = np.exp2(self.exponents.astype(np.float64)).repeat(EDGE, axis=-1)
        return self.words * scale[..., : self.words.shape[-1]]


def blocks(x: Coded) -> tuple[np.ndarray, np.ndarray]:
    """Codes and exponents of the stream.

    They are ``[..., tiles, rows, 64]`` and ``[..., tiles, rows]``. Features are padded with zeros.
    """
    rows, features = x.codes.shape[-2:]
    wide = -(-features // EDGE)
    codes = x.codes.astype(np.float32)
    if features % EDGE:
        codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, wide * EDGE - features)])
    shaped = codes.reshape(*codes.shape[:-1], wide, EDGE).swapaxes(-2, -3)
    exponents = np.where(x.exponents == ZERO, NEVER, x.exponents)
    return shaped, exponents.repeat(EDGE, axis=-2)[..., :rows, :].swapaxes(-1, -2)


def gathered(x: Coded, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The stream of a convolution: rows ``[places, rows]`` by address.

    The address -1 is a row of zeros. A token's exponents go with it.
    """
    codes, exponents = blocks(x)
    codes = np.concatenate([codes, np.zeros_like(codes[:, :1])], axis=1)
    exponents = np.concatenate([exponents, np.full_like(exponents[:, :1], NEVER)], axis=1)
    # Tiles of a place stand side by side.
    taken = codes[:, rows].swapaxes(0, 1), exponents[:, rows].swapaxes(0, 1)
    return taken[0].reshape(-1, *taken[0].shape[2:]), taken[1].reshape(-1, *taken[1].shape[2:])


def transposed(x: Coded) -> Coded:
    """The same codes with rows for columns."""
    return Coded(x.codes.swapaxes(-1, -2), x.exponents.swapaxes(-1, -2))


def sums(stream: tuple[np.ndarray, np.ndarray], kept: Coded, *more: tuple, bias: Coded | None = None) -> Sums:
    """Sums of products of a stream with what is kept in the array.

    Parameters
    ----------
    stream : arrays
        As :func:`blocks` has it.
    kept : Coded
        ``[..., 64 · tiles, columns]``; fewer rows are padded.
    more : tuples ``(stream, kept)``
        Further products of the same sums: an adapter's.
    bias : Coded, optional
        ``[1, columns]``, codes of 16 bits.
    """
    addends, exponents = [], []
    for (codes, tokens), stationary in ((stream, kept), *more):
        tiles, columns = codes.shape[-3], stationary.codes.shape[-1]
        w = stationary.codes.astype(np.float32)
        missing = tiles * EDGE - w.shape[-2]
        if missing:
            w = np.pad(w, [(0, 0)] * (w.ndim - 2) + [(0, missing), (0, 0)])
        w = w.reshape(*w.shape[:-2], tiles, EDGE, columns)
        scales = np.where(stationary.exponents == ZERO, NEVER, stationary.exponents)
        addends.append(np.matmul(codes, w))
        exponents.append(tokens[..., None] + scales[..., None, :])
    axis = addends[0].ndim - 3
    # [tiles, rows, tiles of columns]
    scale = np.concatenate(exponents, axis=axis)
    top = scale.max(axis=axis)
    if bias is not None:
        offset = np.where(bias.exponents == ZERO, NEVER, bias.exponents)
        top = np.maximum(top, offset + _BIAS - _PRODUCT)
    top = np.maximum(top, NEVER)
    columns, lost = addends[0].shape[-1], 0
    total: np.ndarray = np.zeros(addends[0].shape[:axis] + addends[0].shape[axis + 1 :])
    for part, own in zip(addends, exponents):
        shift = np.exp2(np.clip(own - np.expand_dims(top, axis) + GUARD, -64, GUARD).astype(np.float64))
        aligned = _scaled(part, shift)
        if shift.min() < 1:
            before = np.count_nonzero(part)
            aligned = np.floor(aligned + 0.5)
            lost += int(before - np.count_nonzero(aligned))
        total += aligned.sum(axis=axis)
    if bias is not None:
        shift = np.exp2(np.clip(offset - top + GUARD, -64, 31).astype(np.float64))
        total += np.floor(_scaled(np.broadcast_to(bias.codes, total.shape), shift) + 0.5)
    if np.abs(total).max(initial=0) >= 1 << ACCUMULATOR - 1:
        raise ValueError(f"sum of {columns} columns: above {ACCUMULATOR} bits, its product has too many tiles")
    return Sums(total, top - GUARD, lost)


def _scaled(words: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Words ``[..., columns]`` times a factor a tile of columns."""
    columns = words.shape[-1]
    if columns % EDGE == 0:
        shaped = words.reshape(*words.shape[:-1], -1, EDGE)
        return (shaped * scales[..., None]).reshape(words.shape)
    made: np.ndarray = words * scales.repeat(EDGE, axis=-1)[..., :columns]
    return made
