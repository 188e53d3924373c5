"""Memory in block RAM at power-up, with data and programs.

Data lie in blocks, and each program works on any block: it names places by their offset in the window, and the
processor moves the window from block to block (``firmware/chip/runs/tuner_main.c``). The first block holds the header,
and all that blocks share lies behind the last one.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from gradloom.rtl.shell.signature import COMMAND_BYTES

from .assembler import Assembler
from .memory import AreaKind, MemoryMap, rounded

__all__ = ["PAUSE_SECONDS", "PowerUpMemory", "PowerUp", "PowerUpStage", "usual_pause"]

#: Bytes of a beat of the memory.
BEAT = 16
#: From the end of the lines on the UART to their next repeat.
PAUSE_SECONDS = 2
_MAGIC = b"GLTN"


@dataclass(frozen=True, kw_only=True)
class PowerUpStage:
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

    stages: tuple[PowerUpStage, ...]
    image: bytes = field(repr=False)
    pause: int
    programs: dict[str, tuple[int, Assembler]] = field(repr=False)
    sizes: dict[str, int]

    def text(self) -> str:
        """The image as ``$readmemh`` reads it, a beat a line."""
        return "".join(
            f"{int.from_bytes(self.image[at : at + BEAT], 'little'):032x}\n" for at in range(0, len(self.image), BEAT)
        )


class PowerUpMemory:
    """Contents of the memory so far, and the programs in it by name.

    ``image`` begins with the header's block and all blocks of data; what they share is placed behind them.
    """

    def __init__(self, image: bytearray) -> None:
        self.image, self.memory = image, MemoryMap(len(image), align=1)
        self.programs: dict[str, tuple[int, Assembler]] = {}

    def place(self, name: str, content: bytes) -> tuple[int, int]:
        """Appends content; returns its offset and bytes."""
        at = self.memory.place(name, len(content), AreaKind.FROZEN)
        self.image.extend(bytes(at - len(self.image)) + content)
        return at, len(content)

    def add(self, name: str, program: Assembler) -> None:
        """Appends a program: it begins at a multiple of a command."""
        self.memory.used = rounded(self.memory.used, COMMAND_BYTES)
        self.programs[name] = self.place(f"program {name}", program.code)[0], program

    def end(
        self,
        stages: Sequence[PowerUpStage],
        *,
        room: int,
        needs: str,
        remedy: str = "",
        pause: int,
        result: tuple[int, int] = (0, 0),
        biases: tuple[int, int] = (0, 0),
    ) -> bytes:
        """Writes what the firmware reads first, and returns the whole image.

        Parameters
        ----------
        stages : sequence of Stage
        room : int
            Bytes that there are.
        needs, remedy : str
            Beginning and end of the :class:`ValueError` where the image is larger.
        pause : int
            See :class:`PowerUp`; below 2^32.
        result : tuple of int
            Offset and words of the adapter, whose sum is told at the end; no words: nothing is told.
        biases : tuple of int
            Offset of a bias for each class, and the number of classes. With classes a block's answer is the class of
            the greatest sum with its bias, and its label is the last word of the block.
        """
        if not 0 < pause < 1 << 32:
            raise ValueError(f"pause={pause}: must be from 1 to 2^32 - 1 cycles")
        self.image.extend(bytes(-len(self.image) % BEAT))
        if len(self.image) > room:
            raise ValueError(f"{needs} {len(self.image)} bytes of memory, there are {room}{remedy}")
        header = _MAGIC + struct.pack("<7I", len(self.image), len(stages), *result, pause, *biases)
        for stage in stages:
            at, program = self.programs[stage.program]
            header += struct.pack(
                "<8s6I", stage.name.encode("ascii"), at, len(program), stage.block, stage.blocks, stage.runs, stage.told
            )
        self.image[: len(header)] = header
        return bytes(self.image)


def usual_pause(clock_mhz: float) -> int:
    """Cycles of :data:`PAUSE_SECONDS`."""
    return round(PAUSE_SECONDS * clock_mhz * 10**6)
