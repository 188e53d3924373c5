"""The driver of all fine-tunes, from request to results."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gradloom import __version__
from gradloom.json_file import json_text
from gradloom.options import Options
from gradloom.output import claimed, grouped
from gradloom.preset import Preset
from gradloom.sim.run.designs import Design
from gradloom.systems.metrics import units, verdict
from gradloom.systems.report import report_page
from gradloom.workload import Progress, silent

if TYPE_CHECKING:
    from gradloom.firmware.host import Counters
    from gradloom.firmware.job import Losses
    from gradloom.sim.run.machine import Machine

__all__ = ["BoardHost", "Job", "Outcome", "Progress", "Task", "finetune", "prepared", "repeatable"]


class BoardHost(Protocol):
    """A :class:`~gradloom.sim.run.machine.MachineHost` for fine-tunes."""

    def describe(self, *, losses: "Losses | None", state: Sequence[tuple[int, int]] | None) -> None:
        """See :meth:`Job.machine`."""

    def finished(self) -> None:
        """Called after the last program, before anything is saved."""

    def store(self, offset: int, content: Any, /) -> None: ...

    def fetch(self, offset: int, length: int, /) -> bytes: ...

    def run(self, offset: int, commands: int, /, *, timeout: float | None = None) -> "Counters": ...


@dataclass(frozen=True, kw_only=True)
class Job:
    """Request for a workload to prepare.

    Parameters
    ----------
    preset : Preset
        With the configuration of the chosen design.
    options : Options
        Checked, each by itself.
    design : Design
        Whose Verilog the engine ``rtl`` simulates.
    output : Path
        Folder of the results.
    tell : callable
        Hears the progress.
    host : BoardHost, optional
        What runs programs in place of simulated RTL.
    """

    preset: Preset
    options: Any
    design: Design
    output: Path
    tell: Progress
    host: "BoardHost | None" = None

    _sums: dict[Path, dict[str, str]] = field(default_factory=dict, init=False, repr=False)

    @property
    def config(self) -> Any:
        """Of the machine."""
        return self.preset.config

    def machine(
        self, *, expected: int = 0, losses: "Losses | None" = None, state: Sequence[tuple[int, int]] | None = None
    ) -> "Machine":
        """The machine of the engine ``rtl``: simulated, or the host's.

        Parameters
        ----------
        expected : int
            Cycles, for the progress.
        losses : Losses, optional
            Where a board finds the losses of steps.
        state : sequence, optional
            Offset and length of what a program needs of those before it, beside what is written; None: more than that.
        """
        from gradloom.sim.run.machine import Machine

        if self.host is not None:
            self.host.describe(losses=losses, state=state)
            return Machine(self.host)
        files = self.design.files(lambda text: self.tell(0, 0, text))
        return Machine.simulated(self.config, files, progress=self.tell, expected=expected)

    def sums(self, path: Path) -> dict[str, str]:
        """Name and SHA-256 of a file, or of each file in a folder.

        Weights are large, so each is read once. Folders within a folder are of no use beside its files; one that has
        folders alone has one sum, of all names and contents in them.
        """
        if path not in self._sums:
            files = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]
            self._sums[path] = {each.name: _digest(each) for each in files} or {path.name: _digest_of_tree(path)}
        return self._sums[path]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of a fine-tune by an engine of execution.

    Parameters
    ----------
    losses : list of float
        Mean loss of each step, in nats a sample or token.
    learnt : object
        Adapters, in the workload's own form.
    clipped, words : sequence of int, optional
        Of each step, how many words were clipped, of how many; None in floating point.
    stopped : str, optional
        Why it ended before its last step, if it did.
    figures : mapping
        Further entries of ``metrics.json``.
    """

    losses: list[float]
    learnt: Any
    clipped: Sequence[int] | None = None
    words: Sequence[int] | None = None
    stopped: str | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)


class Task(Protocol):
    """A fine-tune that is prepared.

    Faults that can be refused before the long part are refused by then.
    """

    @property
    def options(self) -> Options:
        """With effective values: nothing is left to the preset's workload."""

    @property
    def files(self) -> Mapping[str, Path]:
        """Files that were read, by the option that names them."""

    @property
    def steps(self) -> int:
        """Steps in all."""

    @property
    def epoch(self) -> int:
        """Steps of an epoch."""

    @property
    def counts(self) -> Sequence[int] | None:
        """Samples of each step of an epoch, where they differ."""

    def package(self) -> dict[str, Any] | None:
        """Writes the package in place of a run, if the options ask for it.

        Returns its description.
        """

    def forecast(self) -> Mapping[str, int] | None:
        """Forecast cycles, ``total`` and by phase.

        None in floating point, and where each step has its own: its outcome's figures have the sum.
        """

    def run(self, engine: str) -> Outcome:
        """The fine-tune by an engine of execution."""

    def compared(self, ran: Outcome) -> Outcome:
        """Compares a run in RTL with the reference.

        Raises :class:`~gradloom.sim.run.counted.MismatchError`.
        """

    def judge(self, outcome: Outcome) -> tuple[dict[str, Any], float | None]:
        """Figures of the result, and the loss after the last step.

        The loss is given where it is of the first step's samples.
        """

    def describe(self, outcome: Outcome) -> dict[str, Any]:
        """Entries of ``metrics.json`` on the model and the data."""

    def finish(self) -> None:
        """Removes files that only an interrupted fine-tune needs.

        The results are saved by then.
        """

    def save(self, folder: Path, outcome: Outcome, metrics: Mapping[str, Any]) -> None:
        """Writes adapter and plot."""


def finetune(
    preset: Preset,
    options: Options,
    *,
    output: Path | str = "finetune",
    verb: str = "finetune",
    progress: Progress | None = None,
    host: BoardHost | None = None,
) -> dict[str, Any]:
    """Fine-tunes and writes the results to ``output``.

    ``host``: runs programs in place of simulated RTL.

    They are ``metrics.json``, adapter, ``loss.png`` and ``report.html``; returns the metrics.

    ``diverged`` in them has the reasons if it diverged, see :mod:`~gradloom.systems.metrics`. The verb ``card`` writes
    a memory card in place of a run.
    """
    with claimed(output, verb=verb):
        return _finetune(preset, options, Path(output), verb, progress or silent, host)


def prepared(
    preset: Preset, options: Any, output: Path, tell: Progress, host: BoardHost | None = None, *, verb: str = "finetune"
) -> tuple[Task, Job]:
    """A fine-tune that is checked and prepared, and its job."""
    options.check()
    design = Design(preset, options.design)
    if options.engine == "rtl" and host is None:
        design.check()
    job = Job(preset=design.preset, options=options, design=design, output=output, tell=tell, host=host)
    task: Task = preset.workload.function(verb)(job)
    return task, job


def _finetune(
    preset: Preset, options: Any, output: Path, verb: str, tell: Progress, host: BoardHost | None
) -> dict[str, Any]:
    task, job = prepared(preset, options, output, tell, host, verb=verb)
    packaged = task.package()
    if packaged is not None:
        return packaged
    job.tell(0, 0, "forecast")
    forecast = task.forecast()
    outcome = task.run(options.engine)
    if host is not None:
        host.finished()
    if options.engine == "rtl":
        outcome = task.compared(outcome)
    judged, after = task.judge(outcome)
    metrics: dict[str, Any] = {
        "gradloom": __version__,
        "preset": preset.name,
        "workload": preset.workload.kind,
        "engine": options.engine,
        **task.describe(outcome),
        "loss": outcome.losses,
        **judged,
        **verdict(
            outcome.losses,
            task.epoch,
            counts=task.counts,
            clipped=outcome.clipped,
            words=outcome.words,
            steps=task.steps,
            stopped=outcome.stopped,
            after=after,
        ),
        "forecast": forecast,
        **outcome.figures,
        **repeatable(task, job),
    }
    metrics["units"] = {**units(metrics), **preset.workload.units}
    with grouped(output, last="metrics.json") as stage:
        task.save(stage, outcome, metrics)
        (stage / "report.html").write_text(report_page(stage, metrics, preset.workload.title), encoding="utf-8")
        (stage / "metrics.json").write_text(json_text(metrics), encoding="utf-8")
    task.finish()
    return metrics


def repeatable(task: Task, job: Job) -> dict[str, Any]:
    """All inputs of a fine-tune's results, as plain data.

    They are effective options, files' sums, the machine.
    """
    return {
        "request": task.options.facts(),
        "files": {name: job.sums(path) for name, path in task.files.items()},
        "parameters": dataclasses.asdict(job.config),
    }


def _digest_of_tree(folder: Path) -> str:
    whole = hashlib.sha256()
    for each in sorted(each for each in folder.rglob("*") if each.is_file()):
        whole.update(f"{each.relative_to(folder).as_posix()} {_digest(each)}\n".encode())
    return whole.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
