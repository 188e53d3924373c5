"""Fine-tunes that a board makes by itself, with data by its UART."""

import dataclasses
from pathlib import Path
from typing import Any

from gradloom import boards
from gradloom.boards.links.lines import Line
from gradloom.boards.links.monitor import open_port
from gradloom.boards.links.tuner import TunerError, TunerPort
from gradloom.options import Options
from gradloom.preset import Preset
from gradloom.systems.driver import finetune
from gradloom.workload import Progress

__all__ = ["finetune_by", "finetune_on_port"]


def finetune_on_port(
    preset: Preset,
    options: Options,
    port: str,
    *,
    output: Path | str,
    baud: int | None = None,
    compare: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Fine-tunes on the board at a serial port, which gives the adapter back.

    ``baud``: bits a second, those of the board's project unless given. ``compare``: adapter and losses with the
    reference. Returns what ``metrics.json`` holds.
    """
    board = boards.find(preset.board)
    if not board.listens:
        able = ", ".join(each.name for each in boards.all_boards() if each.listens)
        raise ValueError(f"port={port}: {board.name} takes no data by UART; must be left out but for {able}")
    with open_port(port, baud or board.listens) as line:
        try:
            return finetune_by(line, preset, options, output=output, compare=compare, progress=progress)
        except TunerError as error:
            raise ValueError(f"port={port}: {error}") from None


def finetune_by(
    line: Line,
    preset: Preset,
    options: Options,
    *,
    output: Path | str,
    compare: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The same over any ``line``."""
    asked = dataclasses.replace(options, engine="rtl")  # type: ignore[call-arg]
    return finetune(preset, asked, output=output, progress=progress, host=TunerPort(line, progress), compare=compare)
