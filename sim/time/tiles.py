"""Ports of records of tiles in time."""

from collections import deque

from .shell.shell import FIFO, Queue, TimedMachine

__all__ = ["TileRecords"]

#: Cycles from a request to the header's step, and from a beat's step to its place in the queue; the queue's places.
_BEGIN, _MADE, _DEPTH = 4, 6, 16


class TileRecords(Queue):
    """Records on their way to STORE.

    They are as :class:`~gradloom.rtl.engines.tile_store.TileStore` makes them: a beat a cycle while there is room.
    """

    alone = True

    def __init__(self, machine: TimedMachine) -> None:
        super().__init__(machine)
        self.left = self.at = 0
        self.room: deque[int] = deque([0] * _DEPTH)  # from when on each place is free

    def begin(self, cycle: int, beats: int) -> None:
        self.left, self.at = beats, cycle + _BEGIN
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
        self.times.append(cycle + _MADE + FIFO)
        self.at = cycle + 1
        self.left -= 1
