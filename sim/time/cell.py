"""The cell engine in time."""

from collections import deque
from collections.abc import Sequence

from gradloom.rtl.engines.cell.engine import CellEngine
from gradloom.rtl.engines.cell.feed import Feed
from gradloom.rtl.engines.cell.results import Results
from gradloom.rtl.formats.cell import CODES_A_BEAT

from .base import TimedMachine, Waking
from .queues import MemoryWords, Operands
from .shell import FIFO, Queue, Sink, Transfer

__all__ = ["Cell"]


class _Rows(Queue):
    """Beats of hidden states; each row has its room reserved."""

    def __init__(self, cell: "Cell") -> None:
        super().__init__(cell.machine)
        self.cell = cell
        self.reserved = 0
        self.taken: list[int] = []  # when each beat left

    def room(self, beats: int) -> int | None:
        """From when on a row has room; None where that is not known."""
        # A beat that leaves is counted a cycle later, and then room is a register.
        before = self.reserved + beats - Results.depth
        if before > len(self.taken):
            return None
        return self.taken[before - 1] + 2 if before > 0 else 0

    def take(self, cycle: int) -> None:
        self.times.popleft()
        self.taken.append(cycle)
        self.cell.wake(cycle + 2)


class Cell(Waking):
    """The engine CELL: a chunk of operands a cycle.

    A step's hidden state waits for the results of the step before.
    """

    def __init__(self, machine: TimedMachine) -> None:
        super().__init__(machine)
        self.config = machine.config
        self.engine = machine.engine_table.named("cell")
        self.x = Operands(Feed.depth)
        self.rows = _Rows(self)
        self.queues: dict[int, Queue] = {
            self.engine.store("h"): self.rows,
            self.engine.store("state"): MemoryWords(machine),
        }
        self.sinks: dict[int, Sink] = {self.engine.load("x"): self.take}
        self.operands: dict[str, int] = {}
        self.arrivals: deque[int] = deque()  # first results of the steps that the next are to read
        self.step = self.sequence = self.position = 0
        self.next = 0  # the next chunk may enter

    def _begin(self, command: int, at: int) -> None:
        self.operands = {"every": 0, **self.machine.commands[command].operands}
        self.arrivals.clear()
        self.step = self.sequence = self.position = 0
        self.next = at + CellEngine.begin
        self.wake(self.machine.now)

    def take(self, at: int, count: int, transfer: Transfer) -> Sequence[int]:
        """Beats of x."""
        times: list[int] = []
        while more := self.x.write(at, count - len(times)):
            times += more
            at = more[-1] + 1
            self._advance()
        return times

    def _advance(self) -> None:
        """Gives chunks as far as it is known when."""
        while self.command is not None and (
            self._input() if self.position < self.operands["inputs"] else self._state()
        ):
            pass

    def _input(self) -> bool:
        """Gives a beat of the input, if it is known when that is there."""
        if self.x.head is None:
            return False
        few = min(CODES_A_BEAT // self.config.parallel, self.operands["inputs"] - self.position)
        last = max(self.next, self.x.head) + few - 1
        self.x.take(last)
        self.position += few
        self.next = last + 1
        return True

    def _state(self) -> bool:
        """Gives a hidden state, if it is known when it may enter."""
        hidden, sequences = self.operands["hidden"], self.operands["sequences"]
        last_step = self.step == self.operands["steps"] - 1
        first = self.next
        if self.step:
            first = max(first, self.arrivals[0])
        emits = bool(self.operands["every"] or last_step)
        beats = -(-hidden * self.config.parallel // CODES_A_BEAT)
        if emits:
            room = self.rows.room(beats)
            if room is None:
                return False
            first = max(first, room)
            self.rows.reserved += beats
        if self.step:
            self.arrivals.popleft()
        last = first + hidden - 1
        results = last + CellEngine.results
        self.arrivals.append(results)
        if emits:
            per_beat = CODES_A_BEAT // self.config.parallel
            ends = [min(end, hidden) for end in range(per_beat, hidden + per_beat, per_beat)]
            self.rows.add([results + end - 1 + 1 + FIFO for end in ends])
        self.position, self.next = 0, last + 1
        self.sequence += 1
        if self.sequence == sequences:
            self.sequence = 0
            self.step += 1
        if self.step == self.operands["steps"]:
            self._end(results + hidden - 1 + CellEngine.finish)
        return True

    def _end(self, cycle: int) -> None:
        """Done in ``cycle``."""
        command, self.command = self.command, None
        assert command is not None
        self.free_at = cycle + 1
        self.machine.scheduler.done(self.engine, command, cycle)
        self._start(self.machine.now)

    def _go(self, cycle: int) -> None:
        self._advance()
        # What waits on the bus may find room.
        self.machine.bus.pump()
