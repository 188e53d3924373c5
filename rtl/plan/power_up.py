"""Memory in block RAM at power-up, with data and programs.

Data lie in blocks, and each program works on any block: it names places by their offset in the window, and the
processor moves the window from block to block (``firmware/tuner_main.c``). The first block holds the header, and all
that blocks share lies behind the last one.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .program.assembler import Assembler

__all__ = ["BEAT", "BLOCK", "PowerUp", "Stage", "write_header"]

#: Bytes of a block: a window begins at a multiple of this.
BLOCK = 4096
#: Bytes of a beat of the memory.
BEAT = 16
_MAGIC = b"GLTN"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A program that runs ``runs`` times over ``blocks`` blocks.

    The first is ``block``. ``told``: where in a block lies what the UART is told of it; 0: nothing.
    """

    name: str
    program: str
    block: int
    blocks: int
    runs: int = 1
    told: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class PowerUp:
    """Contents of the memory at power-up.

    ``image``: its bytes, whole beats. ``stages``: what the firmware runs, in order. ``pause``: cycles from the end of
    the firmware's lines to the next repeat. ``programs``: where each begins, and what it is; ``sizes``: bytes by what
    they hold.
    """

    stages: tuple[Stage, ...]
    image: bytes = field(repr=False)
    pause: int
    programs: dict[str, tuple[int, Assembler]] = field(repr=False)
    sizes: dict[str, int]

    def text(self) -> str:
        """The image as ``$readmemh`` reads it, a beat a line."""
        return "".join(
            f"{int.from_bytes(self.image[at : at + BEAT], 'little'):032x}\n" for at in range(0, len(self.image), BEAT)
        )


def write_header(
    image: bytearray,
    stages: Sequence[Stage],
    programs: Mapping[str, tuple[int, Assembler]],
    *,
    pause: int,
    result: tuple[int, int] = (0, 0),
    biases: tuple[int, int] = (0, 0),
) -> None:
    """Writes what the firmware reads first.

    Parameters
    ----------
    image : bytearray
        The whole memory, whose first block is free.
    pause : int
        See :class:`PowerUp`.
    result : tuple of int
        Offset and words of the adapter, whose sum is told at the end; no words: nothing is told.
    biases : tuple of int
        Offset of a bias for each class, and the number of classes. With classes a block's answer is the class of the
        greatest sum with its bias, and its label is the last word of the block.
    """
    header = _MAGIC + struct.pack("<7I", len(image), len(stages), *result, pause, *biases)
    for stage in stages:
        at, asm = programs[stage.program]
        header += struct.pack(
            "<8s6I", stage.name.encode("ascii"), at, len(asm), stage.block, stage.blocks, stage.runs, stage.told
        )
    image[: len(header)] = header
