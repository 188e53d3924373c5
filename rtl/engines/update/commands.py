"""Commands of the update engine: opcodes and operand layouts."""
from enum import IntEnum

from amaranth.hdl import signed
from amaranth.lib import data

__all__ = ["PackOperands", "UpdateOpcode", "UpdateOperands"]


class UpdateOpcode(IntEnum):
    """Opcodes."""

    SGD = 0
    ADAMW = 1
    # With ``packing``: :class:`~.pack.PackUnit`.
    PACK = 2
    UNPACK = 3


#: Operands of SGD and ADAMW. ``beats``: of words; ``rate``: the learning rate's mantissa. SGD: ``shift`` of its product
#: with a gradient. AdamW: the betas with 17 fraction bits, ``beta2`` at least a half; ``exponent``, ``eps``,
#: ``eps_exponent`` and ``gradient`` as ``plan.descent`` makes them, the top bit of an ``eps`` other than 0 is 1; words
#: lose ``decay * 2**-(17 + 5 * decay_shift)`` of themselves.
UpdateOperands = data.StructLayout({
    "beats": 16, "shift": 6, "decay_shift": 2, "_pad0": 8,
    "rate": 17, "exponent": signed(11), "_pad1": 4,
    "beta1": 17, "gradient": signed(10), "_pad2": 5,
    "beta2": 17, "eps_exponent": signed(10), "_pad3": 5,
    "eps": 15, "decay": 17})

#: Operands of PACK and UNPACK. ``blocks``: even, at most 16; ``wide``: codes of 8 bits, not 4; ``moments``: m and v;
#: ``seed`` of what is by chance, not 0.
PackOperands = data.StructLayout({"blocks": 16, "wide": 1, "moments": 1, "_pad0": 14, "seed": 32})
