"""Base class of fine-tunes that are one program."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.options import TuneOptions
from gradloom.program.placed import Place, PlacedProgram
from gradloom.sim.run.counted import check_words
from gradloom.sim.time.forecast import forecast
from gradloom.systems.driver import Job, Outcome

__all__ = ["ProgramTask", "Results"]

#: Results of a fine-tune by name: integers, or in floating point the same in units of one.
Results = dict[str, np.ndarray]


class ProgramTask:
    """A :class:`~.driver.Task` that runs a program once.

    A subclass sets ``program`` and the ``places`` of its results by name, and has the methods that raise
    :class:`NotImplementedError` here. RTL's results equal those of the reference word for word, its counters the
    forecast's cycle for cycle.

    Parameters
    ----------
    job : Job
    options : TuneOptions
        With effective values.
    steps : int
        Steps in all, which are one epoch.
    """

    program: PlacedProgram
    places: Mapping[str, Place]
    files: Mapping[str, Path] = {}
    counts = None

    def __init__(self, job: Job, options: TuneOptions, *, steps: int) -> None:
        self.job, self.options, self.steps, self.epoch = job, options, steps, steps

    def reference(self) -> tuple[Results, int]:
        """Results in the machine's integers, and how many words were clipped."""
        raise NotImplementedError

    def mathematics(self) -> Results:
        """Results in floating point."""
        raise NotImplementedError

    def losses(self, results: Results) -> list[float]:
        """Mean loss of each step."""
        raise NotImplementedError

    def judged(self, results: Results) -> dict[str, Any]:
        """Figures of the result.

        ``loss_before`` and ``loss_after`` are of samples that it did not learn from.
        """
        raise NotImplementedError

    def describe(self, outcome: Outcome) -> dict[str, Any]:
        """See :class:`~.driver.Task`."""
        return self.options.facts() | {"steps": self.steps, "clock_mhz": self.job.config.clock_mhz}

    def package(self) -> None:
        """Nothing is written in place of a run."""

    def finish(self) -> None:
        """Nothing is kept of an interrupted fine-tune."""

    def forecast(self) -> dict[str, int] | None:
        """See :class:`~.driver.Task`; None in floating point."""
        if self.options.engine == "float":
            return None
        self.expected = forecast(self.program)
        return {"total": self.expected.total} | self.expected.phases

    def run(self, engine: str) -> Outcome:
        """See :class:`~.driver.Task`."""
        figures: dict[str, Any] = {"cycles": None, "cache": None, "health": None}
        if engine == "rtl":
            with self.job.machine(expected=self.expected.total) as machine:
                self.ran = machine.run(self.program)
                results = {name: machine.words(place) for name, place in self.places.items()}
            figures = self.ran.counters.metrics()
        elif engine == "reference":
            results, clipped = self.reference()
            figures["health"] = {"saturated": clipped}
        else:
            results = self.mathematics()
        return Outcome(losses=self.losses(results), learnt=results, figures=figures)

    def compared(self, ran: Outcome) -> Outcome:
        """Compares a run with the reference; see :class:`~.driver.Task`.

        It compares every word of the results, every counter, and the cycles of every command.
        """
        results, clipped = self.reference()
        equal = {"words": check_words({name: ran.learnt[name] for name in results}, results)}
        equal |= self.ran.check(saturated=clipped, told=self.expected)
        return dataclasses.replace(ran, figures={**ran.figures, "equal_to_reference": equal})

    def alone(self, ran: Outcome) -> Outcome:
        """See :class:`~.driver.Task`."""
        return ran

    def judge(self, outcome: Outcome) -> tuple[dict[str, Any], None]:
        """See :class:`~.driver.Task`."""
        return self.judged(outcome.learnt), None

    def save(self, folder: Path, outcome: Outcome, metrics: Mapping[str, Any]) -> None:
        """Writes the results as ``results.npz``, and the losses."""
        from gradloom.systems.plots import plot_steps

        np.savez(folder / "results.npz", **outcome.learnt)
        workload = self.job.preset.workload
        plot_steps(folder / "loss.png", metrics, workload.title, loss_unit=workload.units.get("loss", "loss"))
