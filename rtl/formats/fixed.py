"""Fixed-point formats, without numpy or Amaranth.

The command line starts with these formats, so they import neither.
"""

from dataclasses import dataclass
from enum import Enum

__all__ = ["Rounding", "Fixed", "product_sum_width"]


class Rounding(Enum):
    """How bits below the last one kept are dropped."""

    NEAREST_EVEN = "nearest-even"
    FLOOR = "floor"
    STOCHASTIC = "stochastic"


def product_sum_width(a, b, terms):
    """Bits of a sum of ``terms`` products, which cannot wrap.

    The factors have ``a`` and ``b`` bits. The product of the two least words is ``2**(a + b - 2)``, one more than as
    many bits below the sign hold.
    """
    return a + b - 1 + terms.bit_length()


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """Two's complement fixed point Q(i.f).

    A power-of-two exponent is folded into ``frac``.

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
        from amaranth.hdl import signed, unsigned

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
        return 2.0**-self.frac

    @property
    def c_type(self):
        """The C type that holds a word."""
        for bits in (8, 16, 32, 64):
            if self.width <= bits:
                return f"{'' if self.is_signed else 'u'}int{bits}_t"
        raise ValueError(f"width={self.width}: no C type holds more than 64 bits")

    def encode(self, x):
        """Nearest word (ties to even), saturated, as ``int64``."""
        import numpy as np

        return np.clip(np.rint(np.asarray(x, np.float64) * 2.0**self.frac), self.lo, self.hi).astype(np.int64)

    def decode(self, n):
        """Value of each word as ``float64``."""
        import numpy as np

        return np.asarray(n, dtype=np.float64) * self.step
