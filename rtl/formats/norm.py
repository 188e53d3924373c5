"""Words of the norm engine: statistics, gradients and powers."""

import math

from .vector import ROOT_FRAC

__all__ = [
    "ALIGNED",
    "BIAS_LIFT",
    "DEEP",
    "EPS",
    "EPS_SPAN",
    "FACTOR",
    "LEAST_ARGUMENT",
    "LIFT",
    "NARROWED",
    "POWER",
    "PULL",
    "REST",
    "SIZE",
    "SPREAD",
    "UNIT",
    "constant",
]

#: A group has up to ``2**SIZE`` values.
SIZE = 15
#: Fraction bits of a normalised value, and of a constant's mantissa; bits of the mantissa of eps.
UNIT, FACTOR, EPS = 16, 17, 16
#: A value less its mean is aligned so that a reciprocal root's mantissa times it has these fraction bits and
#: :data:`ROOT_FRAC` more. It has ``ALIGNED`` bits: 181 is the most that one of ``2**15`` values differs from the mean.
DEEP, ALIGNED = 17, 27
#: Largest shift to the left of eps, whose bits then end at 60.
EPS_SPAN = 60 - EPS
#: A bias counts up to ``2**BIAS_LIFT`` of the gain's unit before the gain loses bits.
BIAS_LIFT = 8
#: Bits that a gradient times a gain loses under the group's largest exponent: 18 remain, the sign included.
NARROWED, PULL = 13, 18
#: Bits of a gradient less its mean and its part along x; bits that their product with the root gains, so that groups of
#: other roots in the same tile lose fewer.
REST, SPREAD = 26, 4
#: Fraction bits of a power of two of a softmax; the least argument, whole powers of two.
POWER, LEAST_ARGUMENT = 27, -(1 << 12)
#: Bits that a gradient of a softmax gains.
LIFT = 8

assert DEEP + ROOT_FRAC - UNIT == 18 and ALIGNED == DEEP + 10


def constant(value: float, bits: int = FACTOR) -> tuple[int, int]:
    """Mantissa of ``bits`` bits and exponent of a positive constant.

    ``mantissa * 2**exponent`` is the nearest there is.
    """
    fraction, exponent = math.frexp(value)
    mantissa = round(fraction * (1 << bits))
    if mantissa >> bits:
        mantissa, exponent = mantissa >> 1, exponent + 1
    return mantissa, exponent - bits
