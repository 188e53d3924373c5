"""The common forecast of all machines, and its comparison with a trace."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gradloom.program.assembler import Instruction
from gradloom.rtl.shell.engines import Engines

from .shell.scheduler import Times

__all__ = ["Comparison", "Timing", "compare", "observed"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Timing:
    """Forecast of a program.

    ``total``: cycles from bell to interrupt. ``phases``: the same by name, as the phase counters count.
    ``commands``: ``(started, done)`` of each instruction, cycles since the bell; None if it is dropped. ``engines``: of
    the machine.

    ``read_beats``, ``write_beats``: over the bus, with those of the program. ``held``: beats of encoders that find the
    queue to STORE full; what waits behind them waits longer than forecast, and where it is 0 all of it is exact.
    ``array_cycles``: in so many a linear engine's array works on products of the base.
    """

    total: int
    phases: dict[str, int]
    commands: list[Times | None] = field(repr=False)
    clock_mhz: float
    engines: Engines = field(repr=False)
    instructions: Sequence[Instruction] = field(repr=False)
    read_beats: int
    write_beats: int
    held: int
    array_cycles: int

    @property
    def seconds(self) -> float:
        """Time at the design's clock."""
        return self.total / (self.clock_mhz * 1e6)

    @property
    def array_busy(self) -> float:
        """Share of all cycles in which the linear engine's array works."""
        return self.array_cycles / self.total


def observed(forecast: Timing, trace: np.ndarray) -> list[Times | None]:
    """``(started, done)`` of each command in a trace.

    It is None where the forecast has a command dropped.

    Raises :class:`ValueError` if the trace has other commands than the forecast.
    """
    starts: list[list[int]] = [[] for _ in forecast.engines]
    dones: list[list[int]] = [[] for _ in forecast.engines]
    for event in trace.tolist():
        cycle = event >> 32
        for e in range(len(forecast.engines)):
            if event >> e & 1:
                starts[e].append(cycle)
            if event >> (16 + e) & 1:
                dones[e].append(cycle)
    out: list[Times | None] = []
    at = [0] * len(forecast.engines)
    for command, times in zip(forecast.instructions, forecast.commands):
        if times is None:
            out.append(None)
            continue
        e = int(command.engine)
        if at[e] == min(len(starts[e]), len(dones[e])):
            raise ValueError(f"trace: {command.engine.name} ends {at[e]} commands, the forecast has more")
        out.append((starts[e][at[e]], dones[e][at[e]]))
        at[e] += 1
    for engine, ended in zip(forecast.engines, dones):
        if len(ended) != at[engine]:
            raise ValueError(f"trace: {engine.name} ends {len(ended)} commands, the forecast has {at[engine]}")
    # A trace counts from where it likes: its first event is where the forecast has it.
    first = min((t[0] for t in out if t is not None), default=0)
    shift = min((t[0] for t in forecast.commands if t is not None), default=0) - first
    return [None if t is None else (t[0] + shift, t[1] + shift) for t in out]


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """A forecast beside a trace.

    ``started``, ``done``, ``duration``: forecast minus trace, of each command that ran (``index``). ``engine``,
    ``opcode``: what it is.
    """

    index: np.ndarray
    engine: np.ndarray
    opcode: np.ndarray
    started: np.ndarray
    done: np.ndarray
    duration: np.ndarray

    def equal(self, engine: int | None = None, opcode: int | None = None) -> float:
        """Share of the commands whose duration is as forecast.

        They are those of ``engine`` and ``opcode``; 1 if there are none.
        """
        which = np.ones(len(self.index), bool)
        if engine is not None:
            which &= self.engine == engine
        if opcode is not None:
            which &= self.opcode == opcode
        return float((self.duration[which] == 0).mean()) if which.any() else 1.0

    @property
    def exact(self) -> float:
        """Share of the commands that start and end in the forecast cycles."""
        return float(((self.started == 0) & (self.done == 0)).mean())


def compare(forecast: Timing, trace: np.ndarray) -> Comparison:
    """Compares a forecast with a trace, command by command.

    The trace is of :meth:`~gradloom.sim.run.device.SimulatedDevice.take_trace`.
    """
    pairs = [
        (n, ours, theirs)
        for n, (ours, theirs) in enumerate(zip(forecast.commands, observed(forecast, trace)))
        if ours is not None and theirs is not None
    ]
    if not pairs:
        raise ValueError("forecast: no command runs")
    difference = np.array([p[1] for p in pairs]) - np.array([p[2] for p in pairs])
    which = [forecast.instructions[p[0]] for p in pairs]
    return Comparison(
        index=np.array([p[0] for p in pairs]),
        engine=np.array([int(c.engine) for c in which]),
        opcode=np.array([int(c.opcode) for c in which]),
        started=difference[:, 0],
        done=difference[:, 1],
        duration=difference[:, 1] - difference[:, 0],
    )
