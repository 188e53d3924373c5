"""Words and tables of the vector engine."""

from enum import IntEnum

from amaranth.hdl import signed
from amaranth.lib import data

from .fixed import Fixed
from .interpolation import Interpolation

__all__ = [
    "VectorOpcode",
    "VectorOperands",
    "TERM",
    "TILES",
    "GUARD",
    "LIFT",
    "GATE_INT",
    "GATE_FRAC",
    "GATE_LIFT",
    "FACTOR_FRAC",
    "FALL",
    "GATES",
    "SIGMOID",
    "SILU_SLOPE",
    "SUM",
    "ROOT_FRAC",
    "ROOTS",
    "MANTISSA",
    "EPS_SHIFT",
    "EXPONENT_FRAC",
    "EXPONENT",
    "LEVEL",
    "LEAST_GATE",
    "POWER_FRAC",
    "EXP2",
    "LOG2",
    "PROBABILITY_FRAC",
    "ELEMENTS",
    "AIM",
    "PULLED",
    "FINE",
    "FINE_FROM",
    "UNIT",
    "ROW_SUM",
    "TargetWord",
    "LossWord",
]


class VectorOpcode(IntEnum):
    """Operations of the vector engine.

    Operands stream in at a, b and c, results leave at o, a second one at q.
    """

    WEIGHTS = 0  #: stores the weights of a norm; a: weights
    SWIGLU = 1  #: silu(gate) · up, or gelu(gate) · up; a: gate, b: up
    SWIGLU_BACKWARD = 2  #: gradients of gate and up; a: gate, b: dy, c: up; o: dgate, q: dup
    NORM_SUMS = 3  #: sums of x² of each row, then reciprocal roots; a: x; no result
    NORM = 4  #: RMSNorm; a: x
    NORM_BACKWARD_SUMS = 5  #: sums of x² and of dy · w · x of each row; a: x, b: dy; no result
    NORM_BACKWARD = 6  #: gradient of RMSNorm; a: x, b: dy; o: dx
    ADD = 7  #: a + b
    ROPE = 8  #: rotation of rows by their token's angles; a: x, b: half a row of cosines, then sines
    SOFTMAX_SUMS = 9  #: log2 of the sum of powers of each row; a: s; no result
    SOFTMAX = 10  #: probabilities, less 1 at targets; a: s; o: p; with ``targets`` q: the loss, one beat
    SOFTMAX_BACKWARD_SUMS = 11  #: sums of p · dp of each row; a: p, b: dp; no result
    SOFTMAX_BACKWARD = 12  #: gradient of a softmax; a: p, b: dp; o: ds
    TARGETS = 13  #: stores the target of each token; a: 32-bit words, one a token
    SCALE = 14  #: each feature times its weight; a: x
    SCALE_BACKWARD = 15  #: gradient of SCALE, and what the weights' is a sum of; a: x, b: dy; o: dx, q: x · dy
    NORM_BACKWARD_GAIN = 16  #: NORM_BACKWARD, and what the weights' gradient is a sum of: q: dy · x · root
    NORM_BACKWARD_ADD = 17  #: NORM_BACKWARD, and a residual added to it; c: the residual; o: dx + c


#: Bits that count a tensor's tiles; of tiles of 64, a row of a softmax has 4,096 at most.
TILES = 13
#: A tensor is ``tiles`` x ``tokens`` x ``row`` beats, in this order. Shifts follow from the tensors' fraction bits:
#: ``systems/text/operations/vector.py``.
VectorOperands = data.StructLayout(
    {
        "row": 9,  #: beats of a token in a tile
        "tiles": TILES,  #: tiles of the tensor
        "tokens": 13,  #: tokens of the tensor
        "left": 6,  #: shift of the product a1 · b1: it is multiplied by 2**(7 - ``left``)
        "right": 6,  #: shift of the product a0 · b0: it is multiplied by 2**(7 - ``right``)
        "shift": signed(7),  #: bits that a result o loses, half up
        "second_shift": signed(7),  #: bits that a result q loses, half up
        "gate": 6,  #: SWIGLU: fraction bits of gate, less 4; SOFTMAX: fraction bits of s, less 8
        "eps": 16,  #: NORM: ``eps`` · 2**``eps_shift`` is added to sums of x²
        "eps_shift": 6,  #: NORM: 0 to 44
        "turn": 1,  #: ROPE: backward, by the negative angles
        "wide": 1,  #: ADD: results have 25 bits, else 24
        "causal": 1,  #: SOFTMAX: the token's index is added to ``limit``; SWIGLU: GELU by tanh, if the machine has it
        "targets": 1,  #: SOFTMAX: subtracts 1 at each token's target, and gives the loss
        "_unused": 3,  # ``limit`` varies from token to token: it begins with a word, and can be patched
        "limit": 18,  #: SOFTMAX: index of the last element of a row that counts
        "_reserved": 46,
    }
)

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
#: Of an activation ``x · g(x)``, with ``g(-x) = 1 - g(x)``: g and the activation's slope, for x from 0 to 16.
GATES = {
    "silu": (SIGMOID, SILU_SLOPE),
    "gelu_tanh": tuple(
        Interpolation(function=name, index=9, frac_in=GATE_INT + GATE_FRAC, frac_out=FACTOR_FRAC)
        for name in ("gelu_tanh_gate", "gelu_tanh_slope")
    ),
}
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
ELEMENTS = 18
PULLED = 12
#: Where a row is summed, powers that are shifted by :data:`FINE_FROM` or more, guard bits included, keep this many bits
#: more than a probability has: a vocabulary's tail is long. The unit of the sum follows the largest power in steps of
#: 2**4, which leaves a shift of few choices in the loop that adds up. Bits of the sum of 2**18 powers; the table does
#: give 2, which is one more than as many bits below it hold.
FINE, FINE_FROM = 8, 12
UNIT = 4
#: A fall of so many steps or more leaves nothing of a sum, whose topmost bit alone it would leave.
FALL = 12
ROW_SUM = PROBABILITY_FRAC + FINE + ELEMENTS + 2
#: Bits of a target's index.
AIM = ELEMENTS + 1
#: A token's target; any bit of ``none`` tells that it has none, and so does the last index, which no row reaches.
TargetWord = data.StructLayout({"index": AIM, "none": 32 - AIM})
#: Base-2 cross entropy, 16 fraction bits, over tokens that had their target in their row, and how many had.
LossWord = data.StructLayout({"loss": 64, "tokens": 32, "_reserved": 32})
