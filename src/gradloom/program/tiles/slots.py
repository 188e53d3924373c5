"""Which records lie in the slots of a load port."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

__all__ = ["Full", "Slots"]

#: Slots that so many of an engine's last jobs have read are taken last: LOAD would wait for these jobs.
_RECENT = 2

Records = tuple[int, ...]


class Full(Exception):
    """A job's blocks do not fit beside one another where others lie."""


class Slots:
    """Slots of a port, as a program fills them.

    Blocks are records in consecutive slots. A block that is there is used again. Room is made where the blocks that go
    are read again last. Time is the number of the engine's job.

    Parameters
    ----------
    name : str
    count : int
    uses : mapping
        Jobs that read a block, in order.
    """

    def __init__(self, name: str, count: int, uses: Mapping[Records, Sequence[int]]) -> None:
        self.name, self.count, self.uses = name, count, uses
        self.held: dict[Records, int] = {}
        #: Blocks that forwards fill, and the job that reads each.
        self.kept: dict[Records, int] = {}
        self.last = [-math.inf] * count

    def clear(self) -> None:
        """Forgets all blocks but those that forwards fill."""
        self.held = {block: first for block, first in self.held.items() if block in self.kept}

    def find(self, block: Records) -> int | None:
        """First slot of a block that is there."""
        return self.held.get(block)

    def read(self, slots: Iterable[int], now: int) -> None:
        """Job ``now`` reads them."""
        for slot in slots:
            self.last[slot] = now

    def take(self, block: Records, pinned: Collection[int], now: int) -> int:
        """First slot of room for a block of job ``now``.

        Slots in ``pinned`` stay.

        :class:`Full` where there is none.
        """
        size = len(block)
        if size > self.count:
            raise ValueError(
                f"{self.name}: a product needs {size} tiles at once, there are {self.count} slots; take more"
            )
        found = [
            (newest < now - _RECENT, soonest, -newest, -first)
            for first, soonest, newest in self._rooms(size, pinned, now)
        ]
        if not found:
            raise Full
        first = -max(found)[-1]
        self._put(block, first)
        self.read(range(first, first + size), now)
        return first

    def keep(self, block: Records, now: int, reader: int) -> bool:
        """Room for a block from now on, until job ``reader`` has read it.

        There is none where a block would go that is read before, or where too little is left for other blocks.
        """
        size = len(block)
        if sum(map(len, self.kept)) + size > self.count - max(self.count // 4, 1):
            return False
        found = [
            (soonest, -newest, -first) for first, soonest, newest in self._rooms(size, (), now) if soonest > reader
        ]
        if not found:
            return False
        self._put(block, -max(found)[-1])
        self.kept[block] = reader
        return True

    def drop(self) -> Records | None:
        """Gives up the block that forwards fill whose reader is last."""
        if not self.kept:
            return None
        block = max(self.kept, key=lambda each: self.kept[each])
        del self.kept[block], self.held[block]
        return block

    def _rooms(self, size: int, pinned: Collection[int], now: int) -> Iterable[tuple[int, float, float]]:
        """First slots of rooms for a block, when what goes is read next, and by which job it was read last."""
        soon: list[float] = [math.inf] * self.count
        stays = [False] * self.count
        for slot in pinned:
            stays[slot] = True
        for block, first in self.held.items():
            soonest, kept = self._next(block, now), block in self.kept
            for slot in range(first, first + len(block)):
                soon[slot] = min(soon[slot], soonest)
                stays[slot] |= kept
        for first in range(self.count - size + 1):
            end = first + size
            if True not in stays[first:end]:
                yield first, min(soon[first:end]), max(self.last[first:end])

    def _next(self, block: Records, now: int) -> float:
        return next((number for number in self.uses.get(block, ()) if number >= now), math.inf)

    def _put(self, block: Records, first: int) -> None:
        end = first + len(block)
        for other, at in list(self.held.items()):
            if at < end and first < at + len(other):
                del self.held[other]
        self.held[block] = first
