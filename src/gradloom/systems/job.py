"""Request for a fine-tune to prepare, and what runs its programs."""

import hashlib
import os
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from gradloom.json_file import read_json
from gradloom.output import MARKER
from gradloom.preset import Preset
from gradloom.systems.results import Callback, HeldOut, Step
from gradloom.workload import Progress

if TYPE_CHECKING:
    from gradloom.firmware.device.host import ProgramCounters
    from gradloom.firmware.jobs.job import Losses
    from gradloom.sim.run.builds.designs import Design
    from gradloom.sim.run.machine import MachineRunner

__all__ = ["AloneHost", "BoardHost", "Host", "Job", "digest", "model_of_run"]

_GONE = "that of the run is not here; name it by --model"


class BoardHost(Protocol):
    """A :class:`~gradloom.sim.run.machine.MachineHost` for fine-tunes.

    ``answers``: what it reads is of a machine that has run; else programs are written down for one.
    """

    answers: bool

    def describe(self, *, losses: "Losses | None", state: Sequence[tuple[int, int]] | None) -> None:
        """See :meth:`Job.machine`."""

    def finished(self) -> None:
        """Called after the last program, before anything is saved."""

    def store(self, offset: int, content: Any, /) -> None: ...

    def fetch(self, offset: int, length: int, /) -> bytes: ...

    def run(self, offset: int, commands: int, /, *, timeout: float | None = None) -> "ProgramCounters": ...


@runtime_checkable
class AloneHost(Protocol):
    """A board that fine-tunes by itself: :class:`~gradloom.boards.links.tuner.TunerPort`."""

    sent: int

    def finished(self) -> None: ...

    def told(self) -> list[str]: ...

    def fetch(self, offset: int, length: int, /) -> bytes: ...

    def run(self, image: bytes, changed: Collection[int], /, *, epochs: int) -> list[str]: ...


Host = BoardHost | AloneHost


@dataclass(frozen=True, kw_only=True)
class Job:
    """Request for a workload to prepare.

    Parameters
    ----------
    preset : Preset
        With the configuration of the chosen design.
    options : Options
        Checked, each by itself.
    output : Path
        Folder of the results.
    tell : callable
        Hears the progress.
    design : Design, optional
        Whose Verilog the engine ``rtl`` simulates; without, the preset's own.
    host : BoardHost, or AloneHost, optional
        What runs programs in place of simulated RTL; or a board that fine-tunes by itself.
    callbacks : sequence of callable
        Hear each step and each score, once.
    """

    preset: Preset
    options: Any
    output: Path
    tell: Progress
    design: "Design | None" = None
    host: "Host | None" = None
    callbacks: Sequence[Callback] = ()

    #: The last step and the last score that were heard: RTL's are made again by the reference.
    _heard: dict[str, int] = field(default_factory=lambda: {"loss": 0, "held_out": -1}, init=False, repr=False)
    _sums: dict[Path, dict[str, str]] = field(default_factory=dict, init=False, repr=False)

    @property
    def config(self) -> Any:
        """Of the machine."""
        return self.preset.config

    def machine(
        self, *, expected: int = 0, losses: "Losses | None" = None, state: Sequence[tuple[int, int]] | None = None
    ) -> "MachineRunner":
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
        from gradloom.sim.run.builds.designs import Design
        from gradloom.sim.run.machine import MachineRunner

        board = self.board(losses=losses, state=state)
        if board is not None:
            return MachineRunner(board)
        files = (self.design or Design(self.preset)).files(lambda text: self.tell(0, 0, text))
        return MachineRunner.simulated(self.config, files, progress=self.tell, expected=expected)

    def board(
        self, *, losses: "Losses | None" = None, state: Sequence[tuple[int, int]] | None = None
    ) -> BoardHost | None:
        """The host, if there is one, told what :meth:`machine` has."""
        if self.host is None:
            return None
        assert not isinstance(self.host, AloneHost)
        self.host.describe(losses=losses, state=state)
        return self.host

    def made(self, number: int, steps: int, loss: float) -> None:
        """Tells of step ``number``, from 1 on, unless that was done."""
        if number > self._heard["loss"]:
            self._heard["loss"] = number
            self._say(Step(number=number, steps=steps, loss=float(loss)))

    def judged(self, number: int, steps: int, score: Mapping[str, float | None]) -> None:
        """Tells of the score after ``number`` steps, unless that was done."""
        if number > self._heard["held_out"]:
            self._heard["held_out"] = number
            self._say(Step(number=number, steps=steps, held_out=HeldOut(step=number, **score)))

    def _say(self, step: Step) -> None:
        for each in self.callbacks:
            each(step)

    def chosen(self) -> list[Path]:
        """Verilog files of a design in a directory; none where there is no directory."""
        return [] if self.design is None else self.design.chosen()

    def sums(self, path: Path) -> dict[str, str]:
        """Name and SHA-256 of a file, or of each file in a folder.

        Weights are large, so each is read once. Folders within a folder are of no use beside its files; one that has
        folders alone has one sum, of all names and contents in them.
        """
        if path not in self._sums:
            self._sums[path] = _sums(path)
        return self._sums[path]

    def places(self) -> dict[str, str]:
        """Where the model's file is, from the folder of the results: nothing of a model that has a name alone."""
        model = getattr(self.options, "model", None)
        if model is None or not Path(model).exists():
            return {}
        return {"model_file": Path(os.path.relpath(model, self.output)).as_posix()}


def model_of_run(run: Path, model: Path | str | None = None, *, known: Container[str] = ()) -> Path | str | None:
    """The model that a fine-tune in a folder has learnt beside; None: a shipped one.

    It is looked for where it was, from the run's folder, and by its name here; ``model`` takes its place. Either must
    have the SHA-256 of the run's. ``known``: names that are no files.
    """
    path = run / "metrics.json"
    try:
        told = read_json(path)
        asked, sums = told["request"]["model"], told.get("files", {}).get("model")
        places = [run / told["model_file"]] if "model_file" in told else []
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        if model is None:
            raise ValueError(f"model: must be given, {path} does not say which it is") from None
        return model
    if model is None and (asked is None or asked in known and not places):
        return None if asked is None else str(asked)
    there = [each for each in ([*places, Path(asked)] if model is None else [Path(model)]) if each.exists()]
    if not there:
        raise ValueError(f"model={model or asked}: {'no such file' if model else _GONE}")
    for each in there:
        if sums is None or sorted(_sums(each).values()) == sorted(sums.values()):
            return each
    raise ValueError(
        f"model={model or asked}: {there[0]} is not the run's, whose SHA-256 is in {path}; name that by --model"
    )


def _sums(path: Path) -> dict[str, str]:
    files = sorted(each for each in path.iterdir() if _counts(each)) if path.is_dir() else [path]
    return {each.name: digest(each) for each in files or [path]}


def _counts(path: Path) -> bool:
    """Whether it is a file of a folder's own content: the mark of the verb that made the folder is none."""
    return path.is_file() and path.name != MARKER


def digest(path: Path) -> str:
    """SHA-256 of a file; of a folder, that of all names and contents in it."""
    if not path.is_dir():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    whole = hashlib.sha256()
    for each in sorted(each for each in path.rglob("*") if _counts(each)):
        whole.update(f"{each.relative_to(path).as_posix()} {digest(each)}\n".encode())
    return whole.hexdigest()
