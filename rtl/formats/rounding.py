"""Rounding and saturation, in numpy and in hardware."""

import numpy as np
from amaranth.hdl import Cat, Const, Mux, Shape, Value

from .fixed import Fixed, Rounding

__all__ = ["requantize", "requantize_hdl", "round_shift", "round_shift_hdl", "saturate", "saturate_hdl"]


def round_shift(x, shift, rounding=Rounding.NEAREST_EVEN, noise=None):
    """``x * 2**-shift`` rounded to an integer.

    Parameters
    ----------
    x : integer array
        Any ``int64``; a sum with the rounding constant must fit 63 bits.
    shift : int
        Bits dropped; a negative shift appends zeros and is exact.
    rounding : :class:`Rounding`
        ``STOCHASTIC`` needs ``noise``: uniform integers in ``[0, 2**shift)``.
    """
    x = np.asarray(x, dtype=np.int64)
    if shift <= 0:
        return x << -shift
    if rounding is Rounding.FLOOR:
        return x >> shift
    if rounding is Rounding.STOCHASTIC:
        return (x + np.asarray(noise, dtype=np.int64)) >> shift
    return (x + ((1 << (shift - 1)) - 1) + ((x >> shift) & 1)) >> shift


def round_shift_hdl(x, shift, rounding=Rounding.NEAREST_EVEN, noise=None):
    """The expression that :func:`round_shift` models; one carry chain.

    Returns a signed value that fits ``len(x) - shift + 1`` bits (nearest, stochastic): rounding
    up the largest value needs the extra one.
    """
    x = Value.cast(x)
    if shift <= 0:
        return Cat(Const(0, -shift), x).as_signed() if shift else x
    if rounding is Rounding.FLOOR:
        return x >> shift
    if rounding is Rounding.STOCHASTIC:
        return (x + noise[:shift]) >> shift
    # Half minus one as ones below the half bit, and the kept lsb as carry in.
    return (x + Const((1 << (shift - 1)) - 1, shift) + x[shift]) >> shift


def saturate(x, lo, hi):
    """``(clipped, count)``: ``x`` clipped to ``[lo, hi]``.

    ``count`` is the number of clipped elements.
    """
    x = np.asarray(x, dtype=np.int64)
    return np.clip(x, lo, hi), int(((x < lo) | (x > hi)).sum())


def saturate_hdl(x, shape):
    """``(clipped, overflow)`` expressions of ``x`` clipped to ``shape``.

    ``x`` is signed.
    """
    x = Value.cast(x)
    shape = Shape.cast(shape)
    top = shape.width - 1 if shape.signed else shape.width
    spill = x[top:]
    if shape.signed:
        over = ~(spill.all() | ~spill.any())
        limit = Mux(x[-1], Const(-(1 << top), shape), Const((1 << top) - 1, shape))
        return Mux(over, limit, x[: shape.width].as_signed()), over
    over = spill.any()
    limit = Mux(x[-1], Const(0, shape), Const((1 << top) - 1, shape))
    return Mux(over, limit, x[: shape.width]), over


def requantize(fmt: Fixed, x, frac, rounding=Rounding.NEAREST_EVEN, noise=None):
    """``(words, saturated)`` in a format, of integers with ``frac`` fraction bits."""
    return saturate(round_shift(x, frac - fmt.frac, rounding, noise), fmt.lo, fmt.hi)


def requantize_hdl(fmt: Fixed, x, frac, rounding=Rounding.NEAREST_EVEN, noise=None):
    """``(word, overflow)`` expressions that :func:`requantize` models."""
    return saturate_hdl(round_shift_hdl(x, frac - fmt.frac, rounding, noise), fmt.shape)
