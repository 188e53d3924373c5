"""Timing of the shell: sequencer, LOAD, STORE and the bus; and what its engines build on.

::

    bus.py: LOAD --> sinks of engines
    engines --> queues --> STORE, a beat a cycle --> buffer of two bursts --> bursts --> answers, in order
                             |
                             +--> LOAD's port of an engine: forwards
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gradloom.program.assembler import Instruction
from gradloom.rtl.shell.engines import STORE, Engines

from .bus import Bus, MemoryTime, ReadingMachine

if TYPE_CHECKING:
    from .ports import WritePort

__all__ = ["FIFO", "OneAtATime", "Queue", "ShellMachine", "TimedMachine", "Waking"]

FIFO = 2  # cycles from a write to a buffered FIFO to its word at the output


class Queue:
    """Beats on their way to STORE.

    They are listed by the cycle from which each may be taken.
    """

    #: When they are there follows from when STORE asks and takes, and from nothing else.
    alone = False

    def __init__(self, machine: "ShellMachine") -> None:
        self.machine = machine
        self.times: deque[int] = deque()

    def add(self, times: Sequence[int]) -> None:
        self.times.extend(times)
        store = self.machine.store
        # Its next beat is another's, or was known before.
        if store.queue is self and store.waking < 0:
            store.poke()

    def change(self, old: int, times: Sequence[int]) -> None:
        """Gives the last ``old`` beats other times.

        Those that were taken in between stay taken.
        """
        keep = min(old, len(self.times))
        for _ in range(keep):
            self.times.pop()
        self.times.extend(times[len(times) - keep :])
        self.machine.store.poke()

    def next(self) -> int | None:
        return self.times[0] if self.times else None

    def take(self, cycle: int) -> None:
        self.times.popleft()

    def ready(self, cycle: int) -> int:
        """When it takes STORE's request, from ``cycle`` on."""
        return cycle

    def ahead(self, command: int, cycle: int) -> None:
        """STORE's next command is known from ``cycle`` on."""

    def begin(self, cycle: int, beats: int) -> None:
        """STORE asks in ``cycle``."""


class OneAtATime:
    """An engine that runs one command, while the next may be offered.

    A subclass has :meth:`_begin`.
    """

    machine: "ShellMachine"
    offered: tuple[int, int] | None
    command: int | None
    free_at: int
    #: Cycles in which it checks a command before it takes it.
    check = 0

    def offer(self, command: int, cycle: int) -> None:
        self.offered = (command, cycle)
        if self.command is None:
            self._start(cycle)

    def _start(self, cycle: int) -> None:
        if self.offered is None or self.command is not None:
            return
        command, offered = self.offered
        at = max(offered + self.check, self.free_at)
        self.offered = None
        self.command = command
        self.machine.scheduler.taken(command, at)
        self._begin(command, at)

    def _begin(self, command: int, at: int) -> None:
        raise NotImplementedError


class StoreTime(OneAtATime):
    """The engine STORE."""

    def __init__(self, machine: "ShellMachine") -> None:
        self.machine = machine
        self.agenda = machine.agenda
        self.latency = machine.memory.write_latency
        self.offered = None
        self.command = None
        self.free_at = 0
        self.queue: Queue | None = None
        self.asked = -2  # its last request was taken
        self.waking = -1
        self.write_beats = 0
        self.burst = machine.burst
        self.moves: deque[int] = deque(maxlen=2 * self.burst)  # when each of the last beats left the buffer
        self.answers: deque[int] = deque(maxlen=machine.outstanding)
        self.ends: deque[int] = deque(maxlen=4)
        #: Where there are several; and when the last address left, and the last word.
        self.ports = _write_ports(machine) if machine.ports > 1 else []
        self.addressed = self.sent = 0

    def offer(self, command: int, cycle: int) -> None:
        source = self.machine.commands[command].operands["source"]
        self.machine.queues[source].ahead(command, max(cycle + 1, self.asked + 2))
        super().offer(command, cycle)

    def _begin(self, command: int, at: int) -> None:
        operands = self.machine.commands[command].operands
        self.left = operands["beats"]
        self.address = operands["offset"] // self.machine.beat_bytes
        self.in_burst = 0
        self.to = operands["to"] if operands.get("forward") else None
        self.only = bool(operands.get("only"))
        self.issue = at + 1  # not before the cycle two after this one
        source = operands["source"]
        self.asked = self.machine.queues[source].ready(at + 3)
        self.agenda.decide(self.asked, lambda now: self._asked(now, source))

    def _asked(self, cycle: int, source: int) -> None:
        self.queue = self.machine.queues[source]
        self.queue.begin(cycle, self.left)
        self.next = cycle + 1
        self._pull(cycle, last=True)

    def poke(self) -> None:
        """A source knows more."""
        if self.queue is not None:
            self._pull(self.machine.now)

    def _pull(self, cycle: int, *, last: bool = False) -> None:
        """Takes all beats up to ``cycle``, and comes back for the rest.

        ``last``: nothing else happens in ``cycle`` afterwards, so time may go on until something does.
        """
        queue, moves = self.queue, self.moves
        if queue is not None and queue.alone:
            self._flow(queue)
            return
        while queue is not None:
            time = queue.next()
            if time is None:
                return
            if time < self.next:
                time = self.next
            # The buffer also holds what is in no burst yet.
            before = len(moves) + self.in_burst - 2 * self.burst
            if before >= 0 and time <= moves[before] and not self.only:
                time = moves[before] + 1
            if self.to is not None and time <= cycle:
                time = self.next = self.machine.bus.free(self.to, time)
            if time > cycle:
                if not last or time >= self.agenda.next_cycle():
                    self._wake_at(time)
                    return
                self.machine.now = cycle = time
                if self.to is not None:
                    # What LOAD brought until now is known only now.
                    continue
            self._take(time)
            queue = self.queue

    def _flow(self, queue: Queue) -> None:
        """Takes the beats of a queue that is ``alone``, before their time.

        Those that are forwarded as far as it is known when LOAD's port takes beats.
        """
        to, only, moves = self.to, self.only, self.moves
        sure = self.machine.bus.sure(to) if to is not None else math.inf
        full = len(moves) - 2 * self.burst
        while True:
            time = max(queue.times[0], self.next)
            before = full + self.in_burst
            if before >= 0 and not only and time <= moves[before]:
                time = moves[before] + 1
            if to is not None:
                if time < sure:
                    time = self.machine.bus.free(to, time)
                self.next = time
                if time >= sure:
                    self._wake_at(time)
                    return
            self._take(time)
            if self.queue is None:
                return
            full = len(moves) - 2 * self.burst

    def _wake_at(self, cycle: int) -> None:
        if self.waking != cycle:
            self.waking = cycle
            self.agenda.decide(cycle, self._wake)

    def _wake(self, cycle: int) -> None:
        self.waking = -1
        if self.queue is not None:
            self._pull(cycle, last=True)

    def _take(self, cycle: int) -> None:
        queue = self.queue
        assert queue is not None
        self.next = cycle + 1
        self.left -= 1
        if not self.left:
            self.queue = None
        queue.take(cycle)
        if self.only:
            if not self.left:
                # Done in order.
                ended = max(cycle + 1, self.answers[-1] + 1 if self.answers else 0)
                self._end(ended, ended)
            return
        self.in_burst += 1
        self.address += 1
        self.write_beats += 1
        if self.left and self.address % self.burst:
            return
        issue = max(cycle + 1, self.issue + 2)
        if len(self.answers) == self.machine.outstanding:
            issue = max(issue, self.answers[0] + 1)
        if len(self.ends) == 4:
            issue = max(issue, self.ends[0] + 1)
        if self.ports:
            # The register of addresses holds the one before.
            issue = max(issue, self.addressed)
            answer = self._deal(issue)
            sent = self.ports[self._port()].sent
        else:
            move = max(issue + 1, self.moves[-1] + 1 if self.moves else 0)
            for n in range(self.in_burst):
                self.moves.append(move + n)
            sent = self.moves[-1] + 1
            answer = sent + self.latency + 1
        self.issue = issue
        self.ends.append(self.moves[-1])
        if self.answers:
            answer = max(answer, self.answers[-1] + 1)
        self.answers.append(answer)
        if self.ports:
            self.ports[self._port()].answers.append(answer)
        if self.machine.dram is not None:
            parts = self.in_burst * self.machine.bus.spacing
            self.machine.dram.write(sent, self._port() if self.ports else 0, self.address - self.in_burst, parts)
        self.in_burst = 0
        if not self.left:
            self._end(issue, answer)

    def _port(self) -> int:
        """Port of the burst whose last word came."""
        return (self.address - 1) // self.burst % len(self.ports)

    def _deal(self, issue: int) -> int:
        """Sends the burst to its port; returns when its answer is there."""
        port = self.ports[self._port()]
        self.addressed = port.address(issue + 1)
        for n in range(self.in_burst):
            move = max(self.sent, 0 if n else issue + 1)
            self.moves.append(move)
            self.sent = port.take(max(move + 1, self.addressed + 1))
        return port.answer()

    def _end(self, last: int, answer: int) -> None:
        """It may take a command after ``last``, and is done after ``answer``."""
        command, self.command = self.command, None
        assert command is not None
        self.machine.scheduler.done(STORE, command, answer + 1)
        self.free_at = last + 1
        self._start(last + 1)


def _write_ports(machine: "ShellMachine") -> list["WritePort"]:
    from .ports import WritePort

    parts, depth = 16 // machine.burst, 2 * machine.burst
    most, latency = machine.outstanding // machine.ports, machine.memory.write_latency
    return [WritePort(most=most, parts=parts, depth=depth, latency=latency) for _ in range(machine.ports)]


class ShellMachine(ReadingMachine):
    """Sequencer, LOAD and STORE.

    A machine adds its ``engines``, the ``queues`` that STORE asks and the ``sinks`` that do not take every beat of a
    LOAD as it comes.
    """

    def __init__(
        self,
        commands: Sequence[Instruction],
        table: Engines,
        shell: Mapping[str, int],
        program_offset: int,
        memory: MemoryTime,
    ) -> None:
        super().__init__(commands, table, shell, program_offset, memory)
        self.store = StoreTime(self)
        self.engines |= {STORE: self.store}
        self.queues: dict[int, Queue] = {}

    def make_bus(self) -> Bus:
        if self.ports == 1:
            return super().make_bus()
        from .ports import PortsBus

        return PortsBus(self)


class TimedMachine(ShellMachine):
    """The shell in time, and the state that its engines share.

    Attributes
    ----------
    models : dict
        Models of the engines by name; each has ``queues`` by STORE's source and ``sinks`` by LOAD's destination.
    held : int
        Beats of encoders that found the queue to STORE full.
    array_cycles : int
        In so many an array worked on products of the base.
    """

    def __init__(
        self, commands: Sequence[Instruction], table: Engines, config: Any, program_offset: int, memory: MemoryTime
    ) -> None:
        super().__init__(commands, table, config.shell, program_offset, memory)
        self.config = config
        self.models: dict[str, Any] = {}
        self.held = self.array_cycles = 0


class Waking(OneAtATime):
    """An engine that looks again when its input may be there.

    :meth:`_go` then does the work.
    """

    def __init__(self, machine: TimedMachine) -> None:
        self.machine: TimedMachine = machine
        self.offered = None
        self.command = None
        self.free_at = 0
        self.waking = -1

    def wake(self, cycle: int) -> None:
        """Something that it may wait for is there from ``cycle`` on."""
        if self.waking != cycle:
            self.waking = cycle
            self.machine.agenda.decide(cycle, self._woken)

    def _woken(self, cycle: int) -> None:
        if self.waking == cycle:
            self.waking = -1
        self._go(cycle)

    def _go(self, cycle: int) -> None:
        raise NotImplementedError
