"""The head in time."""

from collections import deque

from gradloom.rtl.machines.images import HEAD

from .shell.bus import Sink
from .shell.queues import FifoQueue
from .shell.shell import FIFO, Queue, TimedMachine

__all__ = ["HeadTime"]


class _HeadQueue(Queue):
    """B: four beats are under way at most."""

    machine: TimedMachine

    def ready(self, cycle: int) -> int:
        return max(cycle, self.machine.models["head"].free_at)

    def begin(self, cycle: int, beats: int) -> None:
        self.machine.models["head"].dumping(cycle)
        self.left = beats
        self.issued = cycle
        self.times = deque()
        self._issue(cycle, 4)

    def _issue(self, cycle: int, count: int) -> None:
        for _ in range(min(count, self.left)):
            self.issued = max(self.issued + 1, cycle + 1)
            self.left -= 1
            self.times.append(self.issued + 2 + FIFO)

    def take(self, cycle: int) -> None:
        self.times.popleft()
        self._issue(cycle, 1)
        if not self.times:
            # Idle, then out of the state: two cycles after the last beat.
            self.machine.models["head"].dumped(cycle + 2)


class HeadTime:
    """The engine HEAD."""

    def __init__(self, machine: TimedMachine) -> None:
        self.machine = machine
        self.queues = {HEAD.store("b"): _HeadQueue(machine), HEAD.store("losses"): FifoQueue(machine)}
        self.sinks: dict[int, Sink] = {}
        self.free_at = 0
        self.blocked = False
        self.offered: tuple[int, int] | None = None

    def offer(self, command: int, cycle: int) -> None:
        if self.blocked:
            self.offered = (command, cycle)
            return
        operands = self.machine.commands[command].operands
        samples, k, classes = (operands[name] for name in ("samples", "k", "classes"))
        most = self.machine.config.classes
        at = max(cycle, self.free_at)
        done = at + (samples - 1) * max(k, classes, 4) + 2 * k + classes + most + 42
        self.free_at = done + k * classes + 12
        self.machine.scheduler.taken(command, at)
        self.machine.scheduler.done(HEAD, command, done)
        if operands.get("last"):
            self.machine.queues[HEAD.store("losses")].add([done - 1 + FIFO])

    def dumping(self, cycle: int) -> None:
        self.blocked = True

    def dumped(self, cycle: int) -> None:
        self.blocked = False
        self.free_at = cycle
        if self.offered is not None:
            offered, self.offered = self.offered, None
            self.offer(*offered)
