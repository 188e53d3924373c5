"""Commands of the array engine: opcodes and operand layouts."""
from enum import IntEnum

from amaranth.lib import data

__all__ = ["ArrayOpcode", "PassOperands", "ConvolveOperands", "DenseOperands", "RECORD_ARG"]


class ArrayOpcode(IntEnum):
    """Opcodes."""

    FORWARD = 0     #: h of one tap, for a microbatch
    GRADIENT = 1    #: dA of one tap, and its update
    CONVOLVE = 2    #: one sample, up to a column's worth of output channels
    DENSE = 3       #: up to ``rows`` samples, up to a column's worth of outputs


#: FORWARD, GRADIENT. ``elements`` of tap ``tap``, for rows below ``samples``, in ``half``: codes from bank word
#: ``bank``, scales from block ``scale``, adapter words from ``lane``. ``wide``: codes of 8 bits, four bank words a
#: block, high nibbles first, through ``book``, which is even, and the one after it. The rest is the optimiser's.
PassOperands = data.StructLayout({
    "elements": 16, "tap": 4, "half": 1, "book": 2, "wide": 1, "samples": 8,
    "bank": 16, "scale": 16,
    "lane": 16, "_1": 16,
    "q": 2, "v_mode": 2, "apply": 1, "_2": 11, "mu": 16,
    "_3": 32,
})

#: CONVOLVE. ``source``: feature maps, else image. ``encode``: the input is a tap whose first block is ``scale``;
#: ``wide``: in codes of 8 bits.
#: ``to_dense``: elements of ``row``, position p's from ``target + p * stride`` on; else feature words from ``target``.
#: ``out_*``: size before pooling.
ConvolveOperands = data.StructLayout({
    "height": 8, "width": 8, "channels": 8, "pool": 3, "relu": 1, "source": 1, "encode": 1, "to_dense": 1, "wide": 1,
    "kernel_h": 3, "kernel_w": 3, "stride_h": 3, "stride_w": 3,
    "pad_top": 3, "pad_left": 3, "pad_bottom": 3, "pad_right": 3, "outputs": 5, "_1": 3,
    "weights": 16, "bias": 8, "scale": 8,
    "from": 16, "target": 16,
    "row": 6, "out_height": 8, "out_width": 8, "stride": 10,
})

#: DENSE. Rows below ``samples``: ``inputs`` elements from ``from`` on give ``outputs`` elements at ``target``.
DenseOperands = data.StructLayout({
    "inputs": 16, "samples": 8, "relu": 1, "outputs": 5, "_0": 2,
    "from": 16, "target": 16,
    "weights": 16, "bias": 8, "_1": 8,
    "_2": 64,
})

#: ``arg`` of a sample's record. It goes to ``row``, ``half``: beats below ``codes`` hold scales, those below ``logits``
#: codes.
RECORD_ARG = data.StructLayout({"row": 8, "half": 1, "codes": 11, "logits": 11, "_reserved": 1})
