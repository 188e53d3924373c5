"""A program and its data on a simulated machine."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gradloom.firmware.host import Accelerator, Counters
from gradloom.rtl.plan.program.placed import Place, PlacedProgram

from ..time.forecast import forecast
from ..time.timing import Comparison, Timing, compare
from .counted import check_counters, check_forecast
from .designs import design
from .device import MEMORY_BYTES, SimulatedDevice, build_device

__all__ = ["Ran", "forecast_placed", "run_each", "run_placed"]


@dataclass(frozen=True, kw_only=True)
class Ran:
    """Results of a run.

    Attributes
    ----------
    counters : Counters
    memory : bytes
        The window, up to the end of the program.
    trace : array
        See :meth:`~.device.SimulatedDevice.take_trace`.
    """

    counters: Counters
    memory: bytes = field(repr=False)
    trace: np.ndarray = field(repr=False)

    def words(self, place: Place) -> np.ndarray:
        """The array at a place."""
        return place.words(self.memory[place.offset : place.offset + place.length])

    def compared(self, timing: Timing) -> Comparison:
        """The forecast beside the trace, command by command."""
        return compare(timing, self.trace)

    def check(self, program: PlacedProgram, timing: Timing, *, saturated: int | None = None) -> None:
        """Raises :class:`~.counted.MismatchError` at a difference.

        It is a counter, or a command's cycles, that is not as expected.

        ``saturated``: words that the reference clipped; None takes the counter as it is.
        """
        check_counters(
            self.counters, program.instructions, beat_bytes=program.config.data_bits // 8, saturated=saturated
        )
        check_forecast(self.counters, timing, self.trace)


def forecast_placed(program: PlacedProgram, **timing: int) -> Timing:
    """Cycles of a program.

    ``timing``: see :func:`~gradloom.sim.time.forecast.forecast`.
    """
    return forecast(program, config=program.config, program_offset=program.offset, **timing)


def run_placed(
    program: PlacedProgram,
    files: Sequence[Path] = (),
    *,
    timing: Mapping[str, int] | None = None,
    progress: Callable[[int, int, str], object] | None = None,
    expected: int = 0,
) -> Ran:
    """Runs a program on simulated Verilog, by the host's own driver.

    Parameters
    ----------
    program : PlacedProgram
    files : sequence of Path
        Verilog whose outermost module is ``gradloom``; none: that of the program's configuration is made.
    timing : mapping
        Inputs of the simulated memory: ``read_latency``, ``write_latency``, ``stall``, ``seed``.
    progress : callable, optional
        ``progress(done, total, text)``. ``expected``: cycles, for the total.
    """
    (ran,) = run_each([program], files, timing=timing, progress=progress, expected=expected)
    return ran


def run_each(
    programs: Sequence[PlacedProgram],
    files: Sequence[Path] = (),
    *,
    timing: Mapping[str, int] | None = None,
    progress: Callable[[int, int, str], object] | None = None,
    expected: int = 0,
) -> Iterator[Ran]:
    """Runs programs one after another on one machine.

    Each has a doorbell of its own, and begins when the one before has ended. What a program keeps in the engines is
    there for the next; memory is its own. Options as of :func:`run_placed`.
    """

    def tell(text: str) -> None:
        if progress is not None:
            progress(0, 0, text)

    def cycled(cycles: int) -> None:
        if progress is not None:
            progress(cycles, max(expected, cycles), "cycles")

    for program in programs:
        if program.length > MEMORY_BYTES:
            raise ValueError(f"program: needs {program.length:,} bytes of memory, the simulation has {MEMORY_BYTES:,}")
    config = programs[0].config
    if not files:
        tell("generating Verilog")
        files = design(config)
    built = build_device(files, data_bits=config.data_bits, address_bits=config.address_bits, tell=tell)
    device = SimulatedDevice(built, progress=cycled)
    with device:
        for name, value in {**(timing or {}), "trace": 1}.items():
            device.set(name, value)
        host = Accelerator(device)
        for program in programs:
            for offset, content in program.contents():
                host.store(offset, content)
            counters = host.run(program.offset, len(program), timeout=36000)
            yield Ran(counters=counters, memory=host.fetch(0, program.length), trace=device.take_trace())
