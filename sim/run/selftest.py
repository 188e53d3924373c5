"""The self-test of a board, on simulated RTL."""

from collections.abc import Callable
from pathlib import Path

from gradloom.firmware.device.host import Accelerator
from gradloom.firmware.device.selftest import run_selftest
from gradloom.preset import Preset

from .builds.designs import Design
from .device import SimulatedDevice, build_device

__all__ = ["selftest"]


def selftest(
    preset: Preset, design: Path | str | None = None, *, progress: Callable[[int, int, str], None] | None = None
) -> list[tuple[str, bool, str]]:
    """``(check, passed, detail)`` of each check of the self-test.

    It runs on the Verilog in ``design`` or on the preset's own.
    """

    def tell(done: int, total: int, text: str) -> None:
        if progress is not None:
            progress(done, total, text)

    found = Design(preset, design)
    files = found.files(lambda text: tell(0, 0, text))
    config = found.preset.config
    program = build_device(files, **config.bus, tell=lambda text: tell(0, 0, text))
    with SimulatedDevice(program) as device:
        return [(name, ok, detail) for name, ok, detail in run_selftest(Accelerator(device))]
