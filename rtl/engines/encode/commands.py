"""Commands of the encode engine: opcodes and operand layout."""

from enum import IntEnum

from amaranth.lib import data

__all__ = ["EncodeOpcode", "EncodeOperands"]


class EncodeOpcode(IntEnum):
    """Opcodes."""

    ACTIVATIONS = 0  #: dense activations of a row to codes and scales
    RAW = 1  #: dense activations of a row as int32, four a beat


#: Dense activations of one row of the array.
EncodeOperands = data.StructLayout(
    {
        "elements": 16,  #: activations, 1 or more
        "row": 8,  #: row of the array, which is the sample
        "scale": 8,  #: ACTIVATIONS: number of the tap's first block in the record
        "from": 16,  #: first dense activation
        "wide": 1,  #: ACTIVATIONS: codes of 8 bits, else of 4
        "_0": 15,
        "_1": 96,
    }
)
