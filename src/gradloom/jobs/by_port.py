"""Fine-tunes that a board makes by itself, with data by its UART."""

import dataclasses
from pathlib import Path
from typing import Any

from gradloom.boards.links.tuner import TunerPort
from gradloom.options import Options
from gradloom.preset import Preset
from gradloom.systems.alone import tuner_at
from gradloom.systems.driver import finetune
from gradloom.workload import Progress

__all__ = ["finetune_by", "finetune_on_port"]


def finetune_on_port(
    preset: Preset,
    options: Options,
    port: str,
    *,
    output: Path | str,
    baud: int | None,
    compare: bool,
    progress: Progress | None,
) -> dict[str, Any]:
    """Fine-tunes on the board at a serial port, which gives the adapter back.

    ``baud``: bits a second, None: those of the board's project. ``compare``: adapter and losses with the
    reference. Returns what ``metrics.json`` holds.
    """
    with tuner_at(preset, port, baud, progress) as tuner:
        return finetune_by(tuner, preset, options, output=output, compare=compare, progress=progress)


def finetune_by(
    tuner: TunerPort,
    preset: Preset,
    options: Options,
    *,
    output: Path | str,
    compare: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The same with a board that is connected."""
    asked = dataclasses.replace(options, engine="rtl")  # type: ignore[call-arg]
    return finetune(preset, asked, output=output, progress=progress, host=tuner, compare=compare)
