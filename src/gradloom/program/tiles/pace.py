"""The order of commands: by the cycles in which they could start.

LOAD, STORE and engines take what is ready: a LOAD whose record is not there yet lets others pass, and so does a job
whose operands are not there. The sequencer hands out commands as they stand in the program, and stops at the first
whose engine has a full queue. So they stand by their starts, each behind those that it waits for. Cycles here are
estimates: they decide about nothing but the order.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from types import MappingProxyType

from gradloom.rtl.engines.tile_port import TileStorePort
from gradloom.rtl.formats.tiles.codes import EDGE
from gradloom.rtl.formats.tiles.element import ElementOpcode
from gradloom.rtl.formats.tiles.norm import NormOpcode, positions
from gradloom.rtl.formats.tiles.product import ProductOpcode
from gradloom.rtl.formats.tiles.records import BEAT, record_of
from gradloom.rtl.machines.configs.diffusion import DiffusionConfig

__all__ = ["PacedCommand", "cycles", "paced", "stored"]

#: Cycles from a command's end to a start that waits for it.
_LATENCY = 20
#: Cycles besides beats in which LOAD and STORE are busy, and from then on until they are done.
_BESIDES = {"load": (2, 45), "store": (3, 26)}
#: Commands of a queue that are looked at, the first in the order of the jobs; starts that count as the same.
_WINDOWS = {"load": 24, "store": 24, "update": 1}
_AHEAD, _SAME = 4, 32
#: Cycles that queues may stand still for a command that needs several of them.
_PATIENCE = 600
#: Readings of a tile by commands that have more than one.
_READINGS: dict[tuple[str, int], int] = {
    ("norm", NormOpcode.SOFTMAX): 3,
    ("norm", NormOpcode.SOFTMAX_BACK): 2,
    ("element", ElementOpcode.SQUARES): 4,
    ("element", ElementOpcode.TABLE): 8,
}
#: Commands whose rows have full tiles in front of the last.
_ROWS = (NormOpcode.LARGEST, NormOpcode.POWERS, NormOpcode.PULLS)


@dataclass(eq=False)
class PacedCommand:
    """A command of a program.

    ``queue``: ``load``, ``store`` or an engine. ``add`` writes it, with tokens that it takes and posts. ``after``: what
    must be done before it starts; in the order of the jobs only what stands in front. ``beside``: commands of other
    queues that start with it. ``then``: those of its queue that follow it at once. ``joined``: of a job that another
    follows at once, or that follows one.
    """

    queue: str
    cycles: int
    add: Callable[[Sequence[int], Sequence[int]], None]
    after: list["PacedCommand"] = field(default_factory=list)
    beside: list["PacedCommand"] = field(default_factory=list)
    then: list["PacedCommand"] = field(default_factory=list)
    joined: bool = False
    start: int = -1
    done: int = -1


class _Queues:
    """Commands that have started, and those that may be next."""

    def __init__(self, commands: Sequence[PacedCommand]) -> None:
        #: Cycle from which each queue is free.
        self.free: dict[str, int] = dict.fromkeys((each.queue for each in commands), 0)
        taken = {id(other) for each in commands for other in (*each.beside, *each.then)}
        self.left: dict[str, deque[PacedCommand]] = {name: deque() for name in self.free}
        #: LOADs and STOREs of joined jobs, of which there are many that wait: others pass them.
        self.joined: dict[str, deque[PacedCommand]] = {name: deque() for name in self.free}
        self.turn = {each: n for n, each in enumerate(commands)}
        for each in commands:
            if id(each) not in taken:
                self._kept(each).append(each)
        self.made: list[PacedCommand] = []

    def next(self) -> PacedCommand | None:
        """The one that starts first."""
        found = [each for name in self.left if (each := self._first(name)) is not None]
        return min(found, default=(0, None), key=lambda each: each[0])[1]

    def _kept(self, each: PacedCommand) -> deque[PacedCommand]:
        return (self.joined if each.joined else self.left)[each.queue]

    def _first(self, name: str) -> tuple[int, PacedCommand] | None:
        """The next of a queue, and its start."""
        best: tuple[int, PacedCommand] | None = None
        for each in self._candidates(name):
            start = self.start(each)
            if start is not None and (best is None or start < best[0] - _SAME):
                best = (start, each)
                if start <= self.free[name]:
                    break
        return best

    def _candidates(self, name: str) -> Iterator[PacedCommand]:
        window = _WINDOWS.get(name, _AHEAD)
        if not self.joined[name]:
            return islice(self.left[name], window)
        some = (islice(each[name], window) for each in (self.left, self.joined))
        return merge(*some, key=self.turn.__getitem__)

    def start(self, each: PacedCommand) -> int | None:
        """When it could; None where something must start before it."""
        start = 0
        for one in (each, *each.beside):
            start = max(start, self.free[one.queue])
            for other in one.after:
                if other.done < 0:
                    return None
                start = max(start, other.done + _LATENCY)
        return start - _PATIENCE if each.beside else start

    def take(self, each: PacedCommand) -> None:
        """It is the next of its queue."""
        start = self.start(each)
        assert start is not None
        start += _PATIENCE if each.beside else 0
        self._kept(each).remove(each)
        end = start + max(one.cycles for one in (each, *each.beside))
        for one in (each, *each.beside):
            busy, late = _BESIDES.get(one.queue, (0, 0))
            one.start = start
            self.free[one.queue] = (end if each.beside else start + one.cycles) + busy
            one.done = self.free[one.queue] + late
            self.made.append(one)
        for one in each.then:
            one.start = self.free[one.queue]
            one.done = self.free[one.queue] = one.start + one.cycles
            self.made.append(one)


def paced(commands: Sequence[PacedCommand]) -> list[PacedCommand]:
    """Commands by their starts; ``commands``: in the order of the jobs."""
    queues = _Queues(commands)
    while (each := queues.next()) is not None:
        queues.take(each)
    if len(queues.made) != len(commands):
        raise RuntimeError(f"{len(commands) - len(queues.made)} commands wait for one another")
    return sorted(queues.made, key=lambda each: each.start)


def cycles(
    queue: str, opcode: int, operands: Mapping[str, int] = MappingProxyType({}), *, config: DiffusionConfig
) -> int:
    """Cycles of an engine's command, about."""
    norm_lanes = config.norm_lanes
    if queue == "update":
        return 4 * operands["beats"]
    rows, tiles = operands.get("rows", 0) + 1, operands.get("tiles", 0) + 1
    if queue != "product":
        codes = norm_lanes if queue == "norm" else 8
        beats, readings = -(-(operands.get("features", 0) + 1) // codes), _READINGS.get((queue, opcode), 1)
        # Rows that are added up take as many cycles as there are positions at least.
        if queue == "norm" and opcode in _ROWS:
            return rows * max(EDGE // codes * (tiles - 1) + beats, positions(codes)) + _LATENCY
        added = readings - 1 if queue == "norm" else 0
        least = max(beats, positions(norm_lanes)) if added else 0
        return tiles * rows * (beats * (readings - added) + least * added) + _LATENCY
    if opcode == ProductOpcode.SCAN:
        return tiles * (operands.get("reach", 0) + 1)
    if opcode == ProductOpcode.BIAS:
        return rows
    # Of a square array of half a tile's columns.
    return tiles * max(rows, 64) * -(-(operands["columns"] + 1) // 32)


def stored(engine: str, port: str, arg: int, size: int, *, config: DiffusionConfig) -> int:
    """Cycles in which STORE takes a record of a result slot, or ``size`` bytes of another port, about."""
    source = config.machine.engines.named(engine).store(port).port
    return record_of(arg).steps(source.codes) if isinstance(source, TileStorePort) else size // BEAT
