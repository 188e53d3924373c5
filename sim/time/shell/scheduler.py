"""Timing of the scheduler: engine queues, tokens, actions by cycle."""

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from gradloom.program.assembler import Instruction
from gradloom.rtl.shell.engines import Engines

__all__ = ["Agenda", "EngineModel", "SchedulerTime", "Times"]

#: When a command started, and when it was done.
Times = tuple[int, int]


class Agenda:
    """Actions by cycle.

    In a cycle, changes that become visible come before decisions on them.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Callable[[int], None]]] = []
        self._count = 0

    def visible(self, cycle: int, action: Callable[[int], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (cycle, 0, self._count, action))

    def decide(self, cycle: int, action: Callable[[int], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (cycle, 1, self._count, action))

    def actions(self) -> Iterator[tuple[int, Callable[[int], None]]]:
        """All actions with their cycles, in order.

        They include those that are added meanwhile.
        """
        heap = self._heap
        while heap:
            cycle, _, _, action = heapq.heappop(heap)
            yield cycle, action

    def next_cycle(self) -> float:
        """The cycle of the next action; nothing happens before it."""
        return self._heap[0][0] if self._heap else math.inf


class EngineModel(Protocol):
    """An engine to which commands are offered."""

    def offer(self, command: int, cycle: int) -> None:
        """``command`` is offered from ``cycle`` on, until it is taken."""


class Scheduled(Protocol):
    """A machine as its scheduler sees it."""

    commands: Sequence[Instruction]
    engine_table: Engines
    queue_depth: int
    agenda: Agenda
    engines: dict[int, EngineModel]
    dispatch: Any

    def started(self, command: int, cycle: int) -> None:
        """``command`` starts in ``cycle``."""

    def finished(self, command: int, cycle: int) -> None:
        """``command`` is done in ``cycle``."""

    def executing(self, e: int, cycle: int) -> None:
        """The commands under way of engine ``e`` changed in ``cycle``."""


class SchedulerTime:
    """Queues, tokens, starts and ends of commands.

    A start every second cycle, an end a cycle, the lowest engine first.
    """

    def __init__(self, machine: Scheduled) -> None:
        self.machine = machine
        self.agenda = machine.agenda
        self.depth = machine.queue_depth
        n = len(machine.engine_table)
        self.tokens = [0] * 16
        self.queues: list[deque[int]] = [deque() for _ in range(n)]  # not yet started
        self.offered = [False] * n
        self.under_way: list[deque[int]] = [deque() for _ in range(n)]  # started or offered, not yet done
        self.room = [self.depth] * n
        self.pending = [0] * n
        self.granted_at = -1
        self.evaluating = -1
        self.processing = -1
        self.control: int | None = None
        self.outstanding = 0

    def poke(self, cycle: int) -> None:
        """Something that a start may wait for is visible from ``cycle`` on."""
        if self.evaluating != cycle:
            self.evaluating = cycle
            self.agenda.decide(cycle, self._evaluate)

    def _evaluate(self, cycle: int) -> None:
        if cycle == self.granted_at:
            self.agenda.decide(cycle + 1, self._evaluate)
            return
        if cycle < self.granted_at:
            return
        tokens, commands = self.tokens, self.machine.commands
        for e in range(len(self.queues)):
            if e == 0:
                if self.control is None:
                    continue
                command = self.control
            else:
                if self.offered[e] or not self.queues[e]:
                    continue
                command = self.queues[e][0]
            if all(tokens[t] for t in commands[command].wait):
                self.granted_at = cycle + 1
                self.agenda.visible(cycle + 2, partial(self._grant, e=e, command=command))
                return

    def _grant(self, cycle: int, *, e: int, command: int) -> None:
        for token in self.machine.commands[command].wait:
            self.tokens[token] -= 1
        if e == 0:
            self.control = None
            self.machine.started(command, cycle - 1)
            self.agenda.decide(cycle, lambda now: self.machine.dispatch.execute(now, command))
        else:
            self.offered[e] = True
            self.machine.engines[e].offer(command, cycle)
        self.poke(cycle)

    def push(self, command: int, cycle: int) -> None:
        """Queued in ``cycle``."""
        e = self.machine.commands[command].engine
        self.room[e] -= 1
        self.outstanding += 1

        def later(now: int) -> None:
            self.queues[e].append(command)
            self.poke(now)

        self.agenda.visible(cycle + 1, later)

    def taken(self, command: int, cycle: int) -> None:
        """The engine takes the command in ``cycle``."""
        e = self.machine.commands[command].engine
        self.machine.started(command, cycle)

        def later(now: int) -> None:
            self.offered[e] = False
            self.queues[e].popleft()
            self.under_way[e].append(command)
            self.machine.executing(e, now)
            self.poke(now)

        self.agenda.visible(cycle + 1, later)

    def done(self, e: int, command: int, cycle: int) -> None:
        """``done`` of ``command`` is high in ``cycle``."""
        self.machine.finished(command, cycle)

        def later(now: int) -> None:
            self.pending[e] += 1
            if e == 0:
                self.under_way[0].append(command)
            self._process_at(now)

        self.agenda.visible(cycle + 1, later)

    def _process_at(self, cycle: int) -> None:
        if self.processing < cycle:
            self.processing = cycle
            self.agenda.decide(cycle, self._process)

    def _process(self, cycle: int) -> None:
        for e in range(len(self.pending)):
            if self.pending[e]:
                break
        else:
            return
        self.pending[e] -= 1

        def later(now: int) -> None:
            command = self.under_way[e].popleft()
            for token in self.machine.commands[command].post:
                self.tokens[token] += 1
            if e:
                self.room[e] += 1
                self.outstanding -= 1
                self.machine.executing(e, now)
            self.machine.dispatch.wake(now)
            self.poke(now)

        self.agenda.visible(cycle + 1, later)
        if any(self.pending):
            self._process_at(cycle + 1)
