"""Blocks of 4- or 8-bit codes that the machine writes and reads.

For words of adapters and for AdamW's moments; ``docs/explanation/number-formats.md`` says why they are what they are. A
float here is float32 without infinities, whose exponent 0 is zero; a word is one too, by its magnitude (of a negative
word, less 1).
"""

from dataclasses import dataclass

from ..codebook import NF4
from .linear import LEVEL, level_table

__all__ = ["BLOCKS", "FINE", "INVERSES", "LEVELS", "GAPS", "LONG", "NOISE", "RECORD", "SIDES", "TOP", "PackedShape"]

#: Most blocks of a group; even and odd ones each have a largest scale, which theirs are stored relative to.
BLOCKS, SIDES = 16, 2
#: Bytes of a group's record: both largest scales, 16 bits each, 4 of zeros, a code a block; padded to beats.
RECORD = 8 + BLOCKS
#: A scale is a float of so many fraction bits, counted through exponents: a sixteenth of an octave, and of v an eighth.
FINE, LONG = 4, 3
#: Largest scale of either kind.
TOP = {FINE: (255 << FINE) - 1, LONG: (255 << LONG) - 1}
#: ``2**20 / (16 + f)`` up, by the fraction f of a scale.
INVERSES = tuple(-(-(1 << 20) // (16 + f)) for f in range(16))
#: NF4's levels and the distances to the next ones, 16 fraction bits.
LEVELS = tuple(int(level) for level in level_table(NF4))
GAPS = tuple(b - a for a, b in zip(LEVELS, LEVELS[1:])) + (0,)
#: Bits that decide whether a code is rounded up: of 8 bits, of NF4.
NOISE = {"wide": LEVEL.frac - 7, "narrow": 8}


@dataclass(frozen=True, kw_only=True)
class PackedShape:
    """Bytes of ``blocks`` blocks of codes, with a record for each group.

    A block has ``edge`` codes of 8 bits (``wide``) or 4. A record lies behind each group of blocks.

    Blocks of words are rows of tiles, as the tensor lies. Of moments an even block is of m, the odd one behind it the v
    of the same words; with 8-bit codes their halves alternate, so that two beats hold codes of the same words.
    """

    blocks: int
    wide: bool
    edge: int = 64

    def __post_init__(self) -> None:
        if self.blocks < 2 or self.blocks % SIDES:
            raise ValueError(f"blocks={self.blocks}: must be even, and at least 2")

    @property
    def beat(self) -> int:
        """Bytes of a beat: a block of 4-bit codes."""
        return self.edge // 2

    @property
    def record(self) -> int:
        """Beats of a record."""
        return -(-RECORD // self.beat)

    @property
    def groups(self) -> tuple[int, ...]:
        """Blocks of each group."""
        whole, rest = divmod(self.blocks, BLOCKS)
        return (BLOCKS,) * whole + (rest,) * bool(rest)

    def codes(self, blocks: int) -> int:
        """Beats of the codes of ``blocks`` blocks."""
        return blocks * (2 if self.wide else 1)

    @property
    def bytes(self) -> int:
        """Bytes of all codes and records."""
        return self.beat * (self.codes(self.blocks) + self.record * len(self.groups))
