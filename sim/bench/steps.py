"""Steps of a bench of an engine, and its result."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FENCE", "BenchCommand", "BenchLoad", "BenchStore", "BenchedRun", "Fence", "Process", "Step"]


@dataclass(frozen=True)
class BenchCommand:
    """A command of the engine.

    Parameters
    ----------
    opcode : int
    operands : mapping
        By name, as the specification lays them out.
    phase : str, optional
        What its cycles count as; the engine's first phase unless given.
    """

    opcode: int
    operands: Mapping[str, int] = field(default_factory=dict)
    phase: str | None = None


@dataclass(frozen=True)
class BenchLoad:
    """Beats for a load port ``load_PORT``.

    ``arg`` is LOAD's operand. Where the component has no such port, they are payloads for its input stream ``PORT``.
    """

    port: str
    beats: Sequence[Any]
    arg: int = 0


@dataclass(frozen=True)
class BenchStore:
    """Takes ``beats`` beats from a store port or an output stream.

    ``store_PORT`` is a store port, ``PORT`` an output stream of payloads.

    ``arg`` is STORE's operand. It begins ``after`` cycles later than it could.
    """

    port: str
    beats: int
    arg: int = 0
    after: int = 0


class Fence:
    """All steps before it end before those behind it begin."""


FENCE = Fence()

#: Plays in Amaranth's simulator, with its context.
Process = Callable[[Any], Awaitable[None]]
#: A step; an async function of the simulator's context runs alone, as if between fences.
Step = BenchCommand | BenchLoad | BenchStore | Fence | Process


@dataclass
class BenchedRun:
    """Result of a run. Cycles count from its beginning.

    Attributes
    ----------
    words : dict
        Beats, or payloads of plain streams, by port.
    loaded, stored : dict
        By port the cycle in which each beat was taken: by the engine, from the engine.
    started, done : list of int
        Cycles in which commands were taken and done.
    phases : dict
        Cycles by phase: of each command from the one in which it was taken, or the command before it was done, to the
        one in which it was done. The shell's counters count the same.
    errors : list
        ``(cycle, code)`` of each error of the engine.
    refused : list
        ``(cycle, port, beat)`` of each beat or request that a port refused; requests have no beat.
    seen : dict
        Of each signal that is watched the value in every cycle.
    left : list of str
        Store ports and streams that offered more beats in the end.
    cycles : int
    """

    words: dict[str, list[Any]] = field(default_factory=dict)
    loaded: dict[str, list[int]] = field(default_factory=dict)
    stored: dict[str, list[int]] = field(default_factory=dict)
    started: list[int] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    phases: dict[str, int] = field(default_factory=dict)
    errors: list[tuple[int, int]] = field(default_factory=list)
    refused: list[tuple[int, str, int | None]] = field(default_factory=list)
    seen: dict[str, list[Any]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    cycles: int = 0

    @property
    def codes(self) -> list[int]:
        """Codes of the errors, in order."""
        return [code for _, code in self.errors]

    def total(self, name: str, command: int | None = None) -> int:
        """Sum of a watched signal over all cycles.

        With ``command``, from that command's start to its end.
        """
        if command is None:
            return sum(self.seen[name])
        return sum(self.seen[name][self.started[command] : self.done[command] + 1])
