"""Work that a program weaves: products, and side work in pieces."""

from collections import deque
from dataclasses import dataclass, replace
from math import inf

from gradloom.program.assembler import Instruction
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.language import GRADIENT, LINEAR, UPDATE
from gradloom.rtl.shell.engines import LOAD, Engine

from ..engines.side import LEAST, SidePiece, store
from ..jobs import ProductJob, Transfer

__all__ = ["Main", "Side", "gap", "range_of"]


@dataclass
class Side:
    """Side work in pieces.

    ``order`` is its place among all work, ``lazy`` work lets other side work pass, unless products are far behind its
    ``place``. The engine works about ``pace`` cycles on a beat that is loaded.
    """

    order: int
    engine: Engine
    pieces: deque[SidePiece]
    lazy: bool = False
    place: float = inf
    pace: int = 1
    begun: bool = False

    @property
    def whole(self) -> bool:
        """Whether no part of it is half done.

        It has not begun, or a gradient's other half or an update is next.
        """
        first = self.pieces[0].instructions[0]
        return (
            not self.begun
            or first.engine == UPDATE
            or (first.engine == LOAD and first.operands["dest"] == GRADIENT.load("hidden"))
        )

    @property
    def reads(self) -> list[Transfer]:
        """What the next piece loads."""
        return [range_of(step) for step in self.pieces[0].instructions if step.engine == LOAD]

    def part(self) -> list[SidePiece]:
        """The next pieces that must not be parted."""
        rest = replace(self, pieces=deque(self.pieces), begun=True)
        made = [rest.pieces.popleft()]
        while rest.pieces and not rest.whole:
            made.append(rest.pieces.popleft())
        return made


@dataclass(frozen=True, kw_only=True)
class Main:
    """A product.

    One with an adapter leaves h under ``slot``; the two slots alternate. ``hidden``: where h goes to memory.
    """

    order: int
    job: ProductJob
    hidden: Transfer | None = None
    slot: int = 0

    def stores(self, beat: int) -> list[Instruction]:
        """Of its outputs, a tile each; ``beat``: bytes."""
        beats = self.job.result.beats // self.job.outer
        stride = self.job.stride or beats * beat
        return [
            store(self.job.result.offset + tile * stride, beats, LINEAR.store("outputs"))
            for tile in range(self.job.outer)
        ]


def gap(tokens: int, config: LanguageConfig, beats: int | None = None) -> int:
    """Beats that a product leaves on the bus during a tile.

    The array works meanwhile. The tile has ``beats`` beats, those of codes unless given; the result is at least a few.
    """
    tile = config.edge + 2 if beats is None else beats
    return max(config.tile_cycles(tokens) - tile - 16, LEAST)


def range_of(step: Instruction) -> Transfer:
    """The range of memory of a LOAD or STORE."""
    return Transfer(step.operands["offset"], step.operands["beats"], 0)
