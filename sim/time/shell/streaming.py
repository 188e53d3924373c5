"""An engine in time that takes a beat a cycle while its output has room."""

from collections.abc import Sequence

from gradloom.program.assembler import Instruction

from .bus import Sink, TransferTime
from .queues import Output
from .shell import OneAtATime, Queue, TimedMachine

__all__ = ["Streaming"]


class Streaming(OneAtATime):
    """Runs one command after another: steps, then a fixed time.

    A step takes a cycle, with a beat of a load port or without one.

    A beat waits for room in the queue before STORE: in the cycle before, fewer than ``limit`` beats may be in it. The
    next command is taken in the cycle after ``done``. A subclass has :meth:`steps`.

    Parameters
    ----------
    machine : TimedMachine
    name : str
        Of the engine.
    load, store : str
        Its ports.
    limit, delay : int
        Of the queue, see :class:`~.queues.Output`.
    begin, end : int
        Cycles from the start of a command to its first step, and from its last step to ``done``.
    """

    def __init__(
        self, machine: TimedMachine, name: str, *, load: str, store: str, limit: int, delay: int, begin: int, end: int
    ) -> None:
        self.machine: TimedMachine = machine
        self.engine = machine.engine_table.named(name)
        self.offered = self.command = None
        self.free_at = self.open_at = self.left = 0
        self.gives = False
        self.first, self.last = begin, end
        self.output = Output(machine, self.engine, steps=1, limit=limit, delay=delay)
        self.queues: dict[int, Queue] = {self.engine.store(store): self.output}
        self.sinks: dict[int, Sink] = {self.engine.load(load): self.take}

    def steps(self, what: Instruction) -> tuple[int, bool, bool]:
        """Steps of a command, and their inputs and outputs.

        Returns the number of steps, whether each takes a beat, and whether each gives one.
        """
        raise NotImplementedError

    def _begin(self, command: int, at: int) -> None:
        count, takes, self.gives = self.steps(self.machine.commands[command])
        self.open_at = at + self.first
        if takes:
            self.left = count
            self.machine.agenda.decide(self.open_at, self._look)
        else:
            self._end(self.open_at + count - 1)

    def take(self, at: int, count: int, transfer: TransferTime) -> Sequence[int]:
        """Beats of the load port."""
        times: list[int] = []
        while self.left and len(times) < count:
            at = max(at, self.open_at)
            sure = min(self.output.sure(), self.left, count - len(times))
            if sure <= 0 and at > self.machine.now:
                self.machine.agenda.decide(at, self._look)
                break
            if sure <= 0 and not self.output.roomy(at):
                self.output.wait(at, self._look)
                break
            taken = range(at, at + max(sure, 1))
            times += taken
            self.open_at = taken[-1] + 1
            self.left -= len(taken)
            if self.gives:
                self.output.issue(taken)
            if not self.left:
                self._end(taken[-1])
        return times

    def _look(self, cycle: int) -> None:
        """Tries again, in ``cycle`` at the earliest."""
        self.open_at = max(self.open_at, cycle)
        self.machine.bus.pump()

    def _end(self, cycle: int) -> None:
        """The last step is made in ``cycle``."""
        command, self.command = self.command, None
        assert command is not None
        self.machine.scheduler.done(self.engine, command, cycle + self.last)
        self.free_at = cycle + self.last + 1
        self._start(self.free_at)
