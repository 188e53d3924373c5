"""Ports of records of tiles in time."""

from collections import deque

from gradloom.rtl.engines.tile_port import TileStorePort
from gradloom.rtl.formats.tiles.records import BEAT, record_of
from gradloom.rtl.shell.engines import Engine

from .shell.shell import FIFO, Queue, TimedMachine

__all__ = ["TileRecords", "records_to_store"]

#: Cycles from a request, or from what is told of it, to the header's step; from a beat's step to its place in the
#: queue; the queue's places.
_BEGIN, _MADE, _DEPTH = 3, 6, 16


class TileRecords(Queue):
    """Records on their way to STORE, of all engines of a machine.

    They are as :class:`~gradloom.rtl.engines.tile_store.TileStore` makes them while there is room: one that STORE asks
    for next follows the last step of the one before. A step makes a beat, but for two of a beat of more codes than an
    engine gives at a time.
    """

    alone = True

    def __init__(self, machine: TimedMachine) -> None:
        super().__init__(machine)
        #: Codes that each of STORE's sources gives in a step.
        self.codes: dict[int, int] = {}
        self.waiting: tuple[int, int] | None = None  # a STORE, and since when it is known
        self.taken = self.at = 0  # the last request was; the next step may be
        self.free = 0  # the next request may be taken
        self.room: deque[int] = deque([0] * _DEPTH)  # from when on each place is free
        #: Steps of the beats of a row, those that are left, and the beat that is made.
        self.steps: tuple[int, ...] = (1,)
        self.left = self.beat = 0

    def ahead(self, command: int, cycle: int) -> None:
        self.waiting = command, cycle
        self._make()

    def ready(self, cycle: int) -> int:
        return max(cycle, self.taken)

    def take(self, cycle: int) -> None:
        self.times.popleft()
        self.room.append(cycle + 1)
        self._make()

    def _make(self) -> None:
        """Beats, as long as there are places for them."""
        while self.room:
            if not self.left:
                if self.waiting is None:
                    return
                self._begin(*self.waiting)
                self.waiting = None
            cycle = max(self.room.popleft(), self.at)
            if self.beat < 0:
                self.free = cycle + 1
            else:
                cycle += self.steps[self.beat] - 1
            self.beat = (self.beat + 1) % len(self.steps)
            self.times.append(cycle + _MADE + FIFO)
            self.at = cycle + 1
            self.left -= 1

    def _begin(self, command: int, cycle: int) -> None:
        operands = self.machine.commands[command].operands
        record = record_of(operands["arg"])
        whole, codes = 8 * BEAT // record.bits, self.codes[operands["source"]]
        self.steps = tuple(
            -(-min(record.features - first, whole) // min(codes, whole)) for first in range(0, record.features, whole)
        )
        self.left, self.beat, self.taken = record.beats, -1, max(cycle, self.free)
        self.at = max(self.at, self.taken + _BEGIN)


def records_to_store(machine: TimedMachine, engine: Engine) -> dict[int, Queue]:
    """The queue of the records of an engine's store port ``o``."""
    kept = next((each for each in machine.queues.values() if isinstance(each, TileRecords)), None)
    queue, source = kept or TileRecords(machine), engine.store("o")
    assert isinstance(source.port, TileStorePort)
    queue.codes[source] = source.port.codes
    return {source: queue}
