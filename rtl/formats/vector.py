"""Words and tables of the vector engine."""
from enum import IntEnum

from amaranth.hdl import signed
from amaranth.lib import data

from .fixed import Fixed
from .interpolation import Interpolation

__all__ = ["VectorOpcode", "VectorOperands", "TERM", "GUARD", "LIFT", "GATE_INT", "GATE_FRAC", "GATE_LIFT",
           "FACTOR_FRAC", "SIGMOID", "SILU_SLOPE", "SUM", "ROOT_FRAC", "ROOTS", "MANTISSA", "EPS_SHIFT",
           "EXPONENT_FRAC", "EXPONENT", "LEVEL", "LEAST_GATE", "POWER_FRAC", "EXP2", "LOG2", "PROBABILITY_FRAC",
           "ELEMENTS", "PULLED", "FINE", "FINE_FROM", "UNIT", "ROW_SUM", "TargetWord", "LossWord"]


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
    SOFTMAX_SUMS = 9            # a: s; no result
    SOFTMAX = 10                # a: s; o: p; with targets, q: one beat, :data:`LossWord`
    SOFTMAX_BACKWARD_SUMS = 11  # a: p, b: dp; no result
    SOFTMAX_BACKWARD = 12       # a: p, b: dp; o: ds
    TARGETS = 13                # a: 32-bit words, one a token (:data:`TargetWord`), into the engine


#: A tensor is ``tiles`` x ``tokens`` x ``row`` beats in that order. Shifts, ``gate`` (the reference's ``gate_shift``)
#: among them: see the reference. ``eps << eps_shift`` is added to sums of squares; ``turn``: ROPE turns backward;
#: ``wide``: results of ADD have the 25 bits of an operand, not 24. Of a softmax: ``gate`` is the fraction bits of s,
#: less 8; elements beyond ``limit`` (``causal``: beyond ``limit`` plus the token's index) do not count; ``targets``: p
#: is less 1 at each token's target, and there is a loss.
VectorOperands = data.StructLayout({
    "row": 9, "tiles": 10, "tokens": 13, "left": 6, "right": 6, "shift": signed(7), "second_shift": signed(7),
    "gate": 6, "eps": 16, "eps_shift": 6, "turn": 1, "wide": 1, "limit": 17, "causal": 1, "targets": 1, "_reserved": 53,
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
#: Bits of a row's sum, the sign included: 2**:data:`PULLED` products of a term and a word, each up to 2**48.
SUM = 62
#: A reciprocal root is a mantissa in (0.5, 1) and a power of two; its table's argument has 16 bits.
ROOT_FRAC = 17
ROOTS = tuple(Interpolation(function=name, index=7, frac_in=16, frac_out=ROOT_FRAC) for name in ("rsqrt", "rsqrt_half"))
#: Of a sum's mantissa, the leading one included.
MANTISSA = 17
#: Largest ``eps_shift``.
EPS_SHIFT = 44

#: A softmax's argument, and what the elements of a row have in common: the logarithm of its sum, to base 2. Arguments
#: reach from -4096 to 4095, which a word of :data:`TERM` with a ``gate`` of :data:`LEAST_GATE` cannot leave.
EXPONENT_FRAC = 20
EXPONENT = 13 + EXPONENT_FRAC
LEVEL = signed(EXPONENT + 1)
LEAST_GATE = 4
#: Fraction bits of a power of two within [1, 2], and of a probability: a term then has room for the sum of both.
POWER_FRAC = 17
PROBABILITY_FRAC = 22
EXP2 = Interpolation(function="exp2", index=9, frac_in=EXPONENT_FRAC, frac_out=POWER_FRAC)
LOG2 = Interpolation(function="log2", index=8, frac_in=20, frac_out=EXPONENT_FRAC)
#: Bits of an element's index in a row of a softmax, and of a row whose gradient is taken (its sum is of 25-bit words).
ELEMENTS = 17
PULLED = 12
#: Where a row is summed, powers that are shifted by :data:`FINE_FROM` or more, guard bits included, keep this many bits
#: more than a probability has: a vocabulary's tail is long. The unit of the sum follows the largest power in steps of
#: 2**4, which leaves a shift of few choices in the loop that adds up. Bits of the sum of 2**17 powers; the table does
#: give 2, which is one more than as many bits below it hold.
FINE, FINE_FROM = 8, 12
UNIT = 4
ROW_SUM = PROBABILITY_FRAC + FINE + ELEMENTS + 2
#: A token's target; any bit of ``none`` tells that it has none.
TargetWord = data.StructLayout({"index": ELEMENTS, "none": 32 - ELEMENTS})
#: Base-2 cross entropy, 16 fraction bits, over tokens that had their target in their row, and how many had.
LossWord = data.StructLayout({"loss": 64, "tokens": 32, "_reserved": 32})
