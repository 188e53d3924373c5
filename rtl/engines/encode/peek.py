"""The way by which the encode engine reads the array's rows."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["PeekSignature"]


class PeekSignature(wiring.Signature):
    """Read port of the array's dense activations.

    An address is taken when granted; its data arrive in order, any time later.
    """

    def __init__(self, config):
        super().__init__(
            {
                "address": Out(
                    data.StructLayout(
                        {"valid": 1, "row": ceil_log2(config.rows), "address": ceil_log2(config.dense_depth)}
                    )
                ),
                "grant": In(1),
                "arrives": In(1),
                "data": In(config.activation.shape),
            }
        )
