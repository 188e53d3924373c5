"""Jobs that have no slots yet, and what they read and write."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from gradloom.rtl.formats.tiles.records import BEAT, TileRecord
from gradloom.rtl.machines.configs.diffusion import DiffusionConfig

from .jobs import TileJob
from .layout import Tiled, Tiles
from .order import OrderedTask
from .pace import cycles, stored

__all__ = ["RESULTS", "Block", "Build", "Draft", "Hold", "Sketch", "Term", "DraftValue"]

#: Result slots of an engine.
RESULTS = 4
#: Offset of no record.
_CHAIN = -1


@dataclass(eq=False)
class DraftValue(Tiled):
    """``count`` matrices, and where their codes lie by width.

    ``columns``: of one whose tiles are those of others, tensor and column of each column of tiles.
    """

    name: str
    count: int
    rows: int
    features: int
    places: dict[int, Tiles] = field(default_factory=dict)
    columns: tuple[tuple["DraftValue", int], ...] = ()


@dataclass(frozen=True)
class Block:
    """Records that lie in consecutive slots: their offsets and sizes."""

    offsets: tuple[int, ...]
    records: tuple[TileRecord, ...]

    @classmethod
    def of(cls, tiles: Tiles, places: Iterable[tuple[int, ...]]) -> "Block":
        """Tiles ``(row, column)`` or ``(row, column, number)``."""
        some = list(places)
        return cls(tuple(tiles.at(*at) for at in some), tuple(tiles.record(*at[:2]) for at in some))


@dataclass(frozen=True)
class Term:
    """A PRODUCT: tiles of stream and array, operands but for slots.

    ``x_skip``, ``w_skip``: slots of the block in front of the first. ``ends``: whether it begins and ends sums; unless
    given the first of a tile begins them, and the last ends them. ``scan``: operands that only its SCAN has, which
    it then needs.
    """

    x: Block
    w: Block
    operands: dict[str, int]
    x_skip: int = 0
    w_skip: int = 0
    ends: tuple[bool, bool] | None = None
    scan: dict[str, int] = field(default_factory=dict)


#: First slot of a job's block at a port.
Hold = Callable[[TileJob, str, Block], int]
#: Fills a job, given its first result slot.
Build = Callable[[TileJob, int, Hold], None]


@dataclass(frozen=True)
class Draft:
    """A job before it has slots; ``results``: result slots that it takes.

    ``row``: of tiles, whose results it makes; None without results. ``then``: jobs that its engine does next, for which
    it keeps something.
    """

    engine: str
    build: Build
    results: int
    row: int | None = None
    then: tuple["Draft", ...] = ()

    @property
    def last_row(self) -> int:
        """The row of the last results, of those behind it too."""
        return max((each.row for each in (self, *self.then) if each.row is not None), default=0)


@dataclass(frozen=True)
class Sketch:
    """A draft and its job as if all slots were the first.

    ``blocks``: those that it reads, by port. ``then``: of the drafts behind it.
    """

    draft: Draft
    job: TileJob
    blocks: list[tuple[str, Block]]
    then: list["Sketch"] = field(default_factory=list)

    @classmethod
    def of(cls, draft: Draft) -> "Sketch":
        """What a draft reads and writes, when widths are known."""
        blocks: dict[tuple[str, Block], None] = {}

        def hold(job: TileJob, port: str, block: Block) -> int:
            blocks[port, block] = None
            return 0

        job = TileJob(draft.engine)
        draft.build(job, 0, hold)
        return cls(draft, job, list(blocks), [cls.of(each) for each in draft.then])

    @property
    def is_read(self) -> bool:
        """Whether somebody reads results, or there are none."""
        return bool(self.job.stores or not self.draft.results)

    def jobs(self) -> Iterator["Sketch"]:
        """It and those behind it; without those whose results nobody reads, which no STORE would take out of slots."""
        some = [each for each in (self, *self.then) if each.is_read]
        if not self.then or any(each.job.stores for each in some):
            for n, each in enumerate(some):
                each.job.keeps = n < len(some) - 1
                yield each

    def task(self, config: DiffusionConfig) -> OrderedTask:
        """The same for the order of jobs, with those behind it."""
        own, *more = [each._task(config) for each in self.jobs()]
        if not more:
            return own
        reads, writes = dict(own.reads), dict(own.writes)
        for each in more:
            reads |= each.reads
            writes |= each.writes
        return OrderedTask(own.engine, reads, writes, sum(each.work for each in (own, *more)))

    def _task(self, config: DiffusionConfig) -> OrderedTask:
        job, reads = self.job, dict[tuple[str, int], int]()
        for port, block in self.blocks:
            reads |= {(port, at): record.beats for at, record in zip(block.offsets, block.records)}
        for load in job.loads:
            count = max(len(load.after), 1)
            reads |= {(load.port, at): load.size // BEAT // count for at in load.after or (load.offset,)}
        work = sum(cycles(job.engine, opcode, given, config=config) for opcode, given in job.commands)
        writes = {each.offset: stored(job.engine, each.port, each.arg, each.size, config=config) for each in job.stores}
        # As if each wrote a record of no beats.
        if job.chained:
            writes[_CHAIN] = 0
        if job.table is not None:
            writes[_CHAIN - 1 - job.table] = 0
        reads |= {("table", _CHAIN - 1 - table): 0 for table in job.tables}
        return OrderedTask(job.engine, reads, writes, work)
