"""Commands, words and tables of elementwise operations on tiles."""

from enum import IntEnum

from amaranth.hdl import signed
from amaranth.lib import data

from ..vector import FACTOR_FRAC

__all__ = ["CONSTANT", "EXPONENT_LIMIT", "FACTOR_FRAC", "LIFT", "RANGE", "ElementOpcode", "ElementOperands"]


class ElementOpcode(IntEnum):
    """Operations on rows of tiles of 16-bit codes.

    Operands are rows of slots a, b and c; results are rows of slot o. A code beyond ``features`` gives no result.
    """

    ADD = 0  #: a + b, under the larger exponent
    SCALE = 1  #: a times ``mantissa`` · 2**``exponent``
    FUNCTION = 2  #: g(a), or a · g(b), by ``table``, by ``times`` times the argument or c; times 2**``exponent``
    SQUARES = 3  #: sums of 2 x 2 pixels of a, which has twice the side and four times the rows
    JOIN = 4  #: beats of each row of a, ``split`` of them, then beats of b, under the larger exponent
    WORDS = 5  #: 32-bit words of port ``words`` times 2**``exponent``
    MASK = 6  #: a where the code of b is above 0, else 0: gradient of ReLU; a: dy, b: x or y
    MULTIPLY = 7  #: a · b
    LARGER = 8  #: the larger of a and b, both under the larger exponent
    EQUAL = 9  #: c where a and b are equal to half a unit of the larger exponent, else 0; a: x, b: a maximum, c: dy
    TABLE = 10  #: words of port ``words`` are pieces of ``table``, 8 a row from ``o_row`` on; they outlive programs


#: Bits of ``range``.
RANGE = 3

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
        "exponent": signed(11),  #: SCALE, WORDS, FUNCTION: -512 to 511
        "table": 4,  #: FUNCTION: whose pieces g has; TABLE: which is written
        "gate": 1,  #: FUNCTION: b is the argument, and a a factor; else a is the argument
        "times": 2,  #: FUNCTION: g is multiplied with 0: nothing more; 1: the argument; 2: c
        "mirror": 2,  #: FUNCTION: g below 0 is 0: g(|x|); 1: 1 - g(|x|); 2: -g(|x|); 3: of the next odd table
        "range": RANGE,  #: FUNCTION: log2 of where arguments end; those beyond are as the end
        "_reserved": 46,
    }
)


#: Bits that a code of 16 gains where codes of several exponents meet.
LIFT = 8
#: Bits of a constant's mantissa, which has no sign.
CONSTANT = 17
#: Exponents that a command brings are at least ``-EXPONENT_LIMIT`` and below it.
EXPONENT_LIMIT = 1 << 9
