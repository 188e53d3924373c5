"""Which records lie in the slots of a load port."""

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .jobs import StoreJob

__all__ = ["Full", "Slots"]

#: Slots that so many of an engine's last jobs have read are taken last: LOAD would wait for these jobs.
_RECENT = 2
#: Beats that a beat to such a slot counts as, besides itself.
_LATE = 2

Records = tuple[int, ...]


class Full(Exception):
    """A job's blocks do not fit beside one another where others lie."""


@dataclass
class _Slot:
    """A slot: its record, or the one that it is reserved for.

    ``is_there``: it is filled. ``store``: the STORE that forwards the record, as long as no job has read it. ``last``:
    the last job that read the slot.
    """

    record: int | None = None
    is_there: bool = False
    store: StoreJob | None = None
    last: float = -math.inf


@dataclass(frozen=True)
class _Room:
    """Slots for a block: of those that get another record ``soonest`` is the next reader, and ``newest`` the last one.

    ``late``: beats that LOAD brings to slots that jobs have just read; ``cost``: all that it must bring, now and later.
    """

    first: int
    late: int
    cost: int
    soonest: float
    newest: float


class Slots:
    """Slots of a port, as a program fills them.

    Blocks are records in consecutive slots. Records that lie there are used again, those of other blocks too. Room is
    made where LOAD has least to bring, then where what goes is read again last. Time is the number of the engine's job.

    Parameters
    ----------
    name : str
    count : int
    uses : mapping
        Jobs that read a record, in order.
    beats : mapping
        Beats of a record.
    """

    def __init__(self, name: str, count: int, uses: Mapping[int, Sequence[int]], beats: Mapping[int, int]) -> None:
        self.name, self.count, self.uses, self.beats = name, count, uses, beats
        self.slots = [_Slot() for _ in range(count)]

    @property
    def records(self) -> list[int | None]:
        """What lies in each slot."""
        return [each.record if each.is_there else None for each in self.slots]

    def clear(self) -> None:
        """Forgets all records, and readers, so that blocks follow from the first slot on; nothing is forwarded."""
        for slot in self.slots:
            self._put(slot, None)
            slot.last = -math.inf

    def read(self, slots: Iterable[int], now: int) -> None:
        """Job ``now`` reads them."""
        for number in slots:
            self.slots[number].last, self.slots[number].store = now, None

    def take(self, block: Records, pinned: Collection[int], now: int) -> tuple[int, list[int]]:
        """First slot of a block for job ``now``, and which of its records LOAD must bring.

        Slots in ``pinned`` stay.

        :class:`Full` where there is no room.
        """
        if len(block) > self.count:
            raise ValueError(
                f"{self.name}: a product needs {len(block)} tiles at once, there are {self.count} slots; take more"
            )
        found = [
            (each.newest < now - _RECENT, -each.cost - _LATE * each.late, each.soonest, -each.newest, -each.first)
            for each in self._rooms(block, pinned, now)
        ]
        if not found:
            raise Full
        first, missing = -max(found)[-1], []
        for number, record in enumerate(block):
            slot = self.slots[first + number]
            if slot.record != record:
                self._put(slot, record)
            if not slot.is_there:
                missing.append(number)
                slot.is_there = True
        return first, missing

    def forward(self, store: StoreJob, block: Records, now: int, reader: int) -> int | None:
        """The slot to which a STORE forwards its record, for job ``reader``, which reads it in a block.

        None where a record would go that is read before, or where too little is left for other blocks.
        """
        most = self.count - max(self.count // 4, 1)
        found = [
            (-each.cost, each.soonest, -each.newest, -each.first)
            for each in self._rooms(block, (), now)
            if each.soonest > reader
        ]
        if not found or len(block) > most:
            return None
        first = -max(found)[-1]
        mine = range(first, first + len(block))
        others = [n for n, slot in enumerate(self.slots) if slot.store is not None and n not in mine]
        while len(others) + len(block) > most:
            last = max(others, key=lambda n: self._next(n, now))
            if self._next(last, now) <= reader:
                return None
            self._put(self.slots[last], None)
            others.remove(last)
        for number, record in zip(mine, block):
            if self.slots[number].record != record:
                self._put(self.slots[number], record)
        taken = first + block.index(store.offset)
        self.slots[taken].is_there, self.slots[taken].store = True, store
        return taken

    def _rooms(self, block: Records, pinned: Collection[int], now: int) -> Iterator[_Room]:
        """Rooms for a block; slots ``pinned`` get no other record."""
        soon = [self._next(number, now) for number in range(self.count)]
        for first in range(self.count - len(block) + 1):
            late, cost, soonest, newest = 0, 0, math.inf, -math.inf
            for number, record in enumerate(block, first):
                slot = self.slots[number]
                if slot.record == record and slot.is_there:
                    continue
                cost, newest = cost + self.beats[record], max(newest, slot.last)
                late += self.beats[record] * (slot.last >= now - _RECENT)
                if slot.record == record:
                    continue
                if number in pinned:
                    break
                soonest = min(soonest, soon[number])
                if soon[number] < math.inf and slot.record is not None and slot.is_there:
                    cost += self.beats[slot.record]
            else:
                yield _Room(first, late, cost, soonest, newest)

    def _next(self, number: int, now: int) -> float:
        """The next job that reads what is in a slot."""
        record = self.slots[number].record
        if record is None:
            return math.inf
        uses = self.uses[record]
        at = bisect_left(uses, now)
        return uses[at] if at < len(uses) else math.inf

    @staticmethod
    def _put(slot: _Slot, record: int | None) -> None:
        """Another record; what was forwarded and not read is loaded when it is."""
        if slot.store is not None:
            slot.store.to = None
            slot.store = None
        slot.record, slot.is_there = record, False
