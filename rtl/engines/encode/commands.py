"""Commands of the encode engine: opcodes and operand layout."""
from enum import IntEnum

from amaranth.lib import data

__all__ = ["EncodeOpcode", "EncodeOperands"]


class EncodeOpcode(IntEnum):
    """Opcodes."""

    ACTIVATIONS = 0     #: dense activations of a row, to codes and scales
    RAW = 1             #: dense activations of a row, four 32-bit words a beat


#: Operands of both. ``elements`` dense activations of ``row`` from ``from`` on; ``scale``: first block of the tap;
#: ``wide``: codes of 8 bits.
EncodeOperands = data.StructLayout({
    "elements": 16, "row": 8, "scale": 8,
    "from": 16, "wide": 1, "_0": 15,
    "_1": 96,
})
