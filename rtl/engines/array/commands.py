"""Commands of the array engine: opcodes and operand layouts."""

from enum import IntEnum

from amaranth.lib import data

__all__ = ["ArrayOpcode", "BOOKS_ARG", "ConvolveOperands", "DenseOperands", "PassOperands", "RECORD_ARG", "WORD_ARG"]


class ArrayOpcode(IntEnum):
    """Opcodes."""

    FORWARD = 0  #: h of one tap for all samples, to the head
    GRADIENT = 1  #: dA of one tap from the head's dh, and the update of A
    CONVOLVE = 2  #: convolution, bias, ReLU and max-pool of one sample
    DENSE = 3  #: product, bias and ReLU of a dense layer for all samples


#: One tap of up to ``rows`` samples, a sample a row. GRADIENT also updates the tap's adapter words.
PassOperands = data.StructLayout(
    {
        "elements": 16,  #: elements of the tap, 1 or more
        "tap": 4,  #: number of the tap: its place in h and dh of the head
        "half": 1,  #: half of the rows' record memory that holds the samples
        "book": 2,  #: codebook of the codes; with ``wide`` even: of the high nibbles, the next book of the low ones
        "wide": 1,  #: codes of 8 bits: four bank words a block, high nibbles first; else of 4 bits, two bank words
        "samples": 8,  #: samples, in rows 0 to ``samples`` - 1
        "bank": 16,  #: first bank word of the tap's codes in a row
        "scale": 16,  #: number of the tap's first block in a row
        "lane": 16,  #: first adapter word of the tap in each column
        "_1": 16,
        "q": 2,  #: GRADIENT: gradients have 24 - 4 ``q`` fraction bits
        "v_mode": 2,  #: GRADIENT: the old velocity is dropped (0), kept (1) or multiplied by ``mu`` (2)
        "apply": 1,  #: GRADIENT: the velocity changes the adapter words, too
        "_2": 11,
        "mu": 16,  #: GRADIENT: momentum, 16 fraction bits
        "_3": 32,
    }
)

#: A convolution of one sample with bias, optional ReLU and max-pool, for one to ``columns`` output channels.
ConvolveOperands = data.StructLayout(
    {
        "height": 8,  #: rows of the input
        "width": 8,  #: columns of the input
        "channels": 8,  #: channels of the input
        "pool": 3,  #: edge of the max-pool, in positions; 1: none
        "relu": 1,  #: ReLU before the max-pool
        "source": 1,  #: input memory: image (0) or feature maps (1)
        "encode": 1,  #: the input is a tap: it goes to the encoder, too
        "to_dense": 1,  #: results go to feature maps (0) or to dense activations (1)
        "wide": 1,  #: with ``encode``: codes of 8 bits, else of 4
        "kernel_h": 3,  #: rows of the kernel
        "kernel_w": 3,  #: columns of the kernel
        "stride_h": 3,  #: rows from a window to the next
        "stride_w": 3,  #: columns from a window to the next
        "pad_top": 3,  #: rows of zeros above the input
        "pad_left": 3,  #: columns of zeros left of the input
        "pad_bottom": 3,  #: rows of zeros below the input
        "pad_right": 3,  #: columns of zeros right of the input
        "outputs": 5,  #: output channels
        "_1": 3,
        "weights": 16,  #: first weight word
        "bias": 8,  #: bias word
        "scale": 8,  #: with ``encode``: number of the tap's first block in the record
        "from": 16,  #: first pixel of the image, or first feature word
        "target": 16,  #: first feature word, or first dense activation
        "row": 6,  #: with ``to_dense``: row of the array, which is the sample
        "out_height": 8,  #: rows of the result before the max-pool
        "out_width": 8,  #: columns of the result before the max-pool
        "stride": 10,  #: with ``to_dense``: dense activations from a position to the next
    }
)

#: A dense layer of up to ``rows`` samples, a sample a row, with bias and optional ReLU.
DenseOperands = data.StructLayout(
    {
        "inputs": 16,  #: inputs of the layer
        "samples": 8,  #: samples, in rows 0 to ``samples`` - 1
        "relu": 1,  #: ReLU of the results
        "outputs": 5,  #: outputs, one to ``columns``
        "_0": 2,
        "from": 16,  #: first dense activation that is read, in each row
        "target": 16,  #: first dense activation that is written, in each row
        "weights": 16,  #: first weight word
        "bias": 8,  #: bias word
        "_1": 8,
        "_2": 64,
    }
)

#: Destination of a sample's cache record, and the places of its parts.
RECORD_ARG = data.StructLayout(
    {
        "row": 8,  #: row of the array, which is the sample
        "half": 1,  #: half of the row's record memory
        "codes": 11,  #: first beat of codes; beats before it hold scales
        "logits": 11,  #: first beat of base logits
        "_reserved": 1,
    }
)

#: Place in a memory of one word a column.
WORD_ARG = data.StructLayout(
    {
        "word": 32  #: first word
    }
)

#: Place in the codebooks and thresholds.
BOOKS_ARG = data.StructLayout(
    {
        "beat": 32  #: first beat: 0 to 7 hold levels, 16 to 30 thresholds
    }
)
