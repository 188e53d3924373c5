"""What the engines of the machine for quantised linear layers know of it in time, and how they wake."""
from collections.abc import Sequence

from gradloom.rtl.config import LinearConfig
from gradloom.rtl.machines.engines import LANGUAGE
from gradloom.rtl.plan.program.assembler import Instruction

from .shell import OneAtATime, ShellMachine

__all__ = ["TimedMachine", "Waking"]


class TimedMachine(ShellMachine):
    """The machine, without its engines."""

    def __init__(self, commands: Sequence[Instruction], config: LinearConfig, program_offset: int, read_latency: int,
                 write_latency: int) -> None:
        super().__init__(commands, LANGUAGE, config.shell, program_offset, read_latency, write_latency)
        self.config = config
        self.write_beats = 0


class Waking(OneAtATime):
    """An engine that looks again when something it waits for may be there: :meth:`_go` is what it does then."""

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
