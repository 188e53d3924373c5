"""A step that is too long for one program, as pieces: programs that run one after another.

The list of jobs is written twice. A :class:`Survey` keeps no job: it notes in which widths each tensor is read, and in
which pieces. :class:`Pieces` then knows where each tensor lies, writes a piece when its last job is known, and forgets
it. A piece ends where an operation ends. It begins with empty slots: what another piece made comes from memory.

A tensor of one piece alone lies in memory that all pieces share. All others have places of their own, from a page on.
So pieces of like layers have the same commands but for their offsets, and take the same cycles.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from gradloom.program.memory import PAGE, AreaKind, MemoryMap, rounded
from gradloom.program.placed import PlacedProgram

from .drafts import Build, Draft, DraftValue, Sketch
from .jobs import LoadJob, StoreJob, TileJob
from .layout import Tiles
from .tiling import Tiler

__all__ = ["Pieces", "Survey"]

#: Jobs of a piece, at least.
_LEAST = 4_000


@dataclass
class _Noted:
    """A tensor: widths in which it is read, by their sizes, and pieces that make, read or show it."""

    sizes: dict[int, int] = field(default_factory=dict)
    pieces: set[int] = field(default_factory=set)


class _Counted(Tiler):
    """Counts jobs, so that pieces end at the same ones in both writings."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.program = PlacedProgram(config, memory=MemoryMap(align=PAGE))
        #: Number of the piece, and its jobs so far.
        self.piece = self.pending = 0

    def put(self, content: bytes) -> int:
        """Room for bytes that are there before; they are not kept."""
        return self.room(len(content), AreaKind.FROZEN)

    def add(self, engine: str, build: Build, results: int = 1) -> None:
        """See :class:`Tiler`."""
        self.pending += 1

    def ends(self) -> bool:
        """An operation ends; whether its piece does."""
        is_long = self.pending >= _LEAST
        if is_long:
            self.write()
        return is_long

    def write(self) -> list[TileJob]:
        """The piece ends."""
        self.piece, self.pending = self.piece + 1, 0
        return []


class Survey(_Counted):
    """Notes what pieces read of each tensor."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.noted: list[_Noted] = []
        self._by_value: dict[int, _Noted] = {}
        self._by_tiles: dict[int, _Noted] = {}

    def value(self, name: str, rows: int, features: int, count: int = 1) -> DraftValue:
        """See :class:`Tiler`."""
        made = super().value(name, rows, features, count)
        self._by_value[id(made)] = _Noted(pieces={self.piece})
        self.noted.append(self._by_value[id(made)])
        return made

    def read(self, value: DraftValue, bits: int) -> Tiles:
        """See :class:`Tiler`. Codes of a tensor may be those of another."""
        tiles = super().read(value, bits)
        if id(tiles) not in self._by_tiles and id(value) in self._by_value:
            self._by_tiles[id(tiles)] = self._by_value[id(value)]
            self._by_value[id(value)].sizes[bits] = tiles.size
        self.show(tiles)
        return tiles

    def show(self, tiles: Tiles) -> None:
        """See :class:`Tiler`."""
        if id(tiles) in self._by_tiles:
            self._by_tiles[id(tiles)].pieces.add(self.piece)

    def _job(self, engine: str, build: Build, value: DraftValue, at: Sequence[tuple[int, ...]]) -> None:
        if id(value) in self._by_value:
            self._by_value[id(value)].pieces.add(self.piece)
        super()._job(engine, build, value, at)

    @property
    def shared(self) -> int:
        """Bytes of the tensors of one piece alone, at most."""
        sizes = [0] * (self.piece + 1)
        for each in self.noted:
            if len(each.pieces) == 1:
                sizes[min(each.pieces)] += sum(rounded(size, PAGE) for size in each.sizes.values())
        return max(sizes)


class Pieces(_Counted):
    """Writes the pieces of a step, each unlike those before it.

    Parameters
    ----------
    survey : Survey
        Of the same step.
    take : callable
        Gets the program of a piece that is unlike all before it.

    ``numbers`` has of each piece the number of its program.
    """

    def __init__(self, survey: Survey, take: Callable[[PlacedProgram], None]) -> None:
        super().__init__(survey.config)
        self.take, self._noted = take, iter(survey.noted)
        self.numbers: list[int] = []
        self._seen: dict[bytes, int] = {}
        self._alone = False
        self._shared = self._used = self.room(survey.shared)

    def room(self, size: int, kind: AreaKind = AreaKind.STEP) -> int:
        """See :class:`Tiler`."""
        if not self._alone:
            return super().room(size, kind)
        made = self._used
        self._used += rounded(size, PAGE)
        return made

    def value(self, name: str, rows: int, features: int, count: int = 1) -> DraftValue:
        """See :class:`Tiler`."""
        made, noted = super().value(name, rows, features, count), next(self._noted)
        self._alone = len(noted.pieces) == 1
        for bits in noted.sizes:
            self.read(made, bits)
        self._alone = False
        return made

    def add(self, engine: str, build: Build, results: int = 1) -> None:
        """See :class:`Tiler`."""
        super().add(engine, build, results)
        self.drafts.append(Draft(engine, build, results))

    def write(self) -> list[TileJob]:
        """The piece ends."""
        sketches, end = self.sketches(), self._used
        self.shown = {
            store.offset for each in sketches for store in each.job.stores if not self._shared <= store.offset < end
        }
        number = self._seen.setdefault(_alike(sketches, self.shown), len(self._seen))
        if number not in self.numbers:
            program = PlacedProgram(self.config, memory=self.program.memory)
            self.written(sketches, program)
            self.take(program)
        self.numbers.append(number)
        self.drafts, self._used = [], self._shared
        return super().write()


def _alike(sketches: Sequence[Sketch], shown: Collection[int]) -> bytes:
    """The same for pieces whose programs are the same but for their offsets."""
    names: dict[int, int] = {}

    def at(offset: int) -> tuple[int, int]:
        # Bursts end with pages.
        return names.setdefault(offset, len(names)), offset % PAGE

    def store(each: StoreJob) -> tuple[Any, ...]:
        return each.port, at(each.offset), each.size, each.arg, each.slot, each.offset in shown

    def load(each: LoadJob) -> tuple[Any, ...]:
        return each.port, at(each.offset), each.size, each.arg, [at(other) for other in each.after]

    made = blake2b()
    for each in sketches:
        job = each.job
        blocks = [
            (port, [*map(at, block.offsets)], [record.size for record in block.records]) for port, block in each.blocks
        ]
        kinds = job.engine, each.draft.results, job.streams, job.waits, job.chained, tuple(job.tables), job.table
        made.update(repr((kinds, job.commands, [*map(store, job.stores)], [*map(load, job.loads)], blocks)).encode())
    return made.digest()
