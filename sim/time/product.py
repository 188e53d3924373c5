"""The product engine in time."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from gradloom.rtl.engines.product.engine import OPEN
from gradloom.rtl.engines.product.feeds import DEPTH, JOBS, RowFeed
from gradloom.rtl.engines.product.front import Front
from gradloom.rtl.engines.product.parameters import ProductParameters
from gradloom.rtl.engines.product.sums import sums_latency
from gradloom.rtl.engines.product.turning import TurningMemory
from gradloom.rtl.engines.tile_results import TilePeak
from gradloom.rtl.formats.tiles.codes import EDGE
from gradloom.rtl.formats.tiles.product import ProductOpcode
from gradloom.rtl.systolic.aligned import AlignedSums

from .shell.bus import Sink
from .shell.shell import FIFO, Queue, TimedMachine
from .tiles import records_to_store

__all__ = ["ProductTime", "rows_of"]


@dataclass
class _Feed:
    """Jobs of a feed, and its lines on their way to the array.

    ``latency``: cycles from a line's issue to the queue.
    """

    latency: int
    moved: deque[int] = field(default_factory=lambda: deque([-1] * (JOBS - 1), maxlen=JOBS - 1))
    read: int = -1  # the last job left the queue
    issued: int = -1  # the last line was issued
    takes: deque[int] = field(default_factory=lambda: deque([-1] * DEPTH, maxlen=DEPTH))

    def room(self) -> int:
        """The first cycle in which a job has room."""
        return self.moved[0] + 1

    def begin(self, pushed: int) -> None:
        """A job comes; its lines are issued from the next cycle on."""
        moves = max(pushed + 1, self.read)
        self.moved.append(moves)
        self.read = max(moves + 1, self.issued)
        self.issued = self.read

    def there(self, count: int) -> int:
        """When the first of the next ``count`` lines is before the array."""
        # A part's only line waits until it is known to be the last.
        return max(self.issued + 1 + (count == 1), self.takes[0] + 1) + self.latency + FIFO

    def lines(self, count: int, first: int) -> int:
        """Lines that the array takes from cycle ``first`` on, one a cycle.

        Returns when it takes the first.
        """
        there = self.there(count)
        at = max(first, there)
        takes = range(at, at + count)
        # A line is issued when that of DEPTH lines ago was taken.
        before = self.takes[count - 1] if count <= DEPTH else takes[count - 1 - DEPTH]
        self.issued = max(there - self.latency - FIFO + count - 1, before + 1)
        self.takes.extend(takes[-DEPTH:])
        return at


class ProductTime:
    """The engine PRODUCT: a stream row a cycle.

    Nothing waits for memory, so a command's cycles follow from those before it when it is taken.
    """

    def __init__(self, machine: TimedMachine) -> None:
        self.machine: TimedMachine = machine
        self.engine = machine.engine_table.named("product")
        self.config = machine.config
        self.queues: dict[int, Queue] = records_to_store(machine, self.engine)
        self.sinks: dict[int, Sink] = {}
        self.latency = sums_latency(self.config) + 1 + TilePeak.latency
        self.offered: tuple[int, int] | None = None
        self.free_at = 0
        self.rows, self.kept = _Feed(RowFeed.latency), _Feed(TurningMemory.latency)
        self.swap = self.loaded = 0  # the last kept tile came into use; the one behind it is complete
        self.part = self.taken = -EDGE  # the first row of the last part, the last row
        self.done: deque[int] = deque([-1] * OPEN, maxlen=OPEN)

    def offer(self, command: int, cycle: int) -> None:
        """A command is offered from ``cycle`` on."""
        at = max(cycle, self.free_at, self.done[0] + 1)
        self.machine.scheduler.taken(command, at)
        what = self.machine.commands[command]
        given = {"gather": 0, "reach": 0, "tiles": 0} | dict(what.operands)
        begins = at + Front.begin
        scan, bias = what.opcode == ProductOpcode.SCAN, what.opcode == ProductOpcode.BIAS
        if scan or (given.get("fresh") and not bias):
            pairs = (given["tiles"] + 1) * (given["reach"] + 1 if given["gather"] else 1)
            if scan and given.get("last"):
                pairs = 1
            begins += pairs + 2
        if scan:
            self.free_at, over = begins + 1, begins + FIFO
        else:
            pushed = max(begins + 1, self.rows.room(), 0 if bias else self.kept.room())
            self.free_at = pushed + 1
            over = max(self._job(given, pushed, bias) + 1, pushed + FIFO)
        over = max(over, self.done[-1] + 1)
        self.done.append(over)
        self.machine.scheduler.done(self.engine, command, over)

    def _job(self, given: dict[str, int], pushed: int, bias: bool) -> int:
        """When the results of a job are there."""
        config = self.config
        self.rows.begin(pushed)
        if not bias:
            self.kept.begin(pushed)
        passes = _passes(given, config.array_columns)
        parts = 1 if bias else _parts(given, config.array_rows)
        rows, exposed = given.get("rows", 0) + 1, 2 * given.get("exposed", 0)
        for number in range(passes * parts):
            at = self.taken + 1
            if not bias:
                # The tile's lines follow those of the one in use, or its last row where they are exposed.
                first = self.swap
                if exposed:
                    waits = max(self.kept.there(config.array_rows), self.rows.there(rows))
                    first = max(waits + 1, self.taken + 1 + exposed)
                begins = self.kept.lines(config.array_rows, first)
                self.loaded = begins + config.array_rows
                at = max(at, self.loaded)
            if not given.get("start") or number % parts:
                at = max(at, self.part + AlignedSums.latency)
                if not number:
                    at = max(at, self.taken + AlignedSums.latency)
            at = self.rows.lines(rows, at)
            self.part, self.taken = at, at + rows - 1
            if not bias:
                self.swap = at
        return self.taken + self.latency


def rows_of(given: Mapping[str, int], config: ProductParameters) -> int:
    """Rows of a PRODUCT that enter the array."""
    return _passes(given, config.array_columns) * _parts(given, config.array_rows) * (given.get("rows", 0) + 1)


def _passes(given: Mapping[str, int], columns: int) -> int:
    """Passes over the columns of the result."""
    first = given.get("o_column", 0)
    return (first + given.get("columns", 0)) // columns - first // columns + 1


def _parts(given: Mapping[str, int], rows: int) -> int:
    """Parts of all tiles of K."""
    whole = EDGE // rows
    tiles, low, high = given["tiles"], given.get("k_from", 0) // rows, given.get("k_to", 0) // rows
    return high - low + 1 if not tiles else (whole - low) + (tiles - 1) * whole + high + 1
