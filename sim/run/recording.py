"""Counts the transitions of each bit of a simulated machine."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ARGUMENTS", "Recording", "recorded", "recording"]

#: Verilator's. A memory's words are no nets; the widest signals are.
ARGUMENTS = ("--trace-saif", "--trace-max-width", "65536", "--trace-max-array", "1")


@dataclass
class Recording:
    """A request to record the machine of a simulation.

    Attributes
    ----------
    folder : Path
        Gets Verilator's own ``activity`` (SAIF, in half periods of the clock) and ``activity.start``, in which bits
        that are 1 at first have a transition that did not happen.
    cycles : int, optional
        Recorded cycles, once the simulation has ended.
    """

    folder: Path
    cycles: int | None = None
    taken: bool = False

    def take(self) -> None:
        """Marks that a machine is recorded; there may be one."""
        if self.taken:
            raise ValueError("recording: there are two machines, of which one can be recorded")
        self.taken = True


_RECORDING: ContextVar[Recording | None] = ContextVar("recording", default=None)


def recording() -> Recording | None:
    """The recording in whose block this is called, if there is one."""
    return _RECORDING.get()


@contextlib.contextmanager
def recorded(folder: Path) -> Iterator[Recording]:
    """Records the machine that is built and simulated in the block.

    It is recorded from its start to its end. Loads of its memory by the host take no cycles.
    """
    made = Recording(folder.absolute())
    token = _RECORDING.set(made)
    try:
        yield made
    finally:
        _RECORDING.reset(token)
