"""Commands of the update engine: opcodes and operand layouts."""

from enum import IntEnum

from amaranth.hdl import signed
from amaranth.lib import data

__all__ = ["PackOperands", "UpdateOpcode", "UpdateOperands"]


class UpdateOpcode(IntEnum):
    """Opcodes."""

    SGD = 0  #: words less rate times gradients
    ADAMW = 1  #: new words and moments by AdamW
    PACK = 2  #: words or moments to blocks of codes; in machines with ``packing``
    UNPACK = 3  #: blocks of codes to words or moments; in machines with ``packing``
    ADAMW_CODES = 4  #: ADAMW; the exponent of records of gradients counts; in machines with ``records``


#: ``plan.language.descent`` makes the operands of ADAMW from learning rate, betas, eps, weight decay and step.
UpdateOperands = data.StructLayout(
    {
        "beats": 16,  #: beats of words, 1 or more
        "shift": 6,  #: SGD: bits that rate times gradient loses
        "decay_shift": 2,  #: ADAMW: see ``decay``
        "sign": 1,  #: ADAMW: Lion's rule, see :class:`~.adamw.AdamLane`
        "_pad0": 7,
        "rate": 17,  #: learning rate's mantissa, unsigned
        "exponent": signed(11),  #: ADAMW: exponent of the step, words' fraction bits included; with ``sign`` its shift
        "_pad1": 4,
        "beta1": 17,  #: ADAMW: beta1, 17 fraction bits
        "gradient": signed(10),  #: ADAMW: exponent of gradients
        "_pad2": 5,
        "beta2": 17,  #: ADAMW: beta2, 17 fraction bits, at least 0.5 without ``sign``
        "eps_exponent": signed(10),  #: ADAMW: exponent of ``eps``
        "_pad3": 5,
        "eps": 15,  #: ADAMW: mantissa of eps, its top bit set; or 0
        "decay": 17,  #: ADAMW: share that a word loses, 17 + 5 ``decay_shift`` fraction bits
    }
)

#: Blocks of 64 words, or of 64 pairs of moments.
PackOperands = data.StructLayout(
    {
        "blocks": 16,  #: blocks: even, 2 to 16
        "wide": 1,  #: codes of 8 bits, else of 4
        "moments": 1,  #: moments m and v, else words
        "_pad0": 14,
        "seed": 32,  #: PACK: seed of the random rounding, not 0
    }
)
