"""Commands of the linear engine: opcode and operand layout."""

from enum import IntEnum

from amaranth.lib import data

__all__ = ["LANES_ARG", "LinearOpcode", "LinearOperands", "OPERAND_ARG", "TABLE_ARG", "TILE_ARG", "TileKind"]


class LinearOpcode(IntEnum):
    """Opcodes."""

    PRODUCT = 0  #: Y = X Wᵀ + h Bᵀ with h = X Aᵀ: tokens times a matrix, beside it an adapter


#: Weights arrive at ``linear.tiles``, results leave by ``linear.outputs``. A shift drops bits, half up; then the
#: result is clipped to 24 bits.
LinearOperands = data.StructLayout(
    {
        "inner": 8,  #: tiles of ``edge`` features of the input
        "outer": 8,  #: tiles of ``edge`` features of the output
        "tokens": 8,  #: tokens of input and output
        "rank": 6,  #: rank of the adapter; 0: no adapter
        "by_column": 1,  #: product with the transposed weights
        "slot": 1,  #: slot of hidden memory that takes h
        "x_base": 16,  #: first word of the input in each bank of operand memory
        "a_base": 16,  #: first adapter word that multiplies the input; ``inner`` times ``rank`` words in each bank
        "b_base": 16,  #: first adapter word that multiplies h
        "hidden_shift": 6,  #: bits that a sum of h loses
        "dot_shift": 6,  #: bits that a product of h and B loses, by floor, before it is added to the sum of the base
        "early": 1,  #: tiles of the input start when their words are there; it may wrap, and for one panel pass by
        "_pad": 3,
        "shift": 6,  #: bits that a result loses
        "_reserved": 58,
    }
)

#: First word of a layer's input in operand memory.
OPERAND_ARG = data.StructLayout(
    {
        "word": 31,  #: first word in each bank
        "early": 1,  #: the words are counted for a product with ``early``
    }
)

#: Place of adapter words.
LANES_ARG = data.StructLayout(
    {
        "word": 32  #: first word in each bank
    }
)


class TileKind(IntEnum):
    """Kind of the rows of a tile."""

    CODES = 0  #: a row of 4-bit codes a beat, behind two beats of their scales
    WORDS = 1  #: words of 32 bits as activations lie in memory, a row in 8 beats
    HALVES = 2  #: signed words of 16 bits, a row in 4 beats

    @property
    def row_beats(self) -> int:
        """Beats of a row."""
        return {TileKind.CODES: 1, TileKind.WORDS: 8, TileKind.HALVES: 4}[self]


#: Second-level scales of a weight tensor and their offset, or a codebook.
TABLE_ARG = data.StructLayout(
    {
        "groups": 16,  #: second-level scales; the offset follows them
        "bias": 9,  #: 150 less the fraction bits of the words that scales become
        "levels": 1,  #: the beats are a codebook of 16 levels
        "_reserved": 6,
    }
)
#: Tiles of one weight tensor.
TILE_ARG = data.StructLayout(
    {
        "block": 20,  #: codes: number of the first tile's first block in the tensor
        "blocks_per_row": 10,  #: codes: blocks in a row of the tensor
        "kind": 2,  #: codes (0), 32-bit words (1) or 16-bit words (2)
    }
)
