"""Commands of the linear engine: opcode and operand layout."""
from enum import IntEnum

from amaranth.lib import data

__all__ = ["LinearOpcode", "LinearOperands", "OPERAND_ARG"]


class LinearOpcode(IntEnum):
    """Opcodes."""

    PRODUCT = 0     #: tokens times a matrix, with an adapter beside it


#: Operands of the one command. ``inner``, ``outer``: tiles along the input and the output. ``by_column``: the
#: product with the transposed weights. ``a_base``: adapter words that multiply the input, ``inner * rank`` words
#: a row from here; ``b_base``: those that multiply h. ``early``: a tile of the input waits for its words, which are
#: counted as they are written in this order, and may go on at the start of operand memory.
LinearOperands = data.StructLayout({
    "inner": 8, "outer": 8, "tokens": 8, "rank": 6, "by_column": 1, "slot": 1,
    "x_base": 16, "a_base": 16,
    "b_base": 16, "hidden_shift": 6, "dot_shift": 6, "early": 1, "_pad": 3,
    "shift": 6, "_reserved": 58})

#: ``arg`` of a command that loads operands: the first word; ``early``: its words are counted for an early product.
OPERAND_ARG = data.StructLayout({"word": 31, "early": 1})
