"""The order of jobs: a list schedule.

Jobs need no order but that of what they read and write. In the order of the operations engines would take turns. Here
jobs go in the order in which they could start, if each engine did one after another, and LOAD and STORE a beat a cycle
of what is there. So images follow each other through the operations and engines work at once. The order decides about
time, and about no result.
"""

import math
from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

__all__ = ["OrderedTask", "ordered"]

#: Starts that count as the same; cycles by which LOAD is ahead of an engine; gaps that no record fits in.
_SAME, _AHEAD, _LEAST = 50, 2000, 64
#: Tasks of an engine that are looked at, from either end of those that are ready: the effort is that of so many a task.
_SEEN = 32
#: Cycles from an end to what waits for it; of STORE besides a record's beats.
_LATENCY, _BESIDES = 40, 3
#: Most of the time; beats that count as the same.
_FULL, _ALIKE = 0.85, 64
_END = itemgetter(1)


@dataclass(frozen=True)
class OrderedTask:
    """A job by what it reads and writes: beats of each record.

    ``reads``: by port and offset; ``writes``: by offset. ``work``: cycles of its engine.
    """

    engine: str
    reads: Mapping[tuple[str, int], int]
    writes: Mapping[int, int]
    work: int


def ordered(tasks: Sequence[OrderedTask], results: int, room: Mapping[str, Mapping[str, int]]) -> list[int]:
    """Numbers of tasks in their order.

    A task stays behind those in front of it in ``tasks`` that write what it reads or writes, or read what it writes.
    Of tasks that could start at about the same time, the one goes first for which another has waited that lacks least;
    then one that LOAD need bring nothing for, then the one that reads most of what other tasks made and slots still
    hold, then the first. Where LOAD is busy most of the time, tasks for which it must bring less go before others, if
    that is shorter by its own estimate.

    Parameters
    ----------
    results : int
        Result slots of an engine: a task starts when the one that many before it in its engine is stored.
    room : mapping
        Records that the slots of an engine's ports hold, about; others are loaded.
    """
    usual = _Schedule(tasks, results, room, sparing=False)
    if usual.load.moved < _FULL * usual.end:
        return usual.order
    return min((usual, _Schedule(tasks, results, room, sparing=True)), key=lambda each: each.end).order


class _Unit:
    """Cycles of LOAD or STORE; what is there sooner takes gaps. ``moved``: beats so far."""

    def __init__(self) -> None:
        self.moved = 0
        self.gaps: list[tuple[int, float]] = [(0, math.inf)]

    def find(self, at: int, beats: int) -> int:
        """When so many beats could be moved, from ``at`` on."""
        return self._gap(at, beats)[1]

    def _gap(self, at: int, beats: int) -> tuple[int, int]:
        """The gap that takes them, and when."""
        # Gaps that end sooner are too early.
        for number in range(bisect_left(self.gaps, at + beats, key=_END), len(self.gaps)):
            begin, end = self.gaps[number]
            first = max(begin, at)
            if first + beats <= end:
                return number, first
        raise AssertionError("the last gap has no end")

    def take(self, at: int, beats: int) -> int:
        """Takes these cycles, and returns the first."""
        self.moved += beats
        number, first = self._gap(at, beats)
        begin, end = self.gaps[number]
        parts = [(begin, first), (first + beats, end)]
        self.gaps[number : number + 1] = [gap for gap in parts if gap[1] - gap[0] > _LEAST]
        return first

    def forget(self, before: int) -> None:
        """No beat will be moved before this cycle."""
        while self.gaps[0][1] < before:
            del self.gaps[0]


class _Schedule:
    """Tasks in their order, and the cycles in which they end; ``sparing``: beats that LOAD must bring count first."""

    def __init__(
        self, tasks: Sequence[OrderedTask], results: int, room: Mapping[str, Mapping[str, int]], *, sparing: bool
    ) -> None:
        self.tasks, self.room, self.sparing = tasks, room, sparing
        before = _before(tasks)
        self.after: list[list[int]] = [[] for _ in tasks]
        for number, those in enumerate(before):
            for other in those:
                self.after[other].append(number)
        self.before, self.left = before, [len(those) for those in before]
        #: Least of :attr:`left` of those behind each task.
        self.rest = [min((self.left[other] for other in those), default=len(tasks)) for those in self.after]
        #: Tasks by engine that wait for no other, in the order of ``tasks``.
        self.ready: dict[str, list[int]] = {engine: [] for engine in room}
        for number, count in enumerate(self.left):
            if not count:
                self.ready[tasks[number].engine].append(number)
        #: Cycles before which a task cannot start: its last estimate, which only a record that is held anew can lower.
        self.bound = [0] * len(tasks)
        self.readers: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        #: Beats that each task reads by port and offset, these offsets by port, and beats of what others make of it.
        self.reads: list[dict[str, dict[int, int]]] = [{} for _ in tasks]
        self.made = [0] * len(tasks)
        for number, task in enumerate(tasks):
            for (port, at), beats in task.reads.items():
                self.readers[task.engine, port, at].append(number)
                self.reads[number].setdefault(port, {})[at] = beats
        self.places = [{port: frozenset(some) for port, some in each.items()} for each in self.reads]
        self.order: list[int] = []
        self.load, self.store = _Unit(), _Unit()
        #: Cycles from which engines are free, and their result slots, the oldest first.
        self.free = dict.fromkeys(room, 0)
        self.slots = {engine: deque([0] * results, maxlen=results) for engine in room}
        #: When what a task reads is stored; when a record is.
        self.there = [0] * len(tasks)
        self.stored: dict[int, int] = {}
        #: Records in an engine's slots by port, those that were not read for longest first.
        self.held: dict[str, dict[str, dict[int, None]]] = defaultdict(lambda: defaultdict(dict))
        while any(self.ready.values()):
            self.take(self.next())

    @property
    def end(self) -> int:
        """When all engines have ended."""
        return max(self.free.values())

    def next(self) -> int:
        """The task that goes first."""
        best: tuple[int, int, int, int, int] | None = None
        seen = [(max(self.bound[number], self._soonest(number)), number) for number in self._seen()]
        for soonest, rest, number in sorted((start // _SAME, self.rest[number], number) for start, number in seen):
            if best is not None and (soonest, rest) > best[:2]:
                break
            missing, lacks, made = self._lacks(number)
            among = (rest, lacks, made, number)
            if best is not None and (soonest, *among) > best:
                continue
            start = self.bound[number] = max(self._soonest(number), self._there(number, missing))
            mine = (start // _SAME, *among)
            best = mine if best is None else min(best, mine)
        assert best is not None
        return best[-1]

    def _lacks(self, number: int) -> tuple[list[tuple[int, int]], int, int]:
        """What LOAD must bring for it, as :meth:`_there` takes it; how much, or whether; and what is held.

        The last are beats that slots hold of what tasks made, below 0.
        """
        held, stored = self.held[self.tasks[number].engine], self.stored
        missing, lacks, made = [], 0, self.made[number]
        for port, reads in self.reads[number].items():
            for at in self.places[number][port].difference(held[port]):
                beats = reads[at]
                lacks += beats
                if at in stored:
                    made -= beats
                missing.append((stored.get(at, 0), beats))
        return missing, lacks // _ALIKE if self.sparing else int(lacks > _LEAST), -made

    def _seen(self) -> Iterator[int]:
        """Tasks that may be next: early ones, and late ones, which need what was made last."""
        for some in self.ready.values():
            yield from some if len(some) <= 2 * _SEEN else (*some[:_SEEN], *some[-_SEEN:])

    def _soonest(self, number: int) -> int:
        """When it can start, but for its loads."""
        engine = self.tasks[number].engine
        return max(self.free[engine], self.slots[engine][0], self.there[number])

    def _there(self, number: int, missing: Iterable[tuple[int, int]]) -> int:
        """When LOAD could have brought ``missing``: when each was stored, and its beats."""
        first, end = max(self.free[self.tasks[number].engine] - _AHEAD, 0), 0
        # Of records of one size the last is there last.
        latest: dict[int, int] = {}
        for stored, beats in missing:
            if stored > latest.get(beats, -1):
                latest[beats] = stored
        for beats, stored in latest.items():
            end = max(end, self.load.find(max(stored, first), beats) + beats + _LATENCY)
        return end

    def _loaded(self, number: int) -> int:
        """When LOAD brings what is not held, older records first."""
        first, end = max(self.free[self.tasks[number].engine] - _AHEAD, 0), 0
        for stored, beats in sorted(self._lacks(number)[0]):
            end = max(end, self.load.take(max(stored, first), beats) + beats + _LATENCY)
        return end

    def take(self, number: int) -> None:
        """``number`` is the next."""
        task = self.tasks[number]
        mine = self.ready[task.engine]
        del mine[bisect_left(mine, number)]
        self.order.append(number)
        self.free[task.engine] = max(self._soonest(number), self._loaded(number)) + task.work
        self._hold(task.engine, task.reads)
        beats = sum(task.writes.values()) + _BESIDES * len(task.writes)
        stored = self.store.take(self.free[task.engine] + _LATENCY, beats) + beats + _LATENCY
        for unit in (self.load, self.store):
            unit.forget(min(self.free.values()) - 2 * _AHEAD)
        self.slots[task.engine].append(stored)
        unread = set(task.writes)
        self.stored.update(dict.fromkeys(task.writes, stored))
        for other in self.after[number]:
            # Its first reader gets a record as it is stored.
            first = [(port, at) for port, at in self.tasks[other].reads if at in unread]
            self._hold(self.tasks[other].engine, first)
            unread -= {at for _, at in first}
            self.there[other] = max(self.there[other], stored)
            self.left[other] -= 1
            for each in self.before[other]:
                self.rest[each] = min(self.rest[each], self.left[other])
            if not self.left[other]:
                self._made(other)
                insort(self.ready[self.tasks[other].engine], other)

    def _made(self, number: int) -> None:
        """It waits for no other: what it reads is made."""
        reads = (each for some in self.reads[number].values() for each in some.items())
        self.made[number] = sum(beats for at, beats in reads if at in self.stored)

    def _hold(self, engine: str, records: Iterable[tuple[str, int]]) -> None:
        for port, at in records:
            held = self.held[engine][port]
            if at in held:
                del held[at]
            else:
                for number in self.readers[engine, port, at]:
                    self.bound[number] = 0
            held[at] = None
            while len(held) > self.room[engine].get(port, 0):
                del held[next(iter(held))]


def _before(tasks: Sequence[OrderedTask]) -> list[set[int]]:
    """Of each task, those that must be in front of it."""
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    before: list[set[int]] = []
    for number, task in enumerate(tasks):
        reads = {at for _, at in task.reads}
        mine = {writer[at] for at in (*reads, *task.writes) if at in writer}
        for at in task.writes:
            mine.update(readers.pop(at, ()))
            writer[at] = number
        for at in reads:
            readers.setdefault(at, []).append(number)
        before.append(mine - {number})
    return before
