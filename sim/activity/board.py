"""A preset's fine-tune as the request that a board measures."""

import dataclasses
import json
from pathlib import Path
from typing import TypedDict

import numpy as np

from gradloom.firmware.device.measured import LEAST_REPEATS, MeasureRequest, RunEnergy
from gradloom.preset import Preset
from gradloom.systems.job import Job
from gradloom.workload import Progress

from ..run.builds.designs import Design, design_entry

__all__ = ["MeasuredEnergy", "MeasuredWork", "board_request"]


class MeasuredWork(TypedDict):
    """The fine-tune that a board repeats, and the cycles that are forecast."""

    samples: int
    epochs: int
    forecast_cycles: int
    clock_mhz: float


class MeasuredEnergy(MeasuredWork, RunEnergy):
    """A fine-tune that a board has repeated, and its energy."""

    preset: str
    host: str


def board_request(
    preset: Preset, *, design: Path | str | None, samples: int | None, repeats: int, scratch: Path, tell: Progress
) -> tuple[bytes, MeasuredWork]:
    """Standard input of ``gradloom_host.measured``, and facts of the work.

    ``samples``: images or sequences, else the preset's own. The workload must be one program.
    """
    if repeats < LEAST_REPEATS:
        raise ValueError(f"repeats={repeats}: must be at least {LEAST_REPEATS}, a run is short and the sensor slow")
    chosen = Design(preset, design)
    given = {"engine": "reference"} | ({} if samples is None else {"limit": samples})
    options = preset.workload.options(preset.name, given).check()
    tell(0, 0, "preparing the program")
    job = Job(preset=chosen.preset, options=options, design=chosen, output=scratch, tell=tell)
    task = preset.workload.function("finetune")(job)
    plan = getattr(task, "plan", None)
    if plan is None:
        raise ValueError(f"preset {preset.name!r}: is no single program that a board can repeat")
    tell(0, 0, "forecast")
    expected = task.forecast()["total"]
    config = chosen.preset.config
    contents = [(offset, np.frombuffer(content, np.uint8).tobytes()) for offset, content in plan.segments]
    request = MeasureRequest(
        design=design_entry(preset.name, config),
        program=plan.offset,
        commands=plan.commands,
        repeats=repeats,
        segments=[[offset, len(content)] for offset, content in contents],
    )
    line = json.dumps(dataclasses.asdict(request)).encode() + b"\n"
    facts: MeasuredWork = {
        "samples": plan.settings.samples,
        "epochs": plan.settings.epochs,
        "forecast_cycles": expected,
        "clock_mhz": config.clock_mhz,
    }
    return line + b"".join(content for _, content in contents), facts
