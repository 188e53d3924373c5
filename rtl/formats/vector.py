"""Words and tables of the vector engine."""
from enum import IntEnum

from amaranth.hdl import signed
from amaranth.lib import data

from .fixed import Fixed
from .interpolation import Interpolation

__all__ = ["VectorOpcode", "VectorOperands", "TERM", "GUARD", "LIFT", "GATE_INT", "GATE_FRAC", "GATE_LIFT",
           "FACTOR_FRAC", "SIGMOID", "SILU_SLOPE", "SUM", "ROOT_FRAC", "ROOTS", "MANTISSA", "EPS_SHIFT"]


class VectorOpcode(IntEnum):
    """What the engine does with the beats of its operand streams a, b, c; results leave at o, a second one at q."""

    WEIGHTS = 0                 # a: weights of a norm, into the engine
    SWIGLU = 1                  # a: gate, b: up
    SWIGLU_BACKWARD = 2         # a: gate, b: up, c: dy; o: dgate, q: dup
    NORM_SUMS = 3               # a: x; no result
    NORM = 4                    # a: x
    NORM_BACKWARD_SUMS = 5      # a: x, b: dy; no result
    NORM_BACKWARD = 6           # a: x, b: dy
    ADD = 7                     # a, b
    ROPE = 8                    # a: x, b: half a row of cosines, then of sines


#: A tensor is ``tiles`` x ``tokens`` x ``row`` beats in that order. Shifts, ``gate`` (the reference's ``gate_shift``)
#: among them: see the reference. ``eps << eps_shift`` is added to sums of squares; ``turn``: ROPE turns backward;
#: ``wide``: results of ADD have the 25 bits of an operand, not 24.
VectorOperands = data.StructLayout({
    "row": 9, "tiles": 10, "tokens": 13, "left": 6, "right": 6, "shift": signed(7), "second_shift": signed(7),
    "gate": 6, "eps": 16, "eps_shift": 6, "turn": 1, "wide": 1, "_reserved": 72,
})

#: What leaves the first products and enters the second; operands too, so that a residual stream, which is read by this
#: engine only, may have a bit more than what the linears read.
TERM = Fixed(width=25, frac=0)
#: Bits below a term in the sum that makes it.
GUARD = 3
#: Bits that products gain before they are shifted right.
LIFT = 7 + GUARD
#: The argument of the sigmoid, unsigned.
GATE_INT, GATE_FRAC = 4, 16
GATE_LIFT = 12
#: Fraction bits of what both tables and cosines give.
FACTOR_FRAC = 16
SIGMOID = Interpolation(function="sigmoid", index=9, frac_in=GATE_INT + GATE_FRAC, frac_out=FACTOR_FRAC)
SILU_SLOPE = Interpolation(function="silu_slope", index=9, frac_in=GATE_INT + GATE_FRAC, frac_out=FACTOR_FRAC)
#: Bits of a row's sum, the sign included: 2048 products of a term and a word.
SUM = 61
#: A reciprocal root is a mantissa in (0.5, 1) and a power of two; its table's argument has 16 bits.
ROOT_FRAC = 17
ROOTS = tuple(Interpolation(function=name, index=7, frac_in=16, frac_out=ROOT_FRAC) for name in ("rsqrt", "rsqrt_half"))
#: Of a sum's mantissa, the leading one included.
MANTISSA = 17
#: Largest ``eps_shift``.
EPS_SHIFT = 44
