"""A step that is too long for one program, as pieces: programs that run one after another.

The list of jobs is written twice. A :class:`Survey` keeps no job: it notes in which widths each tensor is read, and in
which pieces. :class:`Pieces` then knows where each tensor lies, writes a piece when its last job is known, and forgets
it. A piece ends where an operation ends. It begins with empty slots: what another piece made comes from memory.

A tensor of one piece alone lies in memory that all pieces share. All others have places of their own, from a page on.
So pieces of like layers have the same commands but for their offsets, and take the same cycles.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from gradloom.program.assembler import Instruction
from gradloom.program.memory import PAGE, AreaKind, MemoryMap, rounded
from gradloom.program.placed import PlacedProgram

from .drafts import Build, Draft, DraftValue, Sketch
from .jobs import LoadJob, StoreJob, TileJob
from .layout import Tiles
from .tiling import Tiler

__all__ = ["StepPiece", "Pieces", "Survey"]

#: Jobs of a piece, at least.
_LEAST = 4_000
#: The host, as if it were a piece.
_HOST = -1


@dataclass
class _Noted:
    """A tensor: bytes by width in which it is read, and pieces that make or read it, the host among them."""

    sizes: dict[int, int] = field(default_factory=dict)
    pieces: set[int] = field(default_factory=set)


class _Counted(Tiler):
    """Counts jobs, so that pieces end at the same ones in both writings."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.program = PlacedProgram(config, memory=MemoryMap(align=PAGE))
        #: Number of the piece, and its jobs so far.
        self.piece = self.pending = 0

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

    def joined(self, first: int) -> None:
        """See :class:`Tiler`; there are no jobs."""

    def put(self, content: bytes) -> int:
        """Room for bytes that are there before, which a survey does not keep."""
        return self.room(len(content), AreaKind.FROZEN)

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
        self._used_by(tiles, self.piece)
        return tiles

    def show(self, tiles: Tiles) -> None:
        """See :class:`Tiler`."""
        self._used_by(tiles, _HOST)

    def _used_by(self, tiles: Tiles, piece: int) -> None:
        if id(tiles) in self._by_tiles:
            self._by_tiles[id(tiles)].pieces.add(piece)

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
                sizes[next(iter(each.pieces))] += sum(rounded(size, PAGE) for size in each.sizes.values())
        return max(sizes)


@dataclass(frozen=True)
class StepPiece:
    """A piece: the program of the first like it, and what lies elsewhere.

    ``offsets``: of records, in the order in which jobs name them; ``first``: those of the program.
    """

    program: PlacedProgram
    first: tuple[int, ...]
    offsets: tuple[int, ...]

    @property
    def instructions(self) -> list[Instruction]:
        """Its commands."""
        moved = dict(zip(self.first, self.offsets))

        def own(each: Instruction) -> Instruction:
            # A STORE to a slot alone has no place.
            if "offset" not in each.operands or each.operands.get("only"):
                return each
            return replace(each, operands=each.operands | {"offset": moved[each.operands["offset"]]})

        return [own(each) for each in self.program.instructions]


class Pieces(_Counted):
    """Writes the pieces of a step; those that are alike share a program.

    Parameters
    ----------
    survey : Survey
        Of the same step.
    tell : callable
        Gets each piece, and how many there are.
    """

    def __init__(self, survey: Survey, tell: Callable[[StepPiece, int], None]) -> None:
        super().__init__(survey.config)
        self.tell, self._noted, self.count = tell, iter(survey.noted), survey.piece
        self._first: dict[bytes, StepPiece] = {}
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
        if sketches := self.sketches():
            alone = range(self._shared, self._used)
            jobs = [each for sketch in sketches for each in sketch.jobs()]
            self.shown = {store.offset for each in jobs for store in each.job.stores if store.offset not in alone}
            kind, offsets = _named(jobs, self.shown)
            if (piece := self._first.get(kind)) is None:
                program = PlacedProgram(self.config, memory=self.program.memory)
                self.written(sketches, program)
                piece = self._first[kind] = StepPiece(program, offsets, offsets)
            else:
                piece = replace(piece, offsets=offsets)
            self.tell(piece, self.count)
        self.drafts, self._used = [], self._shared
        return super().write()


def _named(sketches: Sequence[Sketch], shown: Collection[int]) -> tuple[bytes, tuple[int, ...]]:
    """What is the same for pieces whose programs are the same but for offsets, and these."""
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
            (port, [*map(at, block.offsets)], [each.size for each in block.records]) for port, block in each.blocks
        ]
        kinds = (
            job.engine,
            each.draft.results,
            job.streams,
            job.waits,
            job.chained,
            job.keeps,
            tuple(job.tables),
            job.table,
        )
        made.update(repr((kinds, job.commands, [*map(store, job.stores)], [*map(load, job.loads)], blocks)).encode())
    return made.digest(), tuple(names)
