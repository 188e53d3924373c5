"""Codes of tiles: integers of 8 or 16 bits, a power of two a tile.

A value is ``code * 2**exponent``. Codes are symmetric: the least one of two's complement never exists.
"""

from dataclasses import dataclass

import numpy as np

__all__ = [
    "ACCUMULATOR",
    "EDGE",
    "GUARD",
    "LEAST",
    "MOST",
    "NARROW",
    "REST",
    "WIDE",
    "WORD",
    "ZERO",
    "TileCoded",
    "TileStored",
    "coded",
    "stored",
    "tile_peaks",
]

#: Rows and columns of a tile.
EDGE = 64
#: Bits of a code: operands of products, and all other values.
NARROW, WIDE = 8, 16
#: Codes of 8 bits that hold what other codes of 8 bits leave of a value, to 16 bits in all.
REST = -NARROW
#: Bits of a word that codes are made of.
WORD = 48
#: Exponents of tiles; a tile of zeros has the exponent ``ZERO``.
LEAST, MOST, ZERO = -127, 127, -128
#: Bits that the products of a tile gain before they are aligned, and bits of the sum.
GUARD, ACCUMULATOR = 6, 36


@dataclass(frozen=True, eq=False)
class TileCoded:
    """Codes ``[..., rows, features]`` and exponents of their tiles.

    ``exponents``: ``[..., tiles of rows, tiles of features]``. Codes are float64, which holds them exactly.
    ``clipped``: codes that the largest exponent did not fit. ``zeroed``: values other than zero whose code is zero.
    """

    codes: np.ndarray
    exponents: np.ndarray
    clipped: int = 0
    zeroed: int = 0

    def check(self, name: str, bits: int = NARROW) -> "TileCoded":
        """Refuses a code that no quantiser makes, with its index."""
        most = (1 << bits - 1) - 1
        wrong = np.argwhere((np.abs(self.codes) > most) | (self.codes != np.rint(self.codes)))
        if len(wrong):
            at = tuple(int(n) for n in wrong[0])
            raise ValueError(f"{name}{list(at)} is {self.codes[at]:g}: codes must be integers from {-most} to {most}")
        bad = np.argwhere((self.exponents < ZERO) | (self.exponents > MOST))
        if len(bad):
            at = tuple(int(n) for n in bad[0])
            raise ValueError(f"exponent {list(at)} of {name} is {self.exponents[at]}: must be from {ZERO} to {MOST}")
        return self

    @property
    def values(self) -> np.ndarray:
        """``code * 2**exponent``."""
        return self.codes * spread(np.exp2(self.exponents.astype(np.float64)), self.codes.shape)


def spread(tiles: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A value a tile, repeated for each element of ``shape``."""
    return tiles.repeat(EDGE, axis=-2)[..., : shape[-2], :].repeat(EDGE, axis=-1)[..., : shape[-1]]


def tile_peaks(values: np.ndarray) -> np.ndarray:
    """Largest magnitude of each tile of the last two axes."""
    rows, columns = values.shape[-2:]
    high, wide = -(-rows // EDGE), -(-columns // EDGE)
    if (rows > EDGE and rows % EDGE) or (columns > EDGE and columns % EDGE):
        values = np.pad(values, [(0, 0)] * (values.ndim - 2) + [(0, high * EDGE - rows), (0, wide * EDGE - columns)])
    shaped = values.reshape(*values.shape[:-2], high, values.shape[-2] // high, wide, values.shape[-1] // wide)
    peaks: np.ndarray = np.maximum(shaped.max((-3, -1)), -shaped.min((-3, -1)))
    return peaks


def coded(values: np.ndarray, bits: int) -> TileCoded:
    """Codes of values, which are integers times powers of two.

    A tile's exponent brings its largest magnitude to ``bits`` bits, the sign included. What rounds above the largest
    code is the largest code. With :data:`REST` they are what codes of 8 bits leave, in codes of 8 bits with the
    exponent of codes of 16: together one of 16, but where either is limited; zeros where an end limits the exponent.
    """
    if bits == REST:
        return _coded_rest(values)
    most = (1 << bits - 1) - 1
    peaks = tile_peaks(values)
    exponent = np.frexp(peaks)[1].astype(np.int64) - (bits - 1)
    exponent = np.where(peaks > 0, np.clip(exponent, LEAST, MOST), ZERO)
    codes = values * spread(np.exp2(-exponent.astype(np.float64)), values.shape)
    codes += 0.5
    np.floor(codes, out=codes)
    clipped = int((np.abs(codes) > most + 1).sum()) if exponent.max(initial=ZERO) == MOST else 0
    np.clip(codes, -most, most, out=codes)
    zeroed = int(np.count_nonzero(values) - np.count_nonzero(codes))
    return TileCoded(codes, exponent, clipped, zeroed)


def _coded_rest(values: np.ndarray) -> TileCoded:
    first, whole = coded(values, NARROW), coded(values, WIDE)
    exponent = np.where(first.exponents - NARROW == whole.exponents, whole.exponents, ZERO)
    scale = spread(np.exp2(-np.maximum(exponent, LEAST).astype(np.float64)), values.shape)
    codes = np.floor(values * scale + 0.5) - 2.0**NARROW * first.codes
    most = (1 << NARROW - 1) - 1
    codes = np.where(spread(exponent, values.shape) == ZERO, 0, np.clip(codes, -most, most))
    return TileCoded(codes, exponent)


@dataclass(frozen=True, eq=False)
class TileStored:
    """Codes ``[rows, features]`` of one tile as STORE makes them.

    ``codes``: int64. ``clipped``, ``zeroed``: see :class:`TileCoded`.
    """

    codes: np.ndarray
    exponent: int
    clipped: int = 0
    zeroed: int = 0


def stored(words: np.ndarray, exponents: np.ndarray | int, bits: int) -> TileStored:
    """Codes of one tile of words, ``word * 2**exponent``.

    The rule is that of :func:`coded`, in integers.

    Parameters
    ----------
    words : int64 array ``[rows, features]``
        Of :data:`WORD` bits.
    exponents : int or array ``[rows, 1]``
    bits : int
        Of a code, or :data:`REST`, of which none counts as limited or as 0.
    """
    if bits == REST:
        return _stored_rest(words, exponents)
    words, own = np.asarray(words, np.int64), np.broadcast_to(np.asarray(exponents, np.int64), (len(words), 1))
    if np.abs(words).max(initial=0) >> WORD - 1:
        raise ValueError(f"word {np.abs(words).max()}: must have at most {WORD} bits")
    largest = np.abs(words).max(axis=1, initial=0)
    # A magnitude of 48 bits is exact in float64.
    tops = (np.frexp(largest.astype(np.float64))[1] - 1 + own[:, 0])[largest > 0]
    if not len(tops):
        return TileStored(np.zeros_like(words), ZERO)
    exponent = int(np.clip(tops.max() - (bits - 2), LEAST, MOST))
    most = (1 << bits - 1) - 1
    down = exponent - own
    # Beyond the ends every code is that of the end.
    far = np.clip(-down, 0, bits)
    near = np.clip(down, 1, WORD + 1)
    scaled = np.where(down > 0, (words + (np.int64(1) << near - 1)) >> near, np.clip(words, -most - 1, most + 1) << far)
    codes = np.clip(scaled, -most, most)
    clipped = int((np.abs(scaled) > most + 1).sum())
    return TileStored(codes, exponent, clipped, int(((words != 0) & (codes == 0)).sum()))


def _stored_rest(words: np.ndarray, exponents: np.ndarray | int) -> TileStored:
    first, whole = (stored(words, exponents, bits) for bits in (NARROW, WIDE))
    words = np.asarray(words, np.int64)
    if first.exponent - NARROW != whole.exponent:
        return TileStored(np.zeros_like(words), ZERO)
    down = whole.exponent - np.broadcast_to(np.asarray(exponents, np.int64), (len(words), 1))
    far, near = np.clip(-down, 0, WIDE), np.clip(down, 1, WORD + 1)
    scaled = np.where(down > 0, (words + (np.int64(1) << near - 1)) >> near, words << far)
    most = (1 << NARROW - 1) - 1
    return TileStored(np.clip(scaled - (first.codes << NARROW), -most, most), whole.exponent)
