"""The driver of all fine-tunes, from request to results."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradloom import __version__
from gradloom.json_file import json_text
from gradloom.options import Options
from gradloom.output import claimed, continuing, grouped
from gradloom.preset import Preset
from gradloom.systems.job import AloneHost, Host, Job
from gradloom.systems.metrics import units, verdict
from gradloom.systems.report import report_page
from gradloom.systems.results import Callback
from gradloom.systems.task import Task
from gradloom.workload import Progress, silent

__all__ = ["finetune", "prepared", "repeatable"]


def finetune(
    preset: Preset,
    options: Options,
    *,
    output: Path | str = "finetune",
    verb: str = "finetune",
    progress: Progress | None = None,
    host: Host | None = None,
    compare: bool = True,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Fine-tunes and writes the results to ``output``.

    ``host``: runs programs in place of simulated RTL. ``compare``: a run in RTL with the reference. ``callbacks`` hear
    each step and each score.

    They are ``metrics.json``, adapter, ``loss.png`` and ``report.html``; returns the metrics.

    ``diverged`` in them has the reasons if it diverged, see :mod:`~gradloom.systems.metrics`. The verb ``card`` writes
    a memory card in place of a run.
    """
    with claimed(output, verb=verb):
        return _finetune(preset, options, Path(output), verb, progress or silent, host, compare, callbacks)


def prepared(
    preset: Preset,
    options: Any,
    output: Path,
    tell: Progress,
    host: Host | None = None,
    *,
    verb: str = "finetune",
    callbacks: Sequence[Callback] = (),
) -> tuple[Task, Job]:
    """A fine-tune that is checked and prepared, and its job."""
    options.check()
    design = None
    if options.design is not None:
        from gradloom.sim.run.builds.designs import Design

        design = Design(preset, options.design)
        preset = design.preset
        if options.engine == "rtl" and host is None:
            design.check()
    job = Job(preset=preset, options=options, output=output, tell=tell, design=design, host=host, callbacks=callbacks)
    task: Task = preset.workload.function("alone" if isinstance(host, AloneHost) else verb)(job)
    return task, job


def _finetune(
    preset: Preset,
    options: Any,
    output: Path,
    verb: str,
    tell: Progress,
    host: Host | None,
    compare: bool,
    callbacks: Sequence[Callback],
) -> dict[str, Any]:
    task, job = prepared(preset, options, output, tell, host, verb=verb, callbacks=callbacks)
    packaged = task.package()
    if packaged is not None:
        return packaged
    job.tell(0, 0, "forecast")
    forecast = task.forecast()
    with continuing(task.kept, " with --resume"):
        outcome = task.run(options.engine)
    if host is not None:
        host.finished()
    if options.engine == "rtl" and compare:
        outcome = task.compared(outcome)
    # One program makes all steps of some systems: they are heard when it is over.
    for number, loss in enumerate(outcome.losses, 1):
        job.made(number, task.steps, loss)
    judged = task.judge(outcome)
    metrics: dict[str, Any] = {
        "gradloom": __version__,
        "preset": preset.name,
        "workload": preset.workload.kind,
        "engine": options.engine,
        **task.describe(outcome),
        "loss": outcome.losses,
        **judged.figures,
        **verdict(
            outcome.losses,
            task.epoch,
            counts=task.counts,
            clipped=outcome.clipped,
            words=outcome.words,
            steps=task.steps if outcome.steps is None else outcome.steps,
            stopped=outcome.stopped,
            after=judged.after,
        ),
        "forecast": forecast,
        **outcome.figures,
        **repeatable(task, job),
    }
    metrics["units"] = {**units(metrics), **preset.workload.units}
    with grouped(output, verb=verb, last="metrics.json") as stage:
        task.save(stage, outcome, judged, metrics)
        (stage / "report.html").write_text(report_page(stage, metrics, preset.workload.title), encoding="utf-8")
        (stage / "metrics.json").write_text(json_text(metrics), encoding="utf-8")
    task.finish()
    return metrics


def repeatable(task: Task, job: Job) -> dict[str, Any]:
    """All inputs of a fine-tune's results, as plain data.

    They are effective options, the model's place, files' sums, the machine.
    """
    return {
        "request": task.options.facts(),
        **job.places(),
        "files": {name: job.sums(path) for name, path in task.files.items()},
        "parameters": dataclasses.asdict(task.config),
    }
