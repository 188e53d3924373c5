"""Commands of the norm engine."""

from enum import IntEnum

from amaranth.hdl import signed
from amaranth.lib import data

__all__ = ["NormOpcode", "NormOperands"]


class NormOpcode(IntEnum):
    """Operations of the norm engine, on tiles in its slots.

    Statistics stay in the engine until the next SUMS, SOFTMAX or SOFTMAX_BACK; those of BACK_SUMS until the next of
    these or BACK_SUMS.
    """

    SUMS = 0  #: statistics of groups of x; a: x
    NORM = 1  #: a tile normalised, times gain, plus bias; a: x
    BACK_SUMS = 2  #: the sums of the gradient, after SUMS of x; a: dy, b: x
    BACK = 3  #: gradient of a tile of x; a: dy, b: x
    SOFTMAX = 4  #: softmax of rows of a tile; a: scores
    SOFTMAX_BACK = 5  #: gradient of the scores; a: probabilities, b: their gradient


#: A row is one of a tile; SUMS and BACK_SUMS have the same rows of ``tiles`` consecutive slots.
NormOperands = data.StructLayout(
    {
        "a": 8,  #: slot of the first operand
        "b": 8,  #: slot of the second operand
        "o": 4,  #: slot of results
        "gain": 5,  #: slot of the gain; BACK_SUMS of rows: of the first tile's
        "bias": 5,  #: NORM: slot of the bias
        "tiles": 4,  #: tiles less 1 of SUMS and BACK_SUMS, from ``a`` and ``b`` on
        "rows": 6,  #: rows less 1
        "features": 6,  #: features of a tile less 1; of a softmax: keys less 1
        "a_row": 6,  #: first row of the operands
        "o_row": 6,  #: first row of the results
        "fresh": 1,  #: the result's slot is emptied first
        "by_row": 1,  #: SUMS: a group is a row over all tiles, else ``2**group`` features over all rows and tiles
        "group": 3,  #: SUMS: see ``by_row``
        "mantissa": 17,  #: SUMS: of eps, 16 bits; softmax: of the factor, to base 2 in SOFTMAX
        "exponent": signed(11),  #: eps or factor is ``mantissa * 2**exponent``
        "_reserved": 65,
    }
)
