"""A step that is too long for one program, as pieces: programs that run one after another.

The list of jobs is written twice. A :class:`Survey` keeps no job: it notes in which widths each tensor is read, and in
which pieces. :class:`Pieces` then knows where each tensor lies, writes a piece when its last job is known, and forgets
it. A piece ends where an operation ends. It begins with empty slots: what another piece made comes from memory.

A tensor of one piece alone lies in memory that all pieces share. One of several has its place from the first piece
that makes or reads it to the last, and others have it before and after. What the host reads or writes, and what is
there before, has a place of its own. All begin with pages, so pieces of like layers have the same commands but for
their offsets, and take the same cycles.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

from gradloom.program.assembler import Instruction, most
from gradloom.program.lifetimes import Life, assigned
from gradloom.program.memory import PAGE, AreaKind, MemoryMap, rounded
from gradloom.program.placed import PlacedProgram
from gradloom.rtl.shell.signature import LoadOperands

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

    @property
    def is_alone(self) -> bool:
        """Whether one piece alone has it."""
        return len(self.pieces) == 1

    @property
    def lives(self) -> tuple[int, int]:
        """The first and the last piece that it lives in."""
        return min(self.pieces), max(self.pieces)


class _Counted(Tiler):
    """Counts jobs, so that pieces end at the same ones in both writings."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.program = PlacedProgram(config, memory=MemoryMap(align=PAGE))
        #: Number of the piece, and its jobs so far.
        self.piece = self.pending = 0

    def add(self, engine: str, build: Build, results: int = 1, row: int | None = None) -> None:
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
        #: Offsets of tensors, one behind the other, their ends, and whose they are.
        self._starts: list[int] = []
        self._placed: list[tuple[int, _Noted]] = []

    def add(self, engine: str, build: Build, results: int = 1, row: int | None = None) -> None:
        """See :class:`Tiler`. What a job stores is known later, of what :meth:`_job` names."""
        super().add(engine, build, results, row)
        sketch = Sketch.of(Draft(engine, build, results))
        for _, block in sketch.blocks:
            for offset in block.offsets:
                self._used_by(offset, self.piece)
        for load in sketch.job.loads:
            for offset in (load.offset, *load.after):
                self._used_by(offset, self.piece)

    def joined(self, first: int) -> None:
        """See :class:`Tiler`; there are no jobs."""

    def by_rows(self, first: int) -> None:
        """See :class:`Tiler`; there are no jobs."""

    def put(self, size: int, content: Callable[[], bytes]) -> int:
        """Room for bytes that are there before, which a survey does not make."""
        return self.room(size, AreaKind.FROZEN)

    def value(self, name: str, rows: int, features: int, count: int = 1) -> DraftValue:
        """See :class:`Tiler`."""
        made = super().value(name, rows, features, count)
        self._by_value[id(made)] = _Noted(pieces={self.piece})
        self.noted.append(self._by_value[id(made)])
        return made

    def read(self, value: DraftValue, bits: int) -> Tiles:
        """See :class:`Tiler`. Codes of a tensor may be those of another."""
        is_new = bits not in value.places
        tiles = super().read(value, bits)
        if is_new and (noted := self._by_value.get(id(value))) is not None:
            noted.sizes[bits] = tiles.size
            self._starts.append(tiles.offset)
            self._placed.append((tiles.offset + tiles.size, noted))
        return tiles

    def show(self, tiles: Tiles) -> None:
        """See :class:`Tiler`."""
        self._used_by(tiles.offset, _HOST)

    def _used_by(self, offset: int, piece: int) -> None:
        """A record at an offset, which may be a tensor's."""
        index = bisect_right(self._starts, offset) - 1
        if index >= 0 and offset < self._placed[index][0]:
            self._placed[index][1].pieces.add(piece)

    def _job(self, engine: str, build: Build, value: DraftValue, at: Sequence[tuple[int, ...]]) -> None:
        if id(value) in self._by_value:
            self._by_value[id(value)].pieces.add(self.piece)
        super()._job(engine, build, value, at)

    @property
    def shared(self) -> int:
        """Bytes of the tensors of one piece alone, at most."""
        sizes = [0] * (self.piece + 1)
        for each in self.noted:
            if each.is_alone:
                sizes[each.lives[0]] += sum(rounded(size, PAGE) for size in each.sizes.values())
        return max(sizes)

    @cached_property
    def _assigned(self) -> tuple[dict[str, int], int]:
        """Places of tensors that several pieces have and the host has not, and bytes of them all."""
        return assigned(
            Life(f"{number} {bits}", 0, rounded(size, PAGE), *each.lives, read=False)
            for number, each in enumerate(self.noted)
            if not each.is_alone and _HOST not in each.pieces
            for bits, size in each.sizes.items()
        )

    @property
    def common(self) -> int:
        """Bytes of the tensors of several pieces: those that do not meet have places in common."""
        return self._assigned[1]

    def place(self, number: int, bits: int) -> int | None:
        """Offset among :attr:`common` of a tensor's codes, by the order in which tensors were made."""
        return self._assigned[0].get(f"{number} {bits}")

    @property
    def needs(self) -> int:
        """Bytes of all that the pieces have in memory, but for their commands."""
        shared = (size for each in self.noted if _HOST not in each.pieces for size in each.sizes.values())
        rest = self.program.memory.end - sum(rounded(size, PAGE) for size in shared)
        return self.shared + self.common + rest

    def check(self, memory: int | None) -> None:
        """Refuses a step for which a window is too small, or ``memory``, bytes that there are."""
        window = most(LoadOperands, "offset") + 1
        there = window if memory is None else min(memory, window)
        if self.needs > there:
            what = "the board's memory" if there == memory else "a window"
            raise ValueError(
                f"the step needs {self.needs:,} bytes besides its commands, {what} has {there:,}; take fewer samples "
                "at once, or a part of the network"
            )


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
    filled : bool
        Whether bytes that are there before are made, too.
    """

    def __init__(self, survey: Survey, tell: Callable[[StepPiece, int], None], *, filled: bool) -> None:
        super().__init__(survey.config)
        self.survey, self.tell, self.filled, self.count = survey, tell, filled, survey.piece
        self._first: dict[bytes, StepPiece] = {}
        #: Place of what is read next, where it is known; first bytes of the places that tensors have in common, their
        #: ends, and in which pieces.
        self._place: int | None = None
        self._lives: list[tuple[int, int, tuple[int, int]]] = []
        self._shared = self._used = self.room(survey.shared)
        self._common = self.room(survey.common) if survey.common else self._shared

    def room(self, size: int, kind: AreaKind = AreaKind.STEP) -> int:
        """See :class:`Tiler`."""
        return super().room(size, kind) if self._place is None else self._place

    def put(self, size: int, content: Callable[[], bytes]) -> int:
        """See :class:`Tiler`."""
        return super().put(size, content) if self.filled else self.room(size, AreaKind.FROZEN)

    def value(self, name: str, rows: int, features: int, count: int = 1) -> DraftValue:
        """See :class:`Tiler`."""
        number = len(self.values)
        made, noted = super().value(name, rows, features, count), self.survey.noted[number]
        for bits, size in noted.sizes.items():
            place = self.survey.place(number, bits)
            if noted.is_alone:
                self._place = self._used
                self._used += rounded(size, PAGE)
            elif place is not None:
                self._place = self._common + place
                self._lives.append((self._place, self._place + size, noted.lives))
            self.read(made, bits)
            self._place = None
        return made

    def _check(self, offsets: Collection[int]) -> None:
        """Refuses records of this piece in places that are another's now."""
        living = sorted(span for span in self._lives if span[2][0] <= self.piece <= span[2][1])
        starts = [start for start, *_ in living]
        for offset in offsets:
            if self._common <= offset < self._common + self.survey.common:
                index = bisect_right(starts, offset) - 1
                if index < 0 or offset >= living[index][1]:
                    raise RuntimeError(f"piece {self.piece}: offset {offset} is the place of another piece's tensor")

    def add(self, engine: str, build: Build, results: int = 1, row: int | None = None) -> None:
        """See :class:`Tiler`."""
        super().add(engine, build, results, row)
        self.drafts.append(Draft(engine, build, results, row))

    def write(self) -> list[TileJob]:
        """The piece ends."""
        if sketches := self.sketches():
            alone = range(self._shared, self._used)
            jobs = [each for sketch in sketches for each in sketch.jobs()]
            self.shown = {store.offset for each in jobs for store in each.job.stores if store.offset not in alone}
            kind, offsets = _named(jobs, self.shown)
            self._check(offsets)
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
