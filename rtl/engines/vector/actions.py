"""Actions of the lanes for each opcode, and their stages."""

from enum import IntEnum
from typing import NamedTuple

from amaranth.hdl import Cat
from amaranth.lib import data

from ...formats.vector import VectorOpcode
from .lane import Factor, Fold, Lane, Operand, Other, Scale

__all__ = [
    "ACTIONS",
    "NORMS",
    "PLAIN",
    "POWERS",
    "PULLS",
    "SCALES",
    "SUMS",
    "TAG",
    "TWO",
    "USES_B",
    "USES_C",
    "Action",
    "Stage",
    "one_of",
]


class Stage(IntEnum):
    """Stages of a beat: cycles from the one in which its operands are taken.

    ::

        TAKE  CHOOSE  AIM      MASK  LOOK_UP             RIGHT LEFT FOLD              PRODUCT  ROUND   WORD
        0     1       2    3   4     5     6 ...   11    12    13   14 ...   18  19   20   21  22   23  24

    The inputs of a stage are computed in the ones before it, and registered.
    """

    TAKE = 0
    #: Operands of the products are chosen; values of rows and weights are there.
    CHOOSE = 1
    #: The target of the row and the last element that counts are there.
    AIM = 2
    #: Elements that do not count, and targets, are known.
    MASK = 4
    #: A table is looked up.
    LOOK_UP = 5
    #: The other product is shifted right, the first one left.
    RIGHT = 12
    LEFT = 13
    #: The other product enters the term.
    FOLD = 14
    #: The term was multiplied with its factor.
    PRODUCT = 20
    #: The result is shifted, and rounded in this cycle.
    ROUND = 22
    #: The result is there.
    WORD = Lane.latency


class Action(NamedTuple):
    """Operation of the lanes on a beat in one cycle."""

    scale: Scale = Scale.UNIT
    factor: Factor = Factor.UNIT
    other: Other = Other.NONE
    fold: Fold = Fold.NONE
    operand: Operand = Operand.A
    slope: int = 0  # the table is SiLU's slope, not the sigmoid
    sums: int = 0  # the products are added up
    kept: int = 0  # the word is added to the next
    o: int = 0
    q: int = 0


ACTIONS = {
    VectorOpcode.SWIGLU: (Action(factor=Factor.B, other=Other.TABLE, o=1),),
    VectorOpcode.SWIGLU_BACKWARD: (
        Action(factor=Factor.B, other=Other.TABLE, q=1),
        Action(factor=Factor.B, other=Other.TABLE, operand=Operand.C, slope=1, o=1),
    ),
    VectorOpcode.NORM_SUMS: (Action(factor=Factor.A, sums=1),),
    VectorOpcode.NORM: (Action(Scale.ROOT, Factor.WEIGHT, o=1),),
    VectorOpcode.NORM_BACKWARD_SUMS: (
        Action(factor=Factor.A, sums=1),
        Action(Scale.WEIGHT, Factor.A, operand=Operand.B, sums=1),
    ),
    VectorOpcode.NORM_BACKWARD: (Action(Scale.WEIGHT, Factor.ROOT, Other.PULL, Fold.MINUS, operand=Operand.B, o=1),),
    VectorOpcode.ADD: (Action(other=Other.WORD, fold=Fold.PLUS, o=1),),
    # Where rows turn backward or in their second half, the engine changes the sign.
    VectorOpcode.ROPE: (Action(Scale.COSINE, other=Other.TURN, fold=Fold.MINUS, o=1),),
    VectorOpcode.SOFTMAX_SUMS: (Action(other=Other.TABLE, sums=1),),
    VectorOpcode.SOFTMAX: (Action(other=Other.TABLE, o=1),),
    VectorOpcode.SOFTMAX_BACKWARD_SUMS: (Action(factor=Factor.B, sums=1),),
    VectorOpcode.SOFTMAX_BACKWARD: (Action(factor=Factor.A, other=Other.ROW, fold=Fold.MINUS, operand=Operand.B, o=1),),
    VectorOpcode.SCALE: (Action(factor=Factor.WEIGHT, o=1),),
    VectorOpcode.SCALE_BACKWARD: (Action(factor=Factor.B, q=1), Action(factor=Factor.WEIGHT, operand=Operand.B, o=1)),
}
ACTIONS[VectorOpcode.NORM_BACKWARD_GAIN] = (Action(Scale.ROOT, Factor.B, q=1), *ACTIONS[VectorOpcode.NORM_BACKWARD])
ACTIONS[VectorOpcode.NORM_BACKWARD_ADD] = (Action(operand=Operand.C, kept=1), *ACTIONS[VectorOpcode.NORM_BACKWARD])
NORMS = (
    VectorOpcode.NORM_SUMS,
    VectorOpcode.NORM,
    VectorOpcode.NORM_BACKWARD_SUMS,
    VectorOpcode.NORM_BACKWARD,
    VectorOpcode.NORM_BACKWARD_GAIN,
    VectorOpcode.NORM_BACKWARD_ADD,
)
SCALES = (VectorOpcode.SCALE, VectorOpcode.SCALE_BACKWARD)
POWERS = (VectorOpcode.SOFTMAX_SUMS, VectorOpcode.SOFTMAX)
PULLS = (VectorOpcode.SOFTMAX_BACKWARD_SUMS, VectorOpcode.SOFTMAX_BACKWARD)
PLAIN = (VectorOpcode.WEIGHTS, VectorOpcode.TARGETS)
SUMS = (
    VectorOpcode.NORM_SUMS,
    VectorOpcode.NORM_BACKWARD_SUMS,
    VectorOpcode.SOFTMAX_SUMS,
    VectorOpcode.SOFTMAX_BACKWARD_SUMS,
)
USES_B = (
    VectorOpcode.SWIGLU,
    VectorOpcode.SWIGLU_BACKWARD,
    VectorOpcode.ADD,
    VectorOpcode.NORM_BACKWARD_SUMS,
    VectorOpcode.NORM_BACKWARD,
    VectorOpcode.NORM_BACKWARD_GAIN,
    VectorOpcode.NORM_BACKWARD_ADD,
    VectorOpcode.SCALE_BACKWARD,
    *PULLS,
)
USES_C = (VectorOpcode.SWIGLU_BACKWARD, VectorOpcode.NORM_BACKWARD_ADD)
TWO = (
    VectorOpcode.SWIGLU_BACKWARD,
    VectorOpcode.NORM_BACKWARD_SUMS,
    VectorOpcode.NORM_BACKWARD_GAIN,
    VectorOpcode.NORM_BACKWARD_ADD,
    VectorOpcode.SCALE_BACKWARD,
)
#: Tag of a beat, which goes with it through all stages.
TAG = data.StructLayout(
    {
        "valid": 1,
        "phase": 1,
        "first": 1,
        "last": 1,
        "opening": 1,
        "later": 1,
        "scale": Scale,
        "factor": Factor,
        "other": Other,
        "fold": Fold,
        "operand": Operand,
        "slope": 1,
        "sums": 1,
        "kept": 1,
        "o": 1,
        "q": 1,
    }
)


def one_of(op, opcodes):
    """Whether ``op`` is one of ``opcodes``."""
    return Cat(op == each for each in opcodes).any()
