"""Commands of the linear engine: opcode and operand layout."""

from enum import IntEnum

from amaranth.lib import data

__all__ = ["LANES_ARG", "LinearOpcode", "LinearOperands", "OPERAND_ARG"]


class LinearOpcode(IntEnum):
    """Opcodes."""

    PRODUCT = 0  #: Y = X Wᵀ + h Bᵀ with h = X Aᵀ: tokens times a matrix, beside it an adapter


#: Weights arrive at ``linear.tiles``, results leave by ``linear.outputs``. A shift drops bits, half up; then the
#: result is clipped to 24 bits.
LinearOperands = data.StructLayout(
    {
        "inner": 8,  #: tiles of ``edge`` features of the input
        "outer": 8,  #: tiles of ``edge`` features of the output
        "tokens": 8,  #: tokens of input and output
        "rank": 6,  #: rank of the adapter; 0: no adapter
        "by_column": 1,  #: product with the transposed weights
        "slot": 1,  #: slot of hidden memory that takes h
        "x_base": 16,  #: first word of the input in each bank of operand memory
        "a_base": 16,  #: first adapter word that multiplies the input; ``inner`` times ``rank`` words in each bank
        "b_base": 16,  #: first adapter word that multiplies h
        "hidden_shift": 6,  #: bits that a sum of h loses
        "dot_shift": 6,  #: bits that a product of h and B loses, by floor, before it is added to the sum of the base
        "early": 1,  #: a tile of the input starts when its words are written; the input may wrap to word 0
        "_pad": 3,
        "shift": 6,  #: bits that a result loses
        "_reserved": 58,
    }
)

#: First word of a layer's input in operand memory.
OPERAND_ARG = data.StructLayout(
    {
        "word": 31,  #: first word in each bank
        "early": 1,  #: the words are counted for a product with ``early``
    }
)

#: Place of adapter words.
LANES_ARG = data.StructLayout(
    {
        "word": 32  #: first word in each bank
    }
)
