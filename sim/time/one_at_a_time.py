"""Timing of engines that run one command at a time."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .shell import ShellMachine

__all__ = ["OneAtATime"]


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
