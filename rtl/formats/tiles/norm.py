"""Commands and words of the norm engine."""

import math
from enum import IntEnum

from amaranth.hdl import signed
from amaranth.lib import data

from ..vector import ROOT_FRAC
from .codes import EDGE, WIDE

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
    "NormOpcode",
    "NormOperands",
    "POWER",
    "PULL",
    "PULLED",
    "PULL_WORD",
    "REST",
    "ROW",
    "ROW_TILES",
    "SIZE",
    "SPREAD",
    "UNIT",
    "at_once",
    "constant",
    "least_shift",
    "positions",
]


class NormOpcode(IntEnum):
    """Operations of the norm engine, on tiles in its slots.

    Statistics stay in the engine until the next command that makes such; those of BACK_SUMS hold as long as those of
    SUMS. A softmax of rows of several tiles: LARGEST over all of them, POWERS over all, then SHARES tile by tile; its
    gradient: PULLS, then SOFT_BACK. Attention's results are rows of mixed values: their sums of products with their
    gradients are those of probabilities with theirs, of fewer tiles.
    """

    SUMS = 0  #: statistics of groups of x; a: x
    NORM = 1  #: a tile normalised, times gain, plus bias; a: x
    BACK_SUMS = 2  #: the sums of the gradient, after SUMS of x; a: x, b: dy
    BACK = 3  #: gradient of a tile of x; a: x, b: dy
    SOFTMAX = 4  #: softmax of rows of a tile; a: scores
    SOFTMAX_BACK = 5  #: gradient of the scores; a: probabilities, b: their gradient
    LARGEST = 6  #: the largest score of each row; a: scores
    POWERS = 7  #: logarithms of each row's sum of powers above its largest score; a: scores
    SHARES = 8  #: a tile's softmax; a: scores
    PULLS = 9  #: sums of probabilities times their gradients; a: probabilities or results, b: their gradient
    SOFT_BACK = 10  #: gradient of a tile of scores; a: probabilities, b: their gradient


#: A row is one of a tile; SUMS, BACK_SUMS, LARGEST, POWERS and PULLS have the same rows of ``tiles`` consecutive slots.
NormOperands = data.StructLayout(
    {
        "a": 8,  #: slot of the first operand
        "b": 8,  #: slot of the second operand
        "o": 4,  #: slot of results
        "gain": 5,  #: slot of the gain; BACK_SUMS of rows: of the first tile's
        "bias": 5,  #: NORM: slot of the bias
        "tiles": 4,  #: tiles less 1 of a row, from ``a`` and ``b`` on
        "rows": 6,  #: rows less 1
        "features": 6,  #: features of a tile less 1; of a softmax: keys of its last tile less 1
        "a_row": 6,  #: first row of the operands
        "o_row": 6,  #: first row of the results
        "fresh": 1,  #: the result's slot is emptied first
        "by_row": 1,  #: SUMS: a group is a row over all tiles, else ``2**group`` features over all rows and tiles
        "group": 3,  #: SUMS: see ``by_row``
        "mantissa": 17,  #: SUMS: of eps, 16 bits; softmax: of the factor, to base 2 in SOFTMAX
        "exponent": signed(11),  #: eps or factor is ``mantissa * 2**exponent``; PULLS: bits that sums lose at least
        "more": 1,  #: LARGEST, POWERS, PULLS: the rows of the command before, which was such a one, go on
        "first": 6,  #: PULLS: the first feature of a tile that counts
        "_reserved": 58,
    }
)

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
#: Bits that a gradient of a softmax gains; bits of a row's pull.
LIFT, PULL_WORD = 8, 26
#: Tiles of a row of a softmax at most, and bits of what is added up of a row. A power is 2**27 at most, a product of
#: codes below 2**30; of 2**14 keys their sums are below 2**44.
ROW_TILES, ROW = 256, 45
#: Tiles that a PULLS of a program gathers: results depend on it where exponents differ, so it is the same everywhere.
PULLED = 2

assert ROW_TILES * EDGE << 2 * (WIDE - 1) <= 1 << ROW - 1
assert DEEP + ROOT_FRAC - UNIT == 18 and ALIGNED == DEEP + 10


def at_once(lanes: int) -> int:
    """Lanes of a row that are added up at once: as many as leave a position for each beat of a row of a tile."""
    return max(lanes * lanes // EDGE, 1)


def positions(lanes: int, *, columns: bool = False) -> int:
    """Cycles in which a segment's lanes are added up: one a cycle, or of a row some at once.

    ``columns``: lanes are features of groups.
    """
    return lanes if columns else lanes // at_once(lanes)


def least_shift(features: int) -> int:
    """Bits that sums of products of so many codes lose at least, so that they fit a pull."""
    return 2 * (WIDE - 1) + (features - 1).bit_length() - (PULL_WORD - 1)


def constant(value: float, bits: int = FACTOR) -> tuple[int, int]:
    """Mantissa of ``bits`` bits and exponent of a positive constant.

    ``mantissa * 2**exponent`` is the nearest there is.
    """
    fraction, exponent = math.frexp(value)
    mantissa = round(fraction * (1 << bits))
    if mantissa >> bits:
        mantissa, exponent = mantissa >> 1, exponent + 1
    return mantissa, exponent - bits
