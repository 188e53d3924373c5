"""Commands of the head: opcodes and operand layout."""
from enum import IntEnum

from amaranth.lib import data

__all__ = ["HeadOpcode", "HeadOperands"]


class HeadOpcode(IntEnum):
    """Opcodes."""

    STEP = 0


#: Operands of STEP. ``k``: virtual taps times rank. ``first``: loss sums start at 0. ``last``: emit them.
#: ``half``: which logits and labels. ``scale``: learning rate over batch, times ``2**(24 - 4 * q)``.
HeadOperands = data.StructLayout({
    "samples": 8, "k": 8, "classes": 8,
    "v_mode": 2, "apply": 1, "first": 1, "last": 1, "half": 1, "_flags": 2,     # w3
    "scale": 18, "_scale": 12, "q": 2,                                          # w4
    "mu": 16, "_reserved": 80,                                                  # w5 .. w7
})
