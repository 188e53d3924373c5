"""Commands of the gradient engine: opcode and operand layout."""
from enum import IntEnum

from amaranth.lib import data

__all__ = ["GradientOpcode", "GradientOperands"]


class GradientOpcode(IntEnum):
    """Opcodes."""

    GRADIENT = 0    #: of one adapter matrix


#: Operands of the one command: ``tiles`` of the streamed tensor, shift of the results.
GradientOperands = data.StructLayout({
    "tiles": 8, "tokens": 8, "rank": 6, "slot": 2, "shift": 6, "_pad": 2, "_reserved": 128})
