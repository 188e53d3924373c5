"""Runs programs on a machine, and compares counters and cycles."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gradloom.firmware.device.host import Accelerator, ProgramCounters
from gradloom.program.assembler import Instruction
from gradloom.program.placed import Place, Program

from ..time.forecast import MemoryTime, forecast
from ..time.timing import Comparison, Timing, compare
from .builds.designs import design
from .counted import Words, check_counters, check_forecast, check_words
from .device import MEMORY_BYTES, SimulatedDevice, build_device

__all__ = ["MachineHost", "MachineRunner", "Ran", "check_runs"]

#: Seconds that a simulated program may take.
_TIMEOUT = 36000.0


class MachineHost(Protocol):
    """Access to a machine, over any transport.

    It is :class:`~gradloom.firmware.device.host.Accelerator`, or firmware in its place.
    """

    def store(self, offset: int, content: Any, /) -> None: ...

    def fetch(self, offset: int, length: int, /) -> bytes: ...

    def run(self, offset: int, commands: int, /, *, timeout: float | None = None) -> ProgramCounters: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Ran:
    """A program that has run.

    Attributes
    ----------
    program : Program
    counters : Counters
    trace : array, optional
        See :meth:`~.device.SimulatedDevice.take_trace`; None where nothing records it.
    memory : MemoryTime, optional
        Of the forecast; None where its latencies are not fixed, which has no forecast.
    """

    program: Program
    counters: ProgramCounters
    trace: np.ndarray | None = field(repr=False, default=None)
    memory: MemoryTime | None = None

    @cached_property
    def forecast(self) -> Timing | None:
        """Forecast of the program on this memory, if there is one."""
        return None if self.memory is None else forecast(self.program, memory=self.memory)

    def compared(self) -> Comparison:
        """The forecast beside the trace, command by command."""
        assert self.forecast is not None and self.trace is not None
        return compare(self.forecast, self.trace)

    def check(
        self,
        *,
        saturated: int | None = None,
        underflowed: int = 0,
        gradient_norm: int = 0,
        requests: Iterable[Instruction] = (),
        told: Timing | None = None,
    ) -> dict[str, int]:
        """Raises :class:`~.counted.MismatchError` at a difference.

        It is a counter, or the cycles of a command, that is not as expected.
        Without fixed latencies of the memory, and with requests, cycles have no forecast and the other counters are
        compared.

        Parameters
        ----------
        saturated : int, optional
            Words that the reference clipped; None takes the counter as it is.
        underflowed, gradient_norm : int
            As the reference has them.
        requests : iterable of Instruction
            Commands of requests that were served beside the program.
        told : Timing, optional
            The forecast for this memory, if it is made already.

        Returns
        -------
        dict
            ``counters`` and ``commands``: how many were compared.
        """
        beside = list(requests)
        health = {
            "saturated": self.counters.saturated if saturated is None else saturated,
            "underflowed": underflowed,
            "gradient_norm": gradient_norm,
        }
        count = check_counters(
            self.counters,
            [*self.program.instructions, *beside],
            beat_bytes=self.program.config.shell["data_bits"] // 8,
            health=health,
            interrupted=bool(beside),
        )
        told = None if beside or self.memory is None else told or self.forecast
        return {"counters": count, "commands": 0 if told is None else check_forecast(self.counters, told, self.trace)}


def check_runs(
    ran: Sequence[Ran],
    health: Sequence[Mapping[str, Any]],
    found: Words,
    wanted: Words,
    told: Sequence[Timing] | None = None,
) -> dict[str, int]:
    """Compares programs that have run with reference and forecast, and the words that they left.

    Raises :class:`~.counted.MismatchError` at the first word, counter or cycle that differs.

    Parameters
    ----------
    ran, health : sequence
        Each program, and its counters as the reference has them: see :meth:`Ran.check`.
    found, wanted : mapping
        Words of the machine and of the reference.
    told : sequence of Timing, optional
        The forecast of each program, if it is made already; further ones have not run.

    Returns
    -------
    dict
        How many were compared: words by kind, ``counters`` and ``commands``.
    """
    count = {kind: check_words(words, wanted[kind]) for kind, words in found.items()}
    timings: Sequence[Timing | None] = [None] * len(ran) if told is None else told[: len(ran)]
    for each, counters, timing in zip(ran, health, timings, strict=True):
        for name, more in each.check(**counters, told=timing).items():
            count[name] = count.get(name, 0) + more
    return count


class MachineRunner:
    """A machine with its memory, which runs programs.

    Use it in a ``with``, or :meth:`close` it. What a program keeps in the engines is there for the next; memory is as
    the programs before have left it.

    Parameters
    ----------
    host : Host
        The way to the machine: simulated, or any other.
    """

    def __init__(self, host: MachineHost) -> None:
        self.host = host
        transport = host.transport if isinstance(host, Accelerator) else None
        #: The simulation, if it is one; its memory's latencies may be set between programs.
        self.device = transport if isinstance(transport, SimulatedDevice) else None
        if self.device is not None:
            self.device.set("trace", 1)

    @classmethod
    def simulated(
        cls,
        config: Any,
        files: Sequence[Path] = (),
        *,
        memory_bytes: int = MEMORY_BYTES,
        timing: Mapping[str, int] | None = None,
        progress: Callable[[int, int, str], object] | None = None,
        expected: int = 0,
    ) -> "MachineRunner":
        """The simulated machine of a configuration.

        It is behind the host's own driver.

        Parameters
        ----------
        files : sequence of Path
            Verilog whose outermost module is ``gradloom``; none: that of the configuration is made.
        timing : mapping
            Inputs of the simulated memory: ``read_latency``, ``write_latency``, ``dram``, ``stall``, ``spread``,
            ``seed``.
        progress : callable, optional
            ``progress(done, total, text)``. ``expected``: cycles, for the total.
        """

        def tell(text: str) -> None:
            if progress is not None:
                progress(0, 0, text)

        def cycled(cycles: int) -> None:
            if progress is not None:
                progress(cycles, max(expected, cycles), "cycles")

        if not files:
            tell("generating Verilog")
        built = build_device(files or design(config), memory_bytes=memory_bytes, **config.bus, tell=tell)
        device = SimulatedDevice(built, memory_bytes=memory_bytes, progress=cycled)
        for name, value in (timing or {}).items():
            device.set(name, value)
        return cls(Accelerator(device))

    def __enter__(self) -> "MachineRunner":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the simulation, if it is one."""
        if self.device is not None:
            self.device.close()

    def write(self, offset: int, content: Any) -> None:
        """Puts bytes into memory."""
        self.host.store(offset, content)

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of memory."""
        return self.host.fetch(offset, length)

    def words(self, place: Place) -> np.ndarray:
        """The array at a place of memory."""
        return place.words(self.read(place.offset, place.length))

    def run(self, program: Program) -> Ran:
        """Puts a program and its data into memory, and runs it to its end."""
        device = self.device
        if device is not None:
            if program.length > device.window_size:
                raise ValueError(
                    f"program: needs {program.length:,} bytes of memory, the simulation has {device.window_size:,}"
                )
            # Of what ran by other means.
            device.take_trace()
        for offset, content in program.contents():
            self.write(offset, content)
        if device is not None:
            device.rest()
        counters = self.host.run(program.offset, len(program.instructions), timeout=_TIMEOUT)
        if device is None:
            return Ran(program=program, counters=counters)
        return Ran(program=program, counters=counters, trace=device.take_trace(), memory=device.memory)
