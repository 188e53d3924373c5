"""Ports of records of tiles in time."""

from collections import deque

from gradloom.rtl.formats.tiles.records import BEAT, STEP, record_of

from .shell.shell import FIFO, Queue, TimedMachine

__all__ = ["TileRecords"]

#: Cycles from a request to the header's step, and from a beat's step to its place in the queue; the queue's places.
_BEGIN, _MADE, _DEPTH = 4, 6, 16


class TileRecords(Queue):
    """Records on their way to STORE.

    They are as :class:`~gradloom.rtl.engines.tile_store.TileStore` makes them while there is room: a beat of codes of
    16 bits in a step, of codes of 8 bits in two but where a row ends in its lower half.
    """

    alone = True

    def __init__(self, machine: TimedMachine) -> None:
        super().__init__(machine)
        self.left = self.at = 0
        self.room: deque[int] = deque([0] * _DEPTH)  # from when on each place is free
        #: Steps of the beats of a row, and the beat that is made.
        self.steps: tuple[int, ...] = (1,)
        self.beat = 0

    def begin(self, cycle: int, beats: int) -> None:
        store = self.machine.store.command
        assert store is not None
        record = record_of(self.machine.commands[store].operands["arg"])
        parts, few = -(-record.features // STEP), 8 * BEAT // record.bits // STEP
        self.steps = tuple(min(few, parts - n) for n in range(0, parts, few))
        self.left, self.at, self.beat = beats, cycle + _BEGIN, -1
        while self.left and self.room:
            self._make(self.room.popleft())

    def take(self, cycle: int) -> None:
        self.times.popleft()
        if self.left:
            # It had no room.
            self._make(cycle + 1)
        else:
            self.room.append(cycle + 1)

    def _make(self, cycle: int) -> None:
        """A beat in a place that is free from then on."""
        if cycle < self.at:
            cycle = self.at
        if self.beat >= 0:
            cycle += self.steps[self.beat] - 1
        self.beat = (self.beat + 1) % len(self.steps)
        self.times.append(cycle + _MADE + FIFO)
        self.at = cycle + 1
        self.left -= 1
