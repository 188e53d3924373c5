"""Base classes of fine-tunes: what a request becomes, from its forecast to its results."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gradloom.options import Options
from gradloom.program.placed import Place, PlacedProgram, Program
from gradloom.sim.time.forecast import forecast
from gradloom.sim.time.timing import Timing
from gradloom.systems.held_out import Judging, Score, share_of
from gradloom.systems.job import Job

if TYPE_CHECKING:
    from gradloom.firmware.jobs.job import Losses
    from gradloom.models.adapters.lora import LearntModule
    from gradloom.sim.run.counted import Words
    from gradloom.sim.run.machine import MachineRunner, Ran

__all__ = ["Judged", "Outcome", "ProgramTask", "Results", "Task"]

#: Results of a program by name: integers, or in floating point the same in units of one.
Results = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """Result of a fine-tune by an engine of execution.

    Parameters
    ----------
    losses : list of float
        Mean loss of each step, in nats a sample or token.
    learnt : object
        Adapters, in the system's own form.
    clipped, words : sequence of int, optional
        Of each step, how many words were clipped, of how many; None in floating point.
    stopped : str, optional
        Why it ended before its last step, if it did.
    steps : int, optional
        Steps of a fine-tune that is complete with fewer than it was asked for.
    after : float, optional
        Loss of the first step's samples after the last step.
    judged, figures : mapping
        Figures of the result, and further entries of ``metrics.json``.
    checked : mapping
        What a run in RTL and the reference are compared by.
    ran : sequence of Ran
        Programs that a machine ran, where they are still to be compared.
    health : sequence of mapping
        Counters of each program as the reference has them, see :meth:`~gradloom.sim.run.machine.Ran.check`.
    """

    losses: list[float]
    learnt: Any
    clipped: Sequence[int] | None = None
    words: Sequence[int] | None = None
    stopped: str | None = None
    steps: int | None = None
    after: float | None = None
    judged: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=lambda: {"cycles": None, "cache": None, "health": None})
    checked: "Words" = field(default_factory=dict)
    ran: "Sequence[Ran]" = ()
    health: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Judged:
    """What a result is worth.

    ``figures``: entries of ``metrics.json``. ``after``: loss after the last step, where it is of the first step's
    samples. ``pictures``: by name, to be saved.
    """

    figures: Mapping[str, Any]
    after: float | None = None
    pictures: Mapping[str, np.ndarray] = field(default_factory=dict)


class Task:
    """A fine-tune that is prepared.

    Faults that can be refused before the long part are refused by its constructor. A system has a subclass with
    :meth:`on`, :meth:`reference` and :meth:`mathematics`, one for each engine of execution, and with what its results
    are: :meth:`judge`, :meth:`describe` and :meth:`save`. What a run hands to them is in its :class:`Outcome`.

    Parameters
    ----------
    job : Job
    options : Options
        With effective values: nothing is left to the preset's workload.
    steps, epoch : int
        Steps in all, and of an epoch.
    counts : sequence of int, optional
        Samples of each step of an epoch, where they differ.
    """

    #: Options that name files.
    reads: ClassVar[Sequence[str]] = ("model", "data", "base", "adapter", "held_out")
    #: What a machine runs ``runs`` times; None: there is none, or each step has its own.
    program: Program | None = None
    runs = 1
    #: Beside the picture's axis; None: the workload's.
    loss_unit: str | None = None

    def __init__(self, job: Job, options: Any, *, steps: int, epoch: int, counts: Sequence[int] | None = None) -> None:
        self.job, self.options, self.steps, self.epoch, self.counts = job, options, steps, epoch, counts
        #: Of the machine, with what the request needs.
        self.config: Any = job.config

    @property
    def exact(self) -> bool:
        """Whether it is in floating point."""
        return getattr(self.options, "engine", None) == "float"

    @cached_property
    def files(self) -> dict[str, Path]:
        """Files that were read, by the option that names them."""
        asked = ((name, getattr(self.options, name, None)) for name in self.reads)
        return {name: Path(value) for name, value in asked if value is not None and share_of(value) is None}

    @cached_property
    def expected(self) -> Timing | None:
        """Forecast of :attr:`program`."""
        return None if self.program is None else forecast(self.program)

    def package(self) -> dict[str, Any] | None:
        """Writes the package in place of a run, if the options ask for it.

        Returns its description.
        """
        return None

    @cached_property
    def told(self) -> "Sequence[Timing] | None":
        """Forecast of each run of a program, in order; None where there is none beforehand."""
        return None if self.expected is None else [self.expected] * self.runs

    def forecast(self) -> dict[str, int] | None:
        """Forecast cycles of all runs, ``total`` and by phase.

        None in floating point, and where each step has its own: its outcome's figures have the sum.
        """
        if self.told is None:
            return None
        found: dict[str, int] = {}
        for each in self.told:
            for name, cycles in ({"total": each.total} | each.phases).items():
                found[name] = found.get(name, 0) + cycles
        return found

    # ---- the engines of execution

    def run(self, engine: str) -> Outcome:
        """The fine-tune by an engine of execution."""
        if engine == "float":
            return self.mathematics()
        return self.reference() if engine == "reference" else self.simulated()

    def simulated(self) -> Outcome:
        """In RTL, or by the job's host."""
        with self.machine() as machine:
            return self.on(machine)

    def machine(self) -> "AbstractContextManager[MachineRunner]":
        """The machine of :meth:`on`."""
        return self.job.machine(
            expected=sum(each.total for each in self.told or ()), losses=self.losses_there(), state=self.state_there()
        )

    def losses_there(self) -> "Losses | None":
        """Where a board finds the losses of steps."""
        return None

    def state_there(self) -> Sequence[tuple[int, int]] | None:
        """See :meth:`~.job.Job.machine`."""
        return None

    def on(self, machine: "MachineRunner") -> Outcome:
        """Runs on a machine, with :attr:`Outcome.ran`."""
        raise NotImplementedError

    def reference(self) -> Outcome:
        """The same in the machine's integers, with :attr:`Outcome.health`."""
        raise NotImplementedError

    def mathematics(self) -> Outcome:
        """The same in floating point."""
        raise NotImplementedError

    def compared(self, ran: Outcome) -> Outcome:
        """Compares a run in RTL with the reference: every word, every counter, the cycles of every command.

        Raises :class:`~gradloom.sim.run.counted.MismatchError`. A run whose steps were compared one by one is returned
        as it is.
        """
        if not ran.ran:
            return ran
        from gradloom.sim.run.machine import check_runs

        wanted = self.run("reference")
        count = check_runs(ran.ran, wanted.health, ran.checked, wanted.checked, told=self.told)
        return replace(wanted, figures={**wanted.figures, **ran.figures, "equal_to_reference": count})

    # ---- the results

    def judging(
        self, score: "Callable[[Mapping[Any, LearntModule]], Score] | None", *, epoch: int | None = None
    ) -> Judging:
        """What judges adapters while they learn, as the request has it.

        ``score``: of adapters, by what is held out. ``epoch``: steps between two scores unless the request says it.
        """
        asked = self.options
        every = asked.judge_steps or epoch or self.epoch
        return Judging(score=score, every=every, steps=self.steps, patience=asked.patience, heard=self.job.judged)

    def judge(self, outcome: Outcome) -> Judged:
        """What the result is worth."""
        return Judged(figures=outcome.judged, after=outcome.after)

    def describe(self, outcome: Outcome) -> dict[str, Any]:
        """Entries of ``metrics.json`` on the model and the data."""
        return self.options.facts() | {"steps": self.steps, "clock_mhz": self.config.clock_mhz}

    def save(self, folder: Path, outcome: Outcome, judged: Judged, metrics: Mapping[str, Any]) -> None:
        """Writes adapter and plot."""
        self.keep(folder, outcome.learnt)
        self.plot(folder / "loss.png", metrics)

    def keep(self, folder: Path, learnt: Any) -> None:
        """Writes the adapter."""
        raise NotImplementedError

    def plot(self, path: Path, metrics: Mapping[str, Any]) -> None:
        """Writes a picture of the loss of each step."""
        from gradloom.systems.plots import plot_steps

        unit = self.loss_unit or self.job.preset.workload.units.get("loss", "loss")
        plot_steps(path, metrics, self.title(metrics), loss_unit=unit)

    def title(self, metrics: Mapping[str, Any]) -> str:
        """What was fine-tuned, above the picture."""
        return self.job.preset.workload.title

    def kept(self) -> str:
        """What an interrupted fine-tune goes on from, in words; empty where there is nothing."""
        return ""

    def finish(self) -> None:
        """Removes files that only an interrupted fine-tune needs.

        The results are saved by then.
        """


class ProgramTask(Task):
    """A fine-tune whose results are arrays that one program leaves in memory.

    A subclass sets ``program``, the ``places`` of its results by name, and has :meth:`losses` and :meth:`judged`; its
    engines return what :meth:`outcome` makes of the results.
    """

    program: PlacedProgram
    places: Mapping[str, Place]

    def __init__(self, job: Job, options: Options, *, steps: int) -> None:
        super().__init__(job, options, steps=steps, epoch=steps)

    def losses(self, results: Results) -> list[float]:
        """Mean loss of each step."""
        raise NotImplementedError

    def judged(self, results: Results) -> dict[str, Any]:
        """Figures of the result.

        ``loss_before`` and ``loss_after`` are of samples that it did not learn from.
        """
        raise NotImplementedError

    def outcome(self, results: Results, *, saturated: int | None = None) -> Outcome:
        """The outcome that has such results; ``saturated``: words that the reference clipped."""
        made = Outcome(losses=self.losses(results), learnt=results, checked={"words": results})
        if saturated is None:
            return made
        health = {"saturated": saturated}
        return replace(made, health=[health], figures={**made.figures, "health": health})

    @cached_property
    def expected(self) -> Timing | None:
        """See :class:`Task`; None in floating point."""
        return None if self.exact else forecast(self.program)

    def on(self, machine: "MachineRunner") -> Outcome:
        """See :class:`Task`."""
        ran = machine.run(self.program)
        results = {name: machine.words(place) for name, place in self.places.items()}
        return replace(self.outcome(results), ran=[ran], figures=ran.counters.metrics())

    def judge(self, outcome: Outcome) -> Judged:
        """See :class:`Task`."""
        return Judged(figures=self.judged(outcome.learnt))

    def keep(self, folder: Path, learnt: Any) -> None:
        """Writes the results as ``results.npz``."""
        np.savez(folder / "results.npz", **learnt)
