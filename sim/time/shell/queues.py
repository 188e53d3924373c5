"""Queues in time: results before STORE, operands behind LOAD."""

from collections import deque
from collections.abc import Callable, Sequence

from gradloom.rtl.shell.engines import TAP_BEATS, Engine

from .shell import FIFO, Queue, TimedMachine

__all__ = ["FifoQueue", "MemoryWords", "Operands", "Output", "Taken"]


class FifoQueue(Queue):
    """Beats that wait in the queue of a store port."""

    machine: TimedMachine

    def take(self, cycle: int) -> None:
        times = self.times
        if len(times) > TAP_BEATS and times[TAP_BEATS] - FIFO < cycle:
            self.machine.held += 1
        times.popleft()


class MemoryWords(Queue):
    """Words of a memory on their way to STORE.

    They are as :func:`~gradloom.rtl.engines.ports.send` gives them.
    """

    def begin(self, cycle: int, beats: int) -> None:
        self.add(range(cycle + 2, cycle + 2 + beats))


class Output(Queue):
    """Results of an engine in the FIFO before STORE.

    A beat takes ``steps`` steps, one a cycle while there is room.

    A job may take another number of them. Room is a register: a step is made in a cycle if a cycle earlier fewer than
    ``limit`` beats were in the FIFO. A beat is written ``delay`` cycles after its last step.
    """

    machine: TimedMachine

    def __init__(self, machine: TimedMachine, engine: Engine, *, steps: int, limit: int, delay: int) -> None:
        super().__init__(machine)
        self.engine = engine
        self.usual = self.steps = steps
        self.limit, self.delay = limit, delay
        self.issued = 0  # beats whose last step is known
        self.taken = 0
        self.ends: deque[tuple[int, int]] = deque()  # beat with which a command ends, command
        self.level = 0  # in the FIFO before ...
        self.writes: deque[int] = deque()  # ... these
        self.reads: deque[int] = deque()
        self.left = 0  # beats of the job that are to be issued
        self.partial = 0  # steps of the next of them that were made
        self.finish: Callable[[int], None] | None = None
        self.on_room: Callable[[int], None] | None = None

    # room

    def sure(self) -> int:
        """Beats that may be made without a look at the room."""
        # What was taken in this cycle and the one before does not show yet.
        return self.limit - 2 - (self.issued - self.taken)

    def roomy(self, cycle: int) -> bool:
        """Whether a step may be made in ``cycle``."""
        for times, sign in ((self.writes, 1), (self.reads, -1)):
            while times and times[0] < cycle - 1:
                times.popleft()
                self.level += sign
        return self.level < self.limit

    def issue(self, lasts: Sequence[int]) -> None:
        """Beats by their last steps."""
        writes = [last + self.delay for last in lasts]
        self.issued += len(writes)
        self.writes.extend(writes)
        self.add([write + FIFO for write in writes])

    def expect(self, beats: int, command: int) -> None:
        """``command`` makes ``beats`` beats, behind those of earlier commands."""
        self.ends.append(((self.ends[-1][0] if self.ends else self.taken) + beats, command))

    def take(self, cycle: int) -> None:
        self.times.popleft()
        self.taken += 1
        self.reads.append(cycle)
        if self.ends and self.ends[0][0] == self.taken:
            self.end(self.ends.popleft()[1], cycle)
        if self.on_room is not None:
            waiting, self.on_room = self.on_room, None
            self.machine.agenda.decide(cycle + 2, waiting)

    def end(self, command: int, cycle: int) -> None:
        """STORE takes the last beat of ``command`` in ``cycle``."""
        self.machine.scheduler.done(self.engine, command, cycle + 1)

    def wait(self, cycle: int, action: Callable[[int], None]) -> None:
        """Waits for room: there is none in ``cycle``.

        ``action`` is due when there may be some.
        """
        if self.reads:
            self.machine.agenda.decide(cycle + 1, action)
        else:
            self.on_room = action

    # jobs

    def produce(self, cycle: int, beats: int, finish: Callable[[int], None], *, steps: int | None = None) -> None:
        """Makes ``beats`` beats, with the first step in ``cycle`` or later.

        ``finish`` is called with the last step.
        """
        self.steps = steps or self.usual
        self.left, self.finish = beats, finish
        self._step(cycle)

    def _step(self, cycle: int) -> None:
        count = min(self.sure(), self.left)
        if count > 0:
            first = cycle + self.steps - self.partial - 1
            self.partial = 0
            self.left -= count
            lasts = range(first, first + count * self.steps, self.steps)
            self.issue(lasts)
            cycle = lasts[-1]
        elif not self.roomy(cycle):
            self.wait(cycle, self._step)
            return
        else:
            self.partial += 1
            if self.partial == self.steps:
                self.partial = 0
                self.left -= 1
                self.issue([cycle])
        if self.left:
            self.machine.agenda.decide(cycle + 1, self._step)
        else:
            assert self.finish is not None
            self.finish(cycle)


class Taken:
    """Cycles in which something else uses a memory."""

    def __init__(self) -> None:
        self.spans: deque[tuple[int, int]] = deque()  # first and last

    def add(self, first: int, last: int) -> None:
        self.spans.append((first, last))

    def end(self, cycle: int, count: int) -> int:
        """The last of ``count`` cycles from ``cycle`` on that are free."""
        for first, last in self.spans:
            if last < cycle:
                continue
            if first >= cycle + count:
                break
            count -= max(first - cycle, 0)
            cycle = last + 1
        return cycle + count - 1

    def forget(self, cycle: int) -> None:
        """Forgets the spans up to ``cycle``."""
        while self.spans and self.spans[0][1] <= cycle:
            self.spans.popleft()


class Operands:
    """Beats that wait for an engine in an ``OperandQueue``.

    The engine takes one after the other.
    """

    def __init__(self, depth: int) -> None:
        #: The queue's memory; one more beat stands at its output.
        self.room = depth - 1
        self.waiting: deque[int] = deque()  # when each was written
        self.reads: deque[int] = deque()  # when beats left the memory whose places are not taken again
        self.head: int | None = None  # from when on the engine may take the next
        self.taken = 0  # when it takes the last that it has taken, perhaps later than now

    def write(self, at: int, count: int) -> list[int]:
        """When the next ``count`` beats are written.

        The list ends where room is not known yet; ``at`` as of a sink.
        """
        times: list[int] = []
        while len(times) < count:
            if self.room:
                self.room -= 1
            elif self.reads:
                at = max(at, self.reads.popleft() + 1)
            else:
                break
            times.append(at)
            if self.head is None:
                self._read(max(at + 1, self.taken))
            else:
                self.waiting.append(at)
            at += 1
        return times

    def take(self, cycle: int) -> None:
        """The engine takes the next beat."""
        self.head, self.taken = None, cycle
        if self.waiting:
            self._read(max(self.waiting.popleft() + 1, cycle))

    def _read(self, cycle: int) -> None:
        self.reads.append(cycle)
        self.head = cycle + 1
