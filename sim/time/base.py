"""Interface of engines to their machine in time, and their waking."""

from collections.abc import Sequence
from typing import Any

from gradloom.program.assembler import Instruction
from gradloom.rtl.shell.engines import Engines

from .shell import OneAtATime, ShellMachine

__all__ = ["TimedMachine", "Waking"]


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
        self,
        commands: Sequence[Instruction],
        table: Engines,
        config: Any,
        program_offset: int,
        read_latency: int,
        write_latency: int,
        port_reads: int = 0,
    ) -> None:
        super().__init__(commands, table, config.shell, program_offset, read_latency, write_latency, port_reads)
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
