"""Measures the energy of a program that a board repeats.

``python3 -m gradloom_host.measured`` on the board. Standard input has a line of JSON, :class:`MeasureRequest`, then the
bytes of its segments; standard output gets a line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, TypedDict

from .energy import EnergyMeter
from .host import Accelerator, AcceleratorError
from .machine import MachineDesign
from .transport import Transport

#: A run of milliseconds has a handful of samples, and the sensor's noise is some percent of the difference to idle.
LEAST_REPEATS = 100
#: Seconds of idle power before and after.
IDLE_SECONDS = 2.0


@dataclass(frozen=True)
class MeasureRequest:
    """A program in the window, and how often it runs.

    ``design``: name, table and data bits that the board must have. ``program``: offset of its ``commands``.
    ``segments``: offset and length of each.
    """

    design: dict[str, Any]
    program: int
    commands: int
    repeats: int
    segments: list[list[int]]


class RunEnergy(TypedDict):
    """Energy of runs by the board's sensor, and their least and most cycles.

    ``gross`` is of the whole board, ``net`` without idle power; ``idle_drift_watts``: by how much that had changed
    afterwards.
    """

    repeats: int
    seconds: float
    samples_of_sensor: int
    cycles: list[int]
    idle_watts: float
    idle_drift_watts: float
    mean_watts: float
    gross_joules: float
    net_joules: float
    gross_joules_a_run: float
    net_joules_a_run: float


def measure(accelerator: Accelerator, request: MeasureRequest, meter: EnergyMeter) -> RunEnergy:
    """Runs a program that lies in the window, and measures.

    The first run is not measured. The forward cache is cleared before each, so that all do the same work.
    """
    if request.repeats < LEAST_REPEATS:
        raise ValueError(f"repeats={request.repeats}: must be at least {LEAST_REPEATS}")
    cycles = []

    def run() -> None:
        accelerator.clear_cache()
        cycles.append(accelerator.run(request.program, request.commands).cycles)

    run()
    with meter:
        for _ in range(request.repeats):
            run()
    energy, count = meter.result, request.repeats
    assert energy is not None
    return {
        "repeats": count,
        "seconds": energy.seconds,
        "samples_of_sensor": energy.samples,
        "cycles": [min(cycles), max(cycles)],
        "idle_watts": energy.idle_watts,
        "idle_drift_watts": energy.idle_drift,
        "mean_watts": energy.mean_watts,
        "gross_joules": energy.joules,
        "net_joules": energy.net_joules,
        "gross_joules_a_run": energy.joules / count,
        "net_joules_a_run": energy.net_joules / count,
    }


def serve(source: BinaryIO, transport: Callable[[], Transport], meter: Callable[[], EnergyMeter]) -> RunEnergy:
    """Answers the request in ``source``.

    The sensor is looked for before the board's machine is touched, the machine before its window.
    """
    request = MeasureRequest(**json.loads(source.readline()))
    found = meter()
    with transport() as board:
        accelerator = Accelerator(board, design=MachineDesign(**request.design))
        for offset, length in request.segments:
            content = source.read(length)
            if len(content) != length:
                raise ValueError(f"the data ended {length - len(content)} bytes early")
            accelerator.store(offset, content)
        return measure(accelerator, request, found)


def main() -> int:
    """Prints the result; the exit code is 2 where nothing could be measured."""
    from .uio_transport import UioTransport

    try:
        result = serve(
            sys.stdin.buffer, UioTransport, lambda: EnergyMeter(interval=0.005, idle_seconds=IDLE_SECONDS, both=True)
        )
    except (AcceleratorError, ImportError, OSError, ValueError) as fault:
        print(f"gradloom: {' '.join(str(fault).split())}", file=sys.stderr)
        return 2
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
