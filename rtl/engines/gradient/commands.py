"""Commands of the gradient engine: opcode and operand layout."""

from enum import IntEnum

from amaranth.lib import data

__all__ = ["HIDDEN_ARG", "GradientOpcode", "GradientOperands"]


class GradientOpcode(IntEnum):
    """Opcodes."""

    GRADIENT = 0  #: gradient of one adapter matrix: outer products of h and a streamed tensor, added over tokens


#: The streamed tensor arrives at ``gradient.x``; results leave by ``gradient.gradients``.
GradientOperands = data.StructLayout(
    {
        "tiles": 8,  #: tiles of ``edge`` features of the streamed tensor
        "tokens": 8,  #: tokens of the streamed tensor and of h
        "rank": 6,  #: rank of the adapter: rows of h, even
        "slot": 2,  #: slot of hidden memory that holds h
        "shift": 6,  #: bits that a sum loses, half up, before it is clipped to 24 bits
        "_pad": 2,
        "_reserved": 128,
    }
)

#: The h of a transfer.
HIDDEN_ARG = data.StructLayout(
    {
        "slot": 8,  #: slot of hidden memory
        "tokens": 8,  #: tokens of h
        "rank": 8,  #: rank indices of h
        "_reserved": 8,
    }
)
