"""Codes of tiles: integers of 8 or 16 bits, a power of two a tile.

A value is ``code * 2**exponent``. Codes are symmetric: the least one of two's complement never exists.
"""

from dataclasses import dataclass

import numpy as np

__all__ = ["ACCUMULATOR", "EDGE", "GUARD", "LEAST", "MOST", "NARROW", "WIDE", "ZERO", "Coded", "coded", "tile_peaks"]

#: Rows and columns of a tile.
EDGE = 64
#: Bits of a code: operands of products, and all other values.
NARROW, WIDE = 8, 16
#: Exponents of tiles; a tile of zeros has the exponent ``ZERO``.
LEAST, MOST, ZERO = -127, 127, -128
#: Bits that the products of a tile gain before they are aligned, and bits of the sum.
GUARD, ACCUMULATOR = 6, 36


@dataclass(frozen=True, eq=False)
class Coded:
    """Codes ``[..., rows, features]`` and exponents of their tiles.

    ``exponents``: ``[..., tiles of rows, tiles of features]``. Codes are float64, which holds them exactly.
    ``clipped``: codes that the largest exponent did not fit. ``zeroed``: values other than zero whose code is zero.
    """

    codes: np.ndarray
    exponents: np.ndarray
    clipped: int = 0
    zeroed: int = 0

    def check(self, name: str, bits: int = NARROW) -> "Coded":
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


def coded(values: np.ndarray, bits: int) -> Coded:
    """Codes of values, which are integers times powers of two.

    A tile's exponent is the least with which its largest magnitude, rounded half up, needs no clipping.
    """
    most = (1 << bits - 1) - 1
    peaks = tile_peaks(values)
    mantissa, exponent = np.frexp(peaks)
    # The peak is mantissa * 2**exponent, mantissa in [1/2, 1): what rounds above the largest code needs one more.
    exponent = exponent - (bits - 1)
    exponent += np.floor(mantissa * 2.0 ** (bits - 1) + 0.5) > most
    exponent = np.where(peaks > 0, np.clip(exponent, LEAST, MOST), ZERO)
    codes = values * spread(np.exp2(-exponent.astype(np.float64)), values.shape)
    codes += 0.5
    np.floor(codes, out=codes)
    clipped = 0
    if exponent.max(initial=ZERO) == MOST:
        clipped = int((np.abs(codes) > most).sum())
        codes = np.clip(codes, -most, most)
    zeroed = int(np.count_nonzero(values) - np.count_nonzero(codes))
    return Coded(codes, exponent.astype(np.int64), clipped, zeroed)
