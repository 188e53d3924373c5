"""The vector engine in time."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from gradloom.rtl.engines.operands import OperandQueue
from gradloom.rtl.engines.vector.engine import VectorEngine
from gradloom.rtl.engines.vector.lane import Lane
from gradloom.rtl.engines.vector.rows.roots import RowSums
from gradloom.rtl.formats.vector import VectorOpcode
from gradloom.rtl.machines.language import VECTOR

from .shell.bus import Sink, TransferTime
from .shell.queues import Operands, Output
from .shell.shell import FIFO, TimedMachine, Waking

__all__ = ["VectorTime"]


@dataclass(frozen=True, kw_only=True)
class _Operation:
    """Timing of an opcode.

    Its operand streams, cycles a beat, and in which of them each result is made; whether roots follow, and how many
    cycles they take a token.
    """

    streams: str = "a"
    cycles: int = 1
    o: int | None = None
    q: int | None = None
    roots: int = 0


_OPERATIONS = {
    VectorOpcode.WEIGHTS: _Operation(),
    VectorOpcode.SWIGLU: _Operation(streams="ab", o=0),
    VectorOpcode.SWIGLU_BACKWARD: _Operation(streams="abc", cycles=2, q=0, o=1),
    VectorOpcode.NORM_SUMS: _Operation(roots=1),
    VectorOpcode.NORM: _Operation(o=0),
    VectorOpcode.NORM_BACKWARD_SUMS: _Operation(streams="ab", cycles=2, roots=2),
    VectorOpcode.NORM_BACKWARD: _Operation(streams="ab", o=0),
    VectorOpcode.ADD: _Operation(streams="ab", o=0),
    VectorOpcode.ROPE: _Operation(streams="ab", o=0),
    VectorOpcode.SOFTMAX_SUMS: _Operation(roots=1),
    VectorOpcode.SOFTMAX: _Operation(o=0),
    VectorOpcode.SOFTMAX_BACKWARD_SUMS: _Operation(streams="ab", roots=1),
    VectorOpcode.SOFTMAX_BACKWARD: _Operation(streams="ab", o=0),
    VectorOpcode.TARGETS: _Operation(),
    VectorOpcode.SCALE: _Operation(o=0),
    VectorOpcode.SCALE_BACKWARD: _Operation(streams="ab", cycles=2, q=0, o=1),
    VectorOpcode.NORM_BACKWARD_GAIN: _Operation(streams="ab", cycles=2, q=0, o=1),
    VectorOpcode.NORM_BACKWARD_ADD: _Operation(streams="abc", cycles=2, o=1),
}


class _Results(Output):
    """Results of the vector engine: room is counted from the operands on."""

    def __init__(self, vector: "VectorTime") -> None:
        # Two short of full, of which the engine takes one more.
        super().__init__(vector.machine, VECTOR, steps=1, limit=OperandQueue.depth - 3, delay=Lane.latency)
        self.vector = vector

    def issue(self, lasts: Sequence[int]) -> None:
        self.issued += len(lasts)
        self.writes.extend(lasts)
        self.add([last + self.delay + FIFO for last in lasts])

    def tell(self, cycle: int) -> None:
        """A beat behind all results, which STORE may take from ``cycle`` on."""
        self.issued += 1
        self.writes.append(cycle)
        self.add([cycle])

    def end(self, command: int, cycle: int) -> None:
        self.vector.emptied(cycle)


class VectorTime(Waking):
    """The engine VECTOR: a beat in one or two cycles."""

    def __init__(self, machine: TimedMachine) -> None:
        super().__init__(machine)
        config = machine.config
        self.a, self.b, self.c = (Operands(OperandQueue.depth) for _ in range(3))
        self.o, self.q = (_Results(self) for _ in range(2))
        self.queues = {VECTOR.store("o"): self.o, VECTOR.store("q"): self.q}
        self.sinks: dict[int, Sink] = {
            VECTOR.load("a"): self.take_a,
            VECTOR.load("b"): self.take_b,
            VECTOR.load("c"): self.take_c,
        }
        #: Cycles from the last operands to the last sum, and from there to the last root.
        self.settle = Lane.latency + RowSums.latency(config.beat_words) + 4
        self.operation = _Operation()
        self.streams: Sequence[Operands] = ()
        self.rope = False
        self.left = 0  # beats
        self.phase = 0  # of the next beat
        self.next = 0  # it may enter
        self.waited = False  # for room: it enters no earlier than now
        self.full = 0  # queues of results that are to be emptied
        self.tells = ""  # a beat behind all results
        # Rows of ROPE.
        self.row = self.tokens = 0
        self.free: deque[int] = deque()  # from when on each bank may be filled
        self.rows: deque[int] = deque()  # from when on each row that is there may be read
        self.put_left = self.put_at = self.put_next = self.place = 0

    def _begin(self, command: int, at: int) -> None:
        what = self.machine.commands[command]
        opcode = VectorOpcode(what.opcode)
        operands = what.operands
        self.operation = _OPERATIONS[opcode]
        self.streams = (self.a, self.b, self.c)[: len(self.operation.streams)]
        self.rope = opcode == VectorOpcode.ROPE
        self.row = operands["row"]
        self.tokens = 1 if opcode == VectorOpcode.WEIGHTS else operands["tokens"]
        self.left = self.put_left = self.row * self.tokens * operands["tiles"]
        self.next = self.put_next = at + VectorEngine.start
        self.phase = self.put_at = self.place = self.full = 0
        self.tells = "to come" if opcode == VectorOpcode.SOFTMAX and operands.get("targets") else ""
        self.free = deque([self.next] * 2)
        for queue, made in ((self.o, self.operation.o), (self.q, self.operation.q)):
            if made is not None:
                queue.expect(self.left, command)
                self.full += 1
        self.wake(self.machine.now)

    # sinks

    def take_a(self, at: int, count: int, transfer: TransferTime) -> Sequence[int]:
        """Beats of a."""
        return self._put(self.a, at, count)

    def take_b(self, at: int, count: int, transfer: TransferTime) -> Sequence[int]:
        """Beats of b."""
        return self._put(self.b, at, count)

    def _put(self, queue: Operands, at: int, count: int) -> Sequence[int]:
        times: list[int] = []
        while more := queue.write(at, count - len(times)):
            times += more
            at = more[-1] + 1
            self._advance()
        return times

    def take_c(self, at: int, count: int, transfer: TransferTime) -> Sequence[int]:
        """Beats of c."""
        return self._put(self.c, at, count)

    # beats

    def _advance(self) -> None:
        """Takes the beats that are there.

        It stops where room for the results is not known yet.
        """
        while self._beat():
            pass

    def _beat(self) -> bool:
        """Takes the next beat, if it is known when."""
        if not self.left:
            return False
        cycle = 0
        if self.rope:
            self._rows()
            if not self.rows:
                return False
            cycle = self.rows[0]
        else:
            for stream in self.streams:
                if stream.head is None:
                    return False
                if stream.head > cycle:
                    cycle = stream.head
        for phase in range(self.phase, self.operation.cycles):
            if self.next > cycle:
                cycle = self.next
            if self.waited and self.machine.now > cycle:
                cycle = self.machine.now
            if not self._room(cycle):
                return False
            self.next, self.phase, self.waited = cycle + 1, phase + 1, False
            for queue, made in ((self.o, self.operation.o), (self.q, self.operation.q)):
                if made == phase:
                    queue.issue([cycle])
        self.phase = 0
        self._taken(cycle)
        return True

    def _room(self, cycle: int) -> bool:
        """Whether results of ``cycle`` find room; otherwise comes back."""
        if self.o.sure() > 0 and self.q.sure() > 0:
            return True
        now = self.machine.now
        if cycle > now:
            self.wake(cycle)
            return False
        for queue in (self.o, self.q):
            if not queue.roomy(now):
                self.waited = True
                queue.wait(now, self.wake)
                return False
        return True

    def _taken(self, cycle: int) -> None:
        """A beat's last cycle."""
        if self.rope:
            self.place += 1
            if self.place == self.row:
                self.place = 0
                self.rows.popleft()
                self.free.append(cycle + 1)
        else:
            for stream in self.streams:
                stream.take(cycle)
        self.left -= 1
        if self.left:
            return
        if self.operation.roots:
            asked = cycle + 1 + self.settle + 1 + self.operation.roots * self.tokens
            self._end(asked + self.settle + 1)
        elif not self.full:
            self._end(cycle + VectorEngine.finish)

    def _rows(self) -> None:
        """Fills banks."""
        while self.put_left and self.free and self.a.head is not None and self.b.head is not None:
            cycle = max(self.put_next, self.free[0], self.a.head, self.b.head)
            self.a.take(cycle)
            self.b.take(cycle)
            self.put_next = cycle + 1
            self.put_left -= 1
            self.put_at += 1
            if self.put_at == self.row:
                self.put_at = 0
                self.free.popleft()
                self.rows.append(cycle + 1)

    def emptied(self, cycle: int) -> None:
        """STORE takes the last result of a kind in ``cycle``."""
        self.full -= 1
        if self.full:
            return
        if self.tells == "to come":
            assert self.command is not None
            self.tells, self.full = "there", 1
            self.q.expect(1, self.command)
            self.q.tell(cycle + VectorEngine.finish - 1)
        else:
            self._end(cycle + (VectorEngine.tell if self.tells else VectorEngine.finish))

    def _end(self, cycle: int) -> None:
        """Done in ``cycle``."""
        command, self.command = self.command, None
        assert command is not None
        self.free_at = cycle
        self.machine.scheduler.done(VECTOR, command, cycle)
        self._start(self.machine.now)

    def _go(self, cycle: int) -> None:
        self._advance()
        # What waits on the bus may find room.
        self.machine.bus.pump()
