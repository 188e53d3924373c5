"""Bit-exact optimiser: SGD with momentum on Q4.12 parameters."""

from typing import NamedTuple

import numpy as np

from gradloom.rtl.formats.fixed import Rounding
from gradloom.rtl.formats.images import PARAMETER, VELOCITY
from gradloom.rtl.formats.rounding import round_shift, saturate

__all__ = ["WordUpdate", "Noise", "optimize"]

#: Fraction bits of what multiplies the velocity; the product has as many more than the velocity.
_FACTOR_FRAC = 16
#: Magnitudes are clipped to this, in units of the velocity.
_LARGEST = 1 << 24


class WordUpdate(NamedTuple):
    """Result of an update.

    ``w`` and ``v`` have the shape of the input.
    """

    w: np.ndarray
    v: np.ndarray
    saturated: np.ndarray
    underflowed: np.ndarray
    magnitude: np.ndarray


class Noise:
    """The bits ``x[n] = x[n-31]  x[n-28]`` of one lane.

    The first 31 are of ``seed * 0x9E3779B1``.
    """

    def __init__(self, seed: int):
        seed *= 0x9E3779B1
        self._bits = np.array([seed >> n & 1 for n in range(31)], dtype=np.int64)

    def take(self, words: int, bits: int) -> np.ndarray:
        """The next ``words`` integers of ``bits`` bits, lowest bit first."""
        sequence = [int(bit) for bit in self._bits]
        while len(sequence) < words * bits + 31:
            sequence += [a ^ b for a, b in zip(sequence[-31:-3], sequence[-28:])]
        x = np.array(sequence, dtype=np.int64)
        self._bits = x[words * bits : words * bits + 31]
        return x[: words * bits].reshape(words, bits) @ (1 << np.arange(bits))


def optimize(
    w,
    v,
    g,
    *,
    q: int,
    offset: int,
    v_mode: int,
    apply: bool,
    mu: int = 0,
    rounding: Rounding = Rounding.NEAREST_EVEN,
    noise: Noise | None = None,
) -> WordUpdate:
    """One update of every word.

    Parameters
    ----------
    w : integers of Fixed(16, 12)
    v : integers of Fixed(27, 23)
    g : integers of 48 bits
        With ``24 - 4 * q + offset`` fraction bits.
    v_mode : int
        0: the velocity starts at zero, 1: at itself, 2: at ``mu`` times itself.
    mu : int
        Unsigned Q0.16.
    noise : :class:`Noise`
        Of stochastic rounding; the words of ``w`` take it in C order.
    """
    w, v, g = (np.asarray(x, dtype=np.int64) for x in (w, v, g))
    # In units of the product. Beyond 2**44 a sum is clipped whatever the velocity: int64 holds no more.
    up = VELOCITY.frac + _FACTOR_FRAC - (24 - 4 * q + offset)
    bound = 1 << min(44 - up, 47)
    fine = np.clip(g, -bound, bound) << max(up, 0) >> max(-up, 0)
    raw = round_shift(v * (0, 1 << _FACTOR_FRAC, mu)[v_mode] + fine, _FACTOR_FRAC)
    v_new = np.clip(raw, VELOCITY.lo, VELOCITY.hi)
    over = raw != v_new
    magnitude = np.abs(np.clip(fine >> _FACTOR_FRAC, -_LARGEST, _LARGEST - 1))
    drop = VELOCITY.frac - PARAMETER.frac
    bits = noise.take(w.size, drop).reshape(w.shape) if noise is not None else None
    if not apply:
        return WordUpdate(w, v_new, over, np.zeros(w.shape, bool), magnitude)
    raw = round_shift((w << drop) - v_new, drop, rounding, bits)
    w_new, _ = saturate(raw, PARAMETER.lo, PARAMETER.hi)
    over |= raw != w_new
    return WordUpdate(w_new, v_new, over, (v_new != 0) & (raw == w), magnitude)
