"""Commands, words and tables of elementwise operations on tiles."""

from enum import IntEnum

from amaranth.hdl import signed
from amaranth.lib import data

from .interpolation import Interpolation
from .vector import FACTOR_FRAC, GATE_INT, SIGMOID, SILU_SLOPE

__all__ = [
    "CONSTANT",
    "EXPONENT_LIMIT",
    "FACTOR_FRAC",
    "GELU_SLOPE",
    "LIFT",
    "NORMAL",
    "TABLES",
    "ElementOpcode",
    "ElementOperands",
]


class ElementOpcode(IntEnum):
    """Operations on rows of tiles of 16-bit codes.

    Operands are rows of slots a, b and c; results are rows of slot o. A code beyond ``features`` gives no result.
    """

    ADD = 0  #: a + b, under the larger exponent
    SCALE = 1  #: a times ``mantissa`` · 2**``exponent``
    SILU = 2  #: silu(a)
    SILU_BACK = 3  #: gradient of SILU's x; a: dy, b: x
    GEGLU = 4  #: a · gelu(b); of the gradient: a: dy, b: gate; o: gradient of value
    GEGLU_BACK = 5  #: gradient of GEGLU's gate; a: dy, b: gate, c: value
    SQUARES = 6  #: sums of 2 x 2 pixels of a, which has twice the side and four times the rows
    JOIN = 7  #: beats of each row of a, ``split`` of them, then beats of b, under the larger exponent
    WORDS = 8  #: 32-bit words of port ``words`` times 2**``exponent``
    MASK = 9  #: a where the code of b is above 0, else 0: gradient of ReLU; a: dy, b: x or y
    MULTIPLY = 10  #: a · b
    LARGER = 11  #: the larger of a and b, both under the larger exponent
    EQUAL = 12  #: c where a and b are equal to half a unit of the larger exponent, else 0; a: x, b: a maximum, c: dy


#: Sizes and first rows of operands and results. A beat is 8 features. Slots and rows that are not used are not looked
#: at, nor are operands of other opcodes.
ElementOperands = data.StructLayout(
    {
        "a": 8,  #: slot of a; SQUARES: its first
        "b": 8,  #: slot of b
        "c": 8,  #: slot of c, which has rows and beats of a
        "o": 4,  #: slot of results
        "rows": 6,  #: rows of the result less 1
        "features": 6,  #: features of the result less 1
        "a_row": 6,  #: first row of a; SQUARES: even
        "a_beat": 3,  #: first beat of each row of a
        "b_row": 6,  #: first row of b
        "b_beat": 3,  #: first beat of each row of b
        "o_row": 6,  #: first row of the result
        "split": 3,  #: JOIN: beats that are a's; 0: all are b's
        "one_row": 1,  #: row ``b_row`` of b is that of all rows
        "subtract": 1,  #: ADD: a - b
        "fresh": 1,  #: the first result of slot o: clears its peak
        "positive": 1,  #: results below 0 become 0
        "side": 3,  #: SQUARES: log2 of the result's pixels in a row of an image, up to 6
        "mantissa": 17,  #: SCALE: of the constant
        "exponent": signed(11),  #: SCALE, WORDS: -512 to 511
        "_reserved": 58,
    }
)


#: Bits that a code of 16 gains where codes of several exponents meet.
LIFT = 8
#: Bits of a constant's mantissa, which has no sign.
CONSTANT = 17
#: Exponents that a command brings are at least ``-EXPONENT_LIMIT`` and below it.
EXPONENT_LIMIT = 1 << 9
#: The table's argument is below 8, with as many bits as that of the sigmoid.
_NORMAL_INT = 3
NORMAL = Interpolation(function="normal", index=9, frac_in=20, frac_out=FACTOR_FRAC)
GELU_SLOPE = Interpolation(function="gelu_slope", index=9, frac_in=20, frac_out=FACTOR_FRAC)
#: Each table with the bits that its argument has above the point.
TABLES = ((SIGMOID, GATE_INT), (SILU_SLOPE, GATE_INT), (NORMAL, _NORMAL_INT), (GELU_SLOPE, _NORMAL_INT))
