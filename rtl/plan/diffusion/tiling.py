"""Jobs that make tensors of tiles of other tensors.

A tensor is a :class:`Value`: it is stored as codes of 8 bits, of 16, or both, as other jobs read it. So jobs are
collected first. When all are known they are put in order, and only then get slots and LOADs.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...formats.element import ElementOpcode
from ...formats.norm import NormOpcode
from ...formats.product import ProductOpcode
from ...formats.tile_codes import WIDE
from ...formats.tile_records import BEAT, tile_argument
from ..program.placed import PlacedProgram
from .jobs import Job, Load, Store, write
from .layout import Tiled, Tiles
from .order import Task, ordered
from .pace import cycles
from .slots import Full, Slots

__all__ = ["Block", "Hold", "Term", "Tiler", "Value"]

#: Slots of biases, of gains, and of results of an engine.
_VECTORS, _RESULTS = 32, 4
#: Offset of no record.
_CHAIN = -1


@dataclass(eq=False)
class Value(Tiled):
    """``count`` matrices, and where their codes lie by width."""

    name: str
    count: int
    rows: int
    features: int
    places: dict[int, Tiles] = field(default_factory=dict)


@dataclass(frozen=True)
class Block:
    """Records that lie in consecutive slots: a tensor, and offsets."""

    tiles: Tiles
    offsets: tuple[int, ...]

    @classmethod
    def of(cls, tiles: Tiles, places: Iterable[tuple[int, ...]]) -> "Block":
        """Tiles ``(row, column)`` or ``(row, column, number)``."""
        return cls(tiles, tuple(tiles.at(*place) for place in places))


@dataclass(frozen=True)
class Term:
    """A PRODUCT: tiles of stream and array, operands but for slots.

    ``x_skip``, ``w_skip``: slots of the block in front of the first.
    """

    x: Block
    w: Block
    operands: dict[str, int]
    x_skip: int = 0
    w_skip: int = 0


#: First slot of a job's block at a port.
Hold = Callable[[Job, str, Block], int]
#: Fills a job, given its first result slot.
Build = Callable[[Job, int, Hold], None]


@dataclass(frozen=True)
class _Draft:
    """A job before it has slots; ``results``: result slots that it takes."""

    engine: str
    build: Build
    results: int

    def task(self) -> Task:
        """What it reads and writes, now that widths are known."""
        reads: dict[int, int] = {}

        def hold(job: Job, port: str, block: Block) -> int:
            reads.update(dict.fromkeys(block.offsets, block.tiles.record.beats))
            return 0

        job = Job(self.engine)
        self.build(job, 0, hold)
        for load in job.loads:
            reads |= dict.fromkeys(load.after or (load.offset,), load.size // BEAT // max(len(load.after), 1))
        work = sum(cycles(self.engine, opcode, given) for opcode, given in job.commands)
        writes = {store.offset: store.size // BEAT for store in job.stores}
        if job.chained:
            # As if each wrote a record of no beats.
            writes[_CHAIN] = 0
        return Task(self.engine, reads, writes, work)


class Tiler:
    """Collects jobs and places, and writes the program.

    ``config``: of the machine.
    """

    def __init__(self, config: Any) -> None:
        self.config = config
        self.program = PlacedProgram(config)
        self.drafts: list[_Draft] = []
        self.values: list[Value] = []
        self.ports = {
            "product": {"x": config.x_slots, "w": config.w_slots, "bias": _VECTORS},
            "element": dict.fromkeys("abc", config.element_slots),
            "norm": {"a": config.norm_slots, "b": config.norm_slots, "gain": _VECTORS},
        }
        self.slots = {
            (engine, port): Slots(f"{engine}.{port}", count)
            for engine, ports in self.ports.items()
            for port, count in ports.items()
        }
        self.results = dict.fromkeys((*self.ports, "update"), 0)

    # -- places --------------------------------------------------------------------------------------------------

    def room(self, size: int) -> int:
        """Offset of bytes that the program or the host writes."""
        return self.program.room(-(-size // 4)).offset

    def put(self, content: bytes) -> int:
        """Offset of bytes that are there before."""
        offset = self.room(len(content))
        self.program.arrays.append((offset, content))
        return offset

    def tiles(self, count: int, rows: int, features: int, bits: int) -> Tiles:
        """Place of a tensor of codes."""
        made = Tiles(0, count, rows, features, bits)
        return replace(made, offset=self.room(made.size))

    def value(self, name: str, rows: int, features: int, count: int = 1) -> Value:
        """A tensor that jobs will make, or the host."""
        Tiles.check(name, rows, features)
        made = Value(name, count, rows, features)
        self.values.append(made)
        return made

    def read(self, value: Value, bits: int) -> Tiles:
        """Codes of a tensor, in a width that it is stored in from now on."""
        if bits not in value.places:
            value.places[bits] = self.tiles(value.count, value.rows, value.features, bits)
        return value.places[bits]

    # -- jobs ----------------------------------------------------------------------------------------------------

    def add(self, engine: str, build: Build, results: int = 1) -> None:
        """A job; ``results``: slots of them."""
        self.drafts.append(_Draft(engine, build, results))

    def _job(self, engine: str, build: Build, value: Value, at: Sequence[tuple[int, ...]]) -> None:
        """A job that makes the tiles ``at`` of a tensor, a result slot each."""

        def stored(job: Job, first: int, hold: Hold) -> None:
            build(job, first, hold)
            for number, place in enumerate(at):
                slot = (first + number) % _RESULTS
                for bits, tiles in sorted(value.places.items()):
                    arg = tile_argument(slot, *value.tile, wide=bits == WIDE)
                    job.stores.append(Store("o", tiles.at(*place), tiles.record.size, arg, slot))

        self.add(engine, stored, len(at))

    def write(self) -> list[Job]:
        """The program of all jobs, which are returned in its order."""
        tasks = [each.task() for each in self.drafts]
        # Half of all slots: blocks that are held do not fit without gaps.
        room = {engine: sum(self.ports.get(engine, {}).values()) // 2 for engine in self.results}
        jobs = [self._built(self.drafts[number]) for number in ordered(tasks, _RESULTS, room)]
        write(self.program, jobs)
        self.program.end()
        return jobs

    def _built(self, draft: _Draft) -> Job:
        """The job, with slots."""
        first = self.results[draft.engine]
        self.results[draft.engine] = (first + draft.results) % _RESULTS
        try:
            job = Job(draft.engine)
            draft.build(job, first, self._hold)
        except Full:
            # Blocks that are held lie between those of this job.
            for (name, _), slots in self.slots.items():
                if name == draft.engine:
                    slots.clear()
            job = Job(draft.engine)
            draft.build(job, first, self._hold)
        return job

    def _hold(self, job: Job, port: str, block: Block) -> int:
        """First slot of a block, which is loaded unless it is there."""
        slots = self.slots[job.engine, port]
        pinned = {slot for name, slot in job.uses if name == port}
        first = slots.find(block.offsets)
        if first is None:
            first = slots.take(block.offsets, pinned)
            rows, features = block.tiles.record.rows, block.tiles.record.features
            for begin, count in _runs(block):
                offset, size = block.offsets[begin], block.tiles.record.size * count
                taken = tuple(range(first + begin, first + begin + count))
                job.loads.append(Load(port, offset, size, tile_argument(taken[0], rows, features), taken))
        job.uses |= {(port, first + n) for n in range(len(block.offsets))}
        return first

    # -- engine product ------------------------------------------------------------------------------------------

    def product(
        self,
        value: Value,
        at: tuple[int, ...],
        terms: Sequence[Term],
        *,
        bias: Block | None = None,
        apart: bool = False,
    ) -> None:
        """A tile of sums of products.

        ``apart``: each term makes rows and columns of its own.
        """
        rows, columns = value.tile
        whole = {"rows": rows - 1, "columns": columns - 1}

        def build(job: Job, slot: int, hold: Hold) -> None:
            held = [
                whole
                | {
                    "x": hold(job, "x", term.x) + term.x_skip,
                    "w": hold(job, "w", term.w) + term.w_skip,
                    "x_step": 1,
                    "w_step": 1,
                    "o": slot,
                }
                | term.operands
                for term in terms
            ]
            if len(held) == 1 and bias is None:
                job.commands.append((ProductOpcode.PRODUCT, held[0] | {"fresh": 1, "start": 1, "last": 1}))
                return
            job.commands += [(ProductOpcode.SCAN, each | {"fresh": int(n == 0)}) for n, each in enumerate(held)]
            if bias is not None:
                own = whole | {"bias": hold(job, "bias", bias), "o": slot}
                job.commands.append((ProductOpcode.SCAN, own | {"last": 1}))
                job.commands.append((ProductOpcode.BIAS, own | {"start": 1}))
            for n, each in enumerate(held):
                start, last = apart or (n == 0 and bias is None), apart or n == len(held) - 1
                job.commands.append((ProductOpcode.PRODUCT, each | {"start": int(start), "last": int(last)}))

        self._job("product", build, value, [at])

    # -- engine element ------------------------------------------------------------------------------------------

    def element(
        self,
        value: Value,
        at: tuple[int, ...],
        opcode: ElementOpcode,
        blocks: dict[str, Block],
        parts: Sequence[dict[str, int]] = ({},),
    ) -> None:
        """A tile of an operation, in one command or several of some rows each."""
        rows, features = value.tile

        def build(job: Job, slot: int, hold: Hold) -> None:
            held = {port: hold(job, port, block) for port, block in blocks.items()}
            for n, part in enumerate(parts):
                given = {"rows": rows - 1, "features": features - 1, "o": slot, "fresh": int(n == 0)} | held | part
                job.commands.append((opcode, given))

        self._job("element", build, value, [at])

    # -- engine norm ---------------------------------------------------------------------------------------------

    def norm(
        self,
        value: Value,
        at: Sequence[tuple[int, ...]],
        blocks: dict[str, Block],
        commands: Callable[[dict[str, int], int], Iterable[tuple[NormOpcode, dict[str, int]]]],
    ) -> None:
        """Tiles of an operation of the norm engine.

        ``blocks``: by port; ``bias`` lies in port gain, ``x`` in port a. ``commands``: from slots by their names, and
        the first result slot.
        """

        def build(job: Job, slot: int, hold: Hold) -> None:
            ports = {"bias": "gain", "x": "a"}
            held = {name: hold(job, ports.get(name, name), block) for name, block in blocks.items()}
            job.commands += commands(held, slot)

        self._job("norm", build, value, at)


def _runs(block: Block) -> list[tuple[int, int]]:
    """Parts of a block that lie side by side in memory."""
    runs: list[tuple[int, int]] = []
    size = block.tiles.record.size
    for n, offset in enumerate(block.offsets):
        if runs and offset == block.offsets[n - 1] + size:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((n, 1))
    return runs
