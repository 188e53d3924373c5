"""Verbs on a board that answers ssh: options, and what they do."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradloom.options import check_request, given
from gradloom.systems.asked import Asked
from gradloom.systems.request import options_of

if TYPE_CHECKING:
    from gradloom.workload import Progress

__all__ = ["HOST", "TUNING", "board_of", "check_engine", "tuned_on"]

#: Option of a verb that a board may run.
HOST = (
    Annotated[
        str | None, typer.Option(metavar="USER@BOARD", help="Run on this board, over ssh, after gradloom flash.")
    ],
    None,
)
#: Options of a fine-tune on a board, beside its own.
TUNING: dict[str, Any] = {
    "host": HOST,
    "detach": (
        Annotated[bool, typer.Option("--detach", help="With --host: start it there, say its name, and end.")],
        False,
    ),
    "attach": (
        Annotated[str | None, typer.Option(metavar="JOB", help="With --host: follow a job that runs there.")],
        None,
    ),
    "port": (
        Annotated[
            str | None,
            typer.Option(metavar="TTY", help="Run on the board at this serial port, which learns by itself."),
        ],
        None,
    ),
    "baud": (
        Annotated[
            int | None, typer.Option(metavar="N", help="Bits a second of the port. Default: as the board is built.")
        ],
        None,
    ),
    "compare": (
        Annotated[
            bool,
            typer.Option(
                "--compare", help="With --host, --job or --port: compare each word of the result with the reference."
            ),
        ],
        False,
    ),
    "job": (
        Annotated[
            Path | None,
            typer.Option(metavar="DIR", help="Write a job for the board's agent; or make the results of one that ran."),
        ],
        None,
    ),
}


def board_of(asked: Asked, host: str, design: object = None) -> Any:
    """The :class:`~gradloom.boards.links.reach.BoardReach` of a preset's board.

    It has the design that ``flash`` put there.
    """
    from gradloom import boards
    from gradloom.boards.kv260.bundle.flash import design_name

    name = "gradloom" if design is None else design_name(Path(str(design)))
    return boards.reached(boards.find(asked.preset.board), host=host, name=name)


def check_engine(options: Mapping[str, Any]) -> None:
    """Refuses an engine of this machine, where a board is the engine."""
    check_request("for a board, whose machine has integers", needless={"engine": options.get("engine")})


def tuned_on(
    asked: Asked,
    options: dict[str, Any],
    *,
    output: Path,
    host: str | None,
    detach: bool,
    attach: str | None,
    compare: bool,
    job: Path | None,
    port: str | None,
    baud: int | None,
    progress: "Progress | None",
    say: Callable[[str], object] | None,
) -> dict[str, Any] | None:
    """What a fine-tune on a board gives, or None if it is none.

    It is ``metrics.json``; or, of a job that was written or started, its description.
    """
    if host is None:
        check_request("without --host, the board", needless={"detach": detach, "attach": attach})
    if port is None:
        check_request("without --port, the serial port of a board", needless={"baud": baud})
    else:
        check_request("with --port, which has the board", needless={"host": host, "job": job})
        check_engine(options)
        from gradloom.jobs.by_port import finetune_on_port

        made = options_of("finetune", asked, None, options)
        return finetune_on_port(asked.preset, made, port, output=output, baud=baud, compare=compare, progress=progress)
    if host is None and job is None:
        check_request("without --host, --job or --port: RTL is always compared", needless={"compare": compare})
        return None
    from gradloom.jobs import on_board

    check_request("with --job, which a board runs by itself", needless={"host": host} if job else {})
    if job is not None and ((job / "result.json").is_file() or ((job / "job.json").is_file() and not given(options))):
        check_request("with --job, whose job has run with options of its own", needless=options)
        return on_board.collect_job(job, output=output, preset=asked.preset, compare=compare, progress=progress)
    if attach is not None:
        assert host is not None
        check_request("with --attach, whose job is there", needless={"detach": detach, **options})
        return on_board.attach(
            board_of(asked, host),
            attach,
            output=output,
            preset=asked.preset,
            compare=compare,
            progress=progress,
            say=say,
        )
    check_engine(options)
    if job is not None or detach:
        check_request("until the job has run", needless={"compare": compare})
    made = options_of("finetune", asked, None, options)
    if job is not None:
        return asdict(on_board.write_job(asked.preset, made, job, progress=progress)) | {"folder": str(job)}
    assert host is not None
    reach = board_of(asked, host, options.get("design"))
    if detach:
        return asdict(on_board.start_on(reach, asked.preset, made, progress=progress))
    return on_board.finetune_on(reach, asked.preset, made, output=output, compare=compare, progress=progress, say=say)
