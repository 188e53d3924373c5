"""Commands of the head: opcodes and operand layout."""

from enum import IntEnum

from amaranth.lib import data

__all__ = ["HeadOpcode", "HeadOperands", "LABELS_ARG"]


class HeadOpcode(IntEnum):
    """Opcodes."""

    STEP = 0  #: logits, loss, d', dh, dB and the update of B of one microbatch


#: A step has one or more microbatches; ``first`` and ``last`` bound it.
HeadOperands = data.StructLayout(
    {
        "samples": 8,  #: samples of the microbatch
        "k": 8,  #: rank indices of all taps: taps times rank
        "classes": 8,  #: classes of the network
        "v_mode": 2,  #: the old velocity is dropped (0), kept (1) or multiplied by ``mu`` (2)
        "apply": 1,  #: the velocity changes B, too
        "first": 1,  #: the sums of loss, samples and right answers start at 0
        "last": 1,  #: these sums leave by ``head.losses``
        "half": 1,  #: half of the memories of base logits and labels
        "_flags": 2,
        "scale": 18,  #: learning rate / batch, 24 - 4 ``q`` fraction bits
        "_scale": 12,
        "q": 2,  #: gradients have 24 - 4 ``q`` fraction bits
        "mu": 16,  #: momentum, 16 fraction bits
        "_reserved": 80,
    }
)

#: Place of labels.
LABELS_ARG = data.StructLayout(
    {
        "half": 32  #: half of the label memory
    }
)
