"""Fine-tunes on a board: job folders, and their way there and back.

A job runs on the board by itself; the programs, the driver and the comparison with the reference are those of
simulated RTL.
"""

import dataclasses
import getpass
import hashlib
import inspect
import socket
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradloom import __version__
from gradloom.boards.links.reach import BoardReach
from gradloom.firmware.device.host import Accelerator
from gradloom.firmware.device.selftest import Result, run_selftest
from gradloom.firmware.jobs.job import AnswerPlan, JobError, JobPlan, read_plan
from gradloom.firmware.jobs.remote import Agent, ConnectionLost
from gradloom.options import Options
from gradloom.output import check_folder, staged
from gradloom.preset import Preset, find_preset
from gradloom.sim.run.builds.designs import Design, design_entry
from gradloom.systems.asked import Asked
from gradloom.systems.driver import finetune, prepared
from gradloom.systems.results import Inferred
from gradloom.workload import Progress, silent

from .programs import JobRecorder, JobResults

__all__ = [
    "Started",
    "WrittenJob",
    "attach",
    "collect_job",
    "connected",
    "finetune_on",
    "infer_on",
    "selftest_on",
    "start_on",
    "write_answers",
    "write_job",
]


@dataclass(frozen=True, kw_only=True)
class WrittenJob:
    """A job folder that was written.

    ``name``: follows from preset and content, so that one request has one name. ``stages``: programs with their data.
    ``memory_bytes``: of the board. ``bytes_there``, ``bytes_back``: of data and results. ``resumes``: an interrupted
    run goes on, else it begins again.
    """

    name: str
    folder: Path
    stages: int
    memory_bytes: int
    bytes_there: int
    bytes_back: int
    resumes: bool


@dataclass(frozen=True, kw_only=True)
class Started:
    """A job that runs on a board.

    ``sent`` and ``received``: bytes of frames.
    """

    name: str
    host: str
    sent: int
    received: int


@dataclass(frozen=True, kw_only=True)
class _Recorded:
    """What a plan tells of a folder besides its request; ``answers``: of a folder that answers."""

    about: dict[str, Any] = field(default_factory=dict)
    answers: AnswerPlan | None = None


def write_job(preset: Preset, options: Options, folder: Path | str, *, progress: Progress | None = None) -> WrittenJob:
    """Writes a fine-tune as a job folder.

    ``python3 -m gradloom_host.agent run FOLDER`` runs it on the board. :class:`ValueError` where the preset's board has
    no Linux, or the request is refused: nothing is written then.
    """
    from gradloom import boards

    boards.require_agent(boards.find(preset.board), f"job={folder}")
    tell = progress or silent
    if any((Path(folder) / name).exists() for name in ("status.json", "result.json", "state.json")):
        raise JobError(f"job={folder}: holds a job that has run: name another folder")
    with staged(folder, verb="finetune --job") as stage:
        plan = _recorded(preset, options, stage, tell)
    return _described(preset.name, Path(folder), plan)


def write_answers(
    asked: Asked, options: Options, folder: Path | str, *, progress: Progress | None = None
) -> WrittenJob:
    """Writes a language model as a folder that answers prompts on a board under Linux.

    ``gradloom_run answer FOLDER TOKEN...`` there answers by the likeliest tokens. Options are those of
    :func:`gradloom.infer`; exponents follow from the prompt. :class:`ValueError` where the preset or the request has no
    such answers: nothing is written then.
    """
    from gradloom import boards

    preset = asked.preset
    if not preset.workload.can("answers"):
        raise ValueError(f"job={folder}: must be left out, {preset.name} is no language model")
    boards.require_agent(boards.find(preset.board), f"job={folder}")

    def record(recorder: JobRecorder) -> _Recorded:
        return _Recorded(answers=preset.workload.function("answers")(asked, options, progress or silent, recorder))

    with staged(folder, verb="infer --job") as stage:
        plan = _planned(preset, options, stage, record)
    return _described(preset.name, Path(folder), plan)


def _recorded(preset: Preset, asked: Options, folder: Path, tell: Progress) -> JobPlan:
    if getattr(asked, "engine", None) == "float":
        raise ValueError("engine=float: must be left out for a board, whose machine has integers")
    # What runs programs, and not a model of it; here the board.
    options = dataclasses.replace(asked, engine="rtl")  # type: ignore[call-arg]

    def record(recorder: JobRecorder) -> _Recorded:
        task, _ = prepared(preset, options, folder / "run", tell, recorder)
        tell(0, 0, "forecast")
        forecast = task.forecast()
        tell(0, 0, "writing the job")
        task.run("rtl")
        return _Recorded(about={"forecast": forecast})

    return _planned(preset, options, folder, record)


def _planned(preset: Preset, options: Options, folder: Path, record: Callable[[JobRecorder], _Recorded]) -> JobPlan:
    """Writes a folder's data and plan."""
    with open(folder / "data.bin", "wb") as data:
        design = design_entry(preset.name, _configured(preset, options))
        recorder = JobRecorder(data, design["table"])
        made = record(recorder)
        recorder.finished()
        about = {"gradloom": __version__, "preset": preset.name, "options": _plain(options), **made.about}
        plan = recorder.plan(design, about, made.answers)
    (folder / "job.json").write_text(plan.text(), encoding="utf-8")
    return plan


def _configured(preset: Preset, options: Options) -> Any:
    return Design(preset, getattr(options, "design", None)).preset.config


def _plain(options: Options) -> dict[str, object]:
    """Options as plain data; files by their whole path."""
    return {
        name: str(Path(value).absolute()) if Path in options.types()[name] and value is not None else value
        for name, value in dataclasses.asdict(options).items()
    }


def _described(preset: str, folder: Path, plan: JobPlan) -> WrittenJob:
    return WrittenJob(
        name=_name(preset, plan),
        folder=folder,
        stages=len(plan.stages),
        memory_bytes=plan.window,
        bytes_there=plan.data_bytes,
        bytes_back=plan.result_bytes,
        resumes=plan.state is not None,
    )


def _name(preset: str, plan: JobPlan) -> str:
    return f"{preset}-{hashlib.sha256(plan.text().encode()).hexdigest()[:8]}"


def collect_job(
    folder: Path | str,
    *,
    output: Path | str,
    preset: Preset | None = None,
    compare: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Makes the results of a job that has run.

    They are the adapter, ``metrics.json``, ``loss.png`` and ``report.html``. Model and data must lie where they lay
    when the job was written.

    Parameters
    ----------
    folder : path
        The job, with ``result.bin`` and ``result.json``.
    output : path
    preset : Preset, optional
        The one of the job, if it is none of the house's own.
    compare : bool
        The board's words with the reference, as those of simulated RTL are.

    Returns
    -------
    dict
        What ``metrics.json`` holds.
    """
    folder = Path(folder)
    plan = read_plan(folder)
    if not (folder / "result.json").is_file():
        raise JobError(
            f"{folder}: has no result: python3 -m gradloom_host.agent run {folder.name} on the board makes it"
        )
    return _collected(folder, plan, output, preset, compare, progress)


def _collected(
    folder: Path, plan: JobPlan, output: Path | str, preset: Preset | None, compare: bool, progress: Progress | None
) -> dict[str, Any]:
    found, options = _request(plan, preset)
    with tempfile.TemporaryFile() as data:
        results = JobResults(folder, plan, data)
        return finetune(found, options, output=output, progress=progress, host=results, compare=compare)


def _request(plan: JobPlan, preset: Preset | None) -> tuple[Preset, Options]:
    try:
        name = str(plan.about["preset"])
        if preset is not None and preset.name != name:
            raise JobError(f"job.json: is a job of {name}, not of {preset.name}: name that, or a model that it has")
        found = find_preset(name) if preset is None else preset
        return found, found.workload.options(found.name, dict(plan.about["options"]))
    except (KeyError, TypeError):
        raise JobError("job.json: about: has no request") from None


def connected(reach: BoardReach) -> Agent:
    """The agent of a board.

    :class:`~gradloom.firmware.jobs.remote.RemoteError` where there is none.
    """
    return Agent(reach.command, client=f"{getpass.getuser()}@{socket.gethostname()}", explain=reach.explain)


def start_on(reach: BoardReach, preset: Preset, options: Options, *, progress: Progress | None = None) -> Started:
    """Copies a fine-tune to a board and starts it; it goes on after this.

    A board without an agent is told before the job is written; design, memory and who has the board are looked at
    before anything is copied. A job of the same request that is there already is started again if it was interrupted.
    """
    tell = progress or silent
    with connected(reach):
        pass
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gradloom.")))
        plan = _recorded(preset, options, folder, tell)
        agent = stack.enter_context(connected(reach))
        name = _name(preset.name, plan)
        before = agent.jobs().get(name, {}).get("state")
        if before not in ("running", "done"):
            agent.open(plan.design, plan.window)
            if before is None:
                tell(0, 0, f"copying the job to {reach.name}")
                agent.put(folder, name)
            try:
                agent.start(name)
            except ConnectionLost:
                raise
            except Exception:
                if before is None:
                    agent.remove(name)
                raise
        channel = agent.connection.channel
        return Started(name=name, host=reach.name, sent=channel.sent, received=channel.received)


def attach(
    reach: BoardReach,
    name: str,
    *,
    output: Path | str,
    preset: Preset | None = None,
    compare: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], object] | None = None,
) -> dict[str, Any]:
    """Follows a job on a board to its end, and brings the result back.

    The job is removed there then. An interrupted job is started again. The result is made as :func:`collect_job` does.

    Parameters
    ----------
    name : str
        As :class:`Started` has it.
    output : path
    preset : Preset, optional
        The one of the job, if it is none of the house's own.
    compare : bool
        See :func:`collect_job`.
    progress : callable, optional
        ``progress(done, total, text)``: steps with their losses.
    say : callable, optional
        Hears each line of the job's log, and how many bytes came and went.

    Raises
    ------
    ~gradloom.firmware.jobs.remote.ConnectionLost
        The job goes on; attach to it again.
    ~gradloom.firmware.jobs.remote.JobFailed
        With code and address of the error.
    """
    return _attached(reach, name, None, output, preset, compare, progress or silent, say or _unheard)


def _attached(
    reach: BoardReach,
    name: str,
    started: Started | None,
    output: Path | str,
    preset: Preset | None,
    compare: bool,
    tell: Progress,
    say: Callable[[str], object],
) -> dict[str, Any]:
    """The same, of a job that was ``started`` in one go."""
    check_folder(output, verb="finetune")
    with tempfile.TemporaryDirectory(prefix="gradloom.") as scratch:
        folder = Path(scratch)
        sent, received = _fetched(reach, name, folder, tell, say)
        if started is not None:
            sent, received = sent + started.sent, received + started.received
        say(f"{sent:,} bytes went to {reach.name}, {received:,} came back")
        plan = JobPlan.parse((folder / "job.json").read_bytes())
        metrics = _collected(folder, plan, output, preset, compare, tell)
    # This may take long: the board is not kept waiting for its end.
    with connected(reach) as agent:
        agent.remove(name)
    return metrics


def _unheard(line: str) -> None:
    pass


def _fetched(
    reach: BoardReach, name: str, folder: Path, tell: Progress, say: Callable[[str], object]
) -> tuple[int, int]:
    """Follows a job to its end, and copies its results to a folder; returns bytes that were sent and received."""
    with connected(reach) as agent:
        jobs = agent.jobs()
        if name not in jobs:
            raise JobError(f"attach={name}: {reach.name} has no such job, it has {', '.join(jobs) or 'none'}")
        if jobs[name]["state"] in ("new", "interrupted"):
            agent.start(name)
        try:
            for status, lines in agent.follow(name):
                for line in lines:
                    say(line)
                text = lines[-1].split(" ", 2)[-1] if lines else str(status["text"])
                tell(int(status["done"]), int(status["total"]), text)
            for file in ("job.json", "result.json", "result.bin"):
                agent.fetch(name, file, folder / file)
        except ConnectionLost as error:
            raise ConnectionLost(f"{error}; job {name} goes on, attach to it again") from None
        channel = agent.connection.channel
        return channel.sent, channel.received


def finetune_on(
    reach: BoardReach,
    preset: Preset,
    options: Options,
    *,
    output: Path | str = "finetune",
    compare: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], object] | None = None,
) -> dict[str, Any]:
    """Fine-tunes on a board: :func:`start_on`, then :func:`attach`."""
    check_folder(output, verb="finetune")
    started = start_on(reach, preset, options, progress=progress)
    return _attached(reach, started.name, started, output, preset, compare, progress or silent, say or _unheard)


def infer_on(reach: BoardReach, asked: Asked, options: Options, *, progress: Progress | None = None) -> Inferred:
    """Answers by a board's machine, from here.

    Options and result are those of :func:`gradloom.infer` with the engine ``rtl``: words are compared with the
    reference. :class:`ValueError` where the preset's machine answers nothing by itself.
    """
    function = asked.preset.workload.function("infer")
    if "host" not in inspect.signature(function).parameters:
        raise ValueError(f"host={reach.name}: must be left out, {asked.preset.name} answers by its reference alone")
    options = dataclasses.replace(options, engine="rtl").check()  # type: ignore[call-arg]
    config = _configured(asked.preset, options)
    with connected(reach) as agent, agent.open(design_entry(asked.preset.name, config)) as transport:
        host = Accelerator(transport)
        host.reset()
        host.clear_cache()
        result: Inferred = function(asked, options, progress or silent, host=host)
    return result


def selftest_on(reach: BoardReach) -> list[Result]:
    """Self-test of a board's machine: ``(name, ok, detail)`` of each check."""
    with connected(reach) as agent, agent.open(None) as transport:
        return run_selftest(Accelerator(transport))
