"""The cell engine in time."""

from collections import deque
from collections.abc import Iterator, Sequence

from gradloom.rtl.engines.cell.parameters import APART, FEED_BEATS, RESULT_BEATS, SUM_GROUPS
from gradloom.rtl.engines.cell.stages import stages_of, tap_cycles
from gradloom.rtl.formats.cell import CODES_A_BEAT

from .shell.bus import Sink, TransferTime
from .shell.queues import MemoryWords, Operands
from .shell.shell import FIFO, Queue, TimedMachine, Waking

__all__ = ["CellTime"]


class _Rows(Queue):
    """Results of rows; each row has its room reserved.

    Parameters
    ----------
    cell : Cell
    depth : int
        Places of the queue.
    beats : int
        That share a place.
    """

    def __init__(self, cell: "CellTime", depth: int, beats: int = 1) -> None:
        super().__init__(cell.machine)
        self.cell, self.depth, self.beats = cell, depth, beats
        self.reserved = self.partial = 0
        self.taken: list[int] = []  # when each place became free

    def room(self, places: int) -> int | None:
        """From when on a row has room; None where that is not known."""
        # A beat that leaves is counted a cycle later, and then room is a register.
        before = self.reserved + places - self.depth
        if before > len(self.taken):
            return None
        return self.taken[before - 1] + 2 if before > 0 else 0

    def take(self, cycle: int) -> None:
        self.times.popleft()
        self.partial += 1
        if self.partial == self.beats:
            self.partial = 0
            self.taken.append(cycle)
            self.cell.wake(cycle + 2)


class _Taps(Queue):
    """Beats of taps, each made when the one before is taken."""

    def __init__(self, machine: TimedMachine) -> None:
        super().__init__(machine)
        self.first, self.step = tap_cycles(machine.config.parallel)
        self.left = 0

    def begin(self, cycle: int, beats: int) -> None:
        self.left = beats
        self.times = deque([cycle + self.first])

    def take(self, cycle: int) -> None:
        self.left -= 1
        self.times = deque([cycle + self.step] if self.left else [])


class CellTime(Waking):
    """The engine CELL: a chunk of operands a cycle.

    A step's hidden state waits for the results of the step before.
    """

    def __init__(self, machine: TimedMachine) -> None:
        super().__init__(machine)
        self.config = machine.config
        self.stages = stages_of(machine.config)
        self.engine = machine.engine_table.named("cell")
        self.x = Operands(FEED_BEATS)
        self.rows = _Rows(self, RESULT_BEATS)
        self.sums = _Rows(self, SUM_GROUPS, self.config.parallel)
        self.queues: dict[int, Queue] = {
            self.engine.store("h"): self.rows,
            self.engine.store("logits"): self.sums,
            self.engine.store("state"): MemoryWords(machine),
            self.engine.store("taps"): _Taps(machine),
        }
        self.sinks: dict[int, Sink] = {self.engine.load("x"): self.take}
        self.operands: dict[str, int] = {}
        self.order: Iterator[tuple[str, int]] = iter(())  # kinds of rows, and their steps
        self.row: tuple[str, int] | None = None
        self.arrivals: deque[int] = deque()  # first results of the steps that the next are to read
        self.inputs: deque[int] = deque()  # when each result of a convolution is there
        self.position = 0
        self.next = 0  # the next chunk may enter
        self.last = self.busy = 0  # last chunk of the row before; its sums leave the first group before

    def _begin(self, command: int, at: int) -> None:
        given = self.machine.commands[command].operands
        names = ("window", "filters", "front", "classes", "each", "every", "quiet")
        self.operands = {**dict.fromkeys(names, 0), **given}
        self.arrivals.clear()
        self.order = self._order()
        self.row = next(self.order)
        self.position = 0
        self.next = at + self.stages.begin
        self.wake(self.machine.now)

    def _order(self) -> Iterator[tuple[str, int]]:
        """Rows of the command, as the feed gives them."""
        operands = self.operands
        steps, sequences = operands["steps"], operands["sequences"]
        if operands["window"]:
            yield from [("window", 0)] * sequences
        for step in range(steps):
            for _ in range(sequences):
                if operands["window"] and step < steps - 1:
                    yield "window", step + 1
                yield "input", step
                yield "state", step
            if operands["classes"] and (operands["each"] or step == steps - 1):
                yield from [("classes", step)] * sequences

    def take(self, at: int, count: int, transfer: TransferTime) -> Sequence[int]:
        """Beats of x."""
        times: list[int] = []
        while more := self.x.write(at, count - len(times)):
            times += more
            at = more[-1] + 1
            self._advance()
        return times

    def _advance(self) -> None:
        """Gives chunks as far as it is known when."""
        while self.command is not None and self.row is not None:
            kind, step = self.row
            if kind == "window" or (kind == "input" and not self.operands["window"]):
                ended = self._beat(kind)
            elif kind == "input":
                ended = self._given(kind, self.inputs.popleft(), self.operands["inputs"])
            else:
                ended = self._state(step) if kind == "state" else self._classes()
            if not ended:
                return

    def _beat(self, kind: str) -> bool:
        """Gives a beat of x, if it is known when that is there."""
        if self.x.head is None:
            return False
        count = self.operands["window" if kind == "window" else "inputs"]
        few = min(CODES_A_BEAT // self.config.parallel, count - self.position)
        ends = self.position + few == count
        last = max(self.next, self.x.head) + few - 1
        if ends and kind == "window":
            last = max(last, self._clear(self.operands["front"]))
        self.x.take(last)
        self.position += few
        self.next = last + 1
        if ends:
            if kind == "window":
                self._leaves(last, self.operands["front"], self.operands["filters"])
                self.inputs.append(self.busy - APART + self.stages.inputs)
            self._row_ends()
        return True

    def _row_ends(self) -> None:
        self.position = 0
        self.row = next(self.order, None)

    def _given(self, kind: str, first: int, count: int) -> bool:
        """Gives a row of ``count`` chunks from ``first`` on, or later."""
        last = max(self.next, first) + count - 1
        if kind != "input":
            last = max(last, self._clear(0))
        self.next = last + 1
        self._row_ends()
        return True

    def _clear(self, front: int) -> int:
        """From when on a row may end whose sums leave from group ``front`` on."""
        return max(self.busy - front, self.last + 2)

    def _leaves(self, last: int, front: int, groups: int) -> None:
        """Sums of a row with its last chunk in ``last`` leave the groups."""
        self.last, self.busy = last, last + front + groups + APART

    def _state(self, step: int) -> bool:
        """Gives a hidden state, if it is known when it may enter."""
        operands = self.operands
        hidden, steps = operands["hidden"], operands["steps"]
        emits = bool(operands["every"] or step == steps - 1) and not operands["quiet"]
        waits = bool(step) and not (operands["each"] and operands["classes"])
        first = self.arrivals[0] if waits else 0
        beats = -(-hidden * self.config.parallel // CODES_A_BEAT)
        if emits:
            room = self.rows.room(beats)
            if room is None:
                return False
            first = max(first, room)
            self.rows.reserved += beats
        if waits:
            self.arrivals.popleft()
        self._given("state", first, hidden)
        last = self.next - 1
        self._leaves(last, 0, hidden)
        results = last + self.stages.results
        self.arrivals.append(results)
        if emits:
            per_beat = CODES_A_BEAT // self.config.parallel
            ends = [min(end, hidden) for end in range(per_beat, hidden + per_beat, per_beat)]
            self.rows.add([results + end - 1 + 1 + FIFO for end in ends])
        if self.row is None:
            self._end(results + hidden - 1 + self.stages.finish)
        return True

    def _classes(self) -> bool:
        """Gives a hidden state to the dense layer, likewise."""
        classes = self.operands["classes"]
        room = self.sums.room(classes)
        if room is None:
            return False
        self.sums.reserved += classes
        self._given("classes", max(room, self.arrivals.popleft()), self.operands["hidden"])
        last = self.next - 1
        self._leaves(last, 0, classes)
        results = last + self.stages.sums
        for group in range(classes):
            self.sums.add([results + group + FIFO] * self.config.parallel)
        if self.row is None:
            self._end(results + classes - 1 + self.stages.finish)
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
