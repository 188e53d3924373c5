"""Formats of the linear engine, and rounding by variable shifts."""

import numpy as np

from ..codebook import NF4, Codebook
from ..fixed import Fixed
from .blocks import dynamic_map

__all__ = [
    "ACTIVATION",
    "WEIGHT",
    "MASTER",
    "LEVEL",
    "SCALE",
    "SCALE_GUARD",
    "SCALE_MAX",
    "DOT_GUARD",
    "SUM",
    "half_up",
    "half_up_hdl",
    "map_table",
    "level_table",
]

#: Operands that stream: activations and gradients. The exponent is a tensor's own and the program's business.
ACTIVATION = Fixed(width=24, frac=0)
#: Operands that stay: decoded weights, adapter words.
WEIGHT = Fixed(width=18, frac=0)
#: Adapter words, gradients and activations as they lie in memory.
MASTER = Fixed(width=32, frac=0)
#: A level of the codebook, a value of the dynamic map: both within [-1, 1], on the narrow side of a DSP slice.
LEVEL = Fixed(width=18, frac=16)
#: A block's scale has this many fraction bits more than a weight.
SCALE_GUARD = 6
SCALE = Fixed(width=24, frac=SCALE_GUARD)
#: Largest scale: its block's largest weight is the largest word.
SCALE_MAX = WEIGHT.hi << SCALE_GUARD
#: Fraction bits that the adapter's part gains before it is aligned with the base's.
DOT_GUARD = 8
#: Bits of a sum over a layer's whole input: 256 tiles of 64 products.
SUM = 56


def half_up(x, shift) -> np.ndarray:
    """``x * 2**-shift`` to the nearest integer, ties up.

    It takes one guard bit, and an increment.
    """
    x = np.asarray(x, np.int64)
    return ((x << 1 >> shift) + 1) >> 1


def half_up_hdl(x, shift):
    """Expression of signed ``x`` that :func:`half_up` models.

    ``shift`` is constant and at least 1.
    """
    return ((x >> (shift - 1)) + 1) >> 1


def map_table() -> np.ndarray:
    """bitsandbytes' dynamic map in units of :data:`LEVEL`, by code."""
    return LEVEL.encode(dynamic_map())


def level_table(book: Codebook = NF4) -> np.ndarray:
    """A codebook's levels in units of :data:`LEVEL`, by code."""
    return book.level_table(LEVEL.frac)
