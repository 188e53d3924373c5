"""Fixed point: the one place that knows how to round and saturate."""
from dataclasses import dataclass
from enum import Enum

import numpy as np
from amaranth.hdl import Cat, Const, Mux, Shape, Value, signed, unsigned

__all__ = ["Rounding", "Fixed", "product_sum_width", "round_shift", "round_shift_hdl", "saturate", "saturate_hdl"]


class Rounding(Enum):
    """How bits below the last one kept are dropped."""

    NEAREST_EVEN = "nearest-even"
    FLOOR = "floor"
    STOCHASTIC = "stochastic"


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

    Returns a signed value with ``len(x) - shift + 1`` bits (nearest, stochastic): rounding up
    the largest value needs the extra one.
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


def product_sum_width(a, b, terms):
    """Bits of a sum of ``terms`` products of words of ``a`` and ``b`` bits, which cannot wrap: the product of the two
    least words is ``2**(a + b - 2)``, one more than as many bits below the sign hold."""
    return a + b - 1 + terms.bit_length()


def saturate(x, lo, hi):
    """``(clipped, count)``: ``x`` clipped to ``[lo, hi]`` and how many elements had to be."""
    x = np.asarray(x, dtype=np.int64)
    return np.clip(x, lo, hi), int(((x < lo) | (x > hi)).sum())


def saturate_hdl(x, shape):
    """``(clipped, overflow)`` expressions of ``x`` (signed) clipped to ``shape``."""
    x = Value.cast(x)
    shape = Shape.cast(shape)
    top = shape.width - 1 if shape.signed else shape.width
    spill = x[top:]
    if shape.signed:
        over = ~(spill.all() | ~spill.any())
        limit = Mux(x[-1], Const(-(1 << top), shape), Const((1 << top) - 1, shape))
        return Mux(over, limit, x[:shape.width].as_signed()), over
    over = spill.any()
    limit = Mux(x[-1], Const(0, shape), Const((1 << top) - 1, shape))
    return Mux(over, limit, x[:shape.width]), over


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """Two's complement fixed point Q(i.f), a power-of-two exponent folded into ``frac``.

    Parameters
    ----------
    width : int
        Bits in all, the sign included.
    frac : int
        An integer ``n`` stands for ``n * 2**-frac``. May be negative or exceed ``width``: a
        tensor's own power-of-two exponent is expressed here.
    is_signed : bool
    """

    width: int
    frac: int
    is_signed: bool = True

    def __post_init__(self):
        if self.width < 2:
            raise ValueError(f"width={self.width}: a fixed-point format needs at least 2 bits")

    @property
    def shape(self):
        """Amaranth shape of a word."""
        return signed(self.width) if self.is_signed else unsigned(self.width)

    @property
    def lo(self):
        """Smallest integer."""
        return -(1 << (self.width - 1)) if self.is_signed else 0

    @property
    def hi(self):
        """Largest integer."""
        return (1 << (self.width - self.is_signed)) - 1

    @property
    def step(self):
        """Value of one unit in the last place."""
        return 2.0 ** -self.frac

    @property
    def c_type(self):
        """The C type that holds a word."""
        for bits in (8, 16, 32, 64):
            if self.width <= bits:
                return f"{'' if self.is_signed else 'u'}int{bits}_t"
        raise ValueError(f"width={self.width}: no C type holds more than 64 bits")

    def encode(self, x):
        """Nearest word (ties to even), saturated, as ``int64``."""
        return np.clip(np.rint(np.asarray(x, np.float64) * 2.0 ** self.frac), self.lo, self.hi).astype(np.int64)

    def decode(self, n):
        """Value of each word as ``float64``."""
        return np.asarray(n, dtype=np.float64) * self.step

    def requantize(self, x, frac, rounding=Rounding.NEAREST_EVEN, noise=None):
        """``(words, saturated)`` of integers ``x`` that have ``frac`` fraction bits."""
        return saturate(round_shift(x, frac - self.frac, rounding, noise), self.lo, self.hi)

    def requantize_hdl(self, x, frac, rounding=Rounding.NEAREST_EVEN, noise=None):
        """``(word, overflow)`` expressions that :meth:`requantize` models."""
        return saturate_hdl(round_shift_hdl(x, frac - self.frac, rounding, noise), self.shape)
