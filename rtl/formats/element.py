"""Words and tables of elementwise operations on tiles of codes."""

from .interpolation import Interpolation
from .vector import FACTOR_FRAC, GATE_INT, SIGMOID, SILU_SLOPE

__all__ = ["CONSTANT", "EXPONENT_LIMIT", "FACTOR_FRAC", "GELU_SLOPE", "LIFT", "NORMAL", "TABLES"]

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
