"""The group of verbs ``list``, and doctor, which lists tools."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import typer

from .app import app
from .arguments import Json, designed, usual_option
from .output import table

__all__ = ["ListedUnit", "doctor", "presets", "units"]

lists = typer.Typer(name="list", no_args_is_help=True, help="List presets, boards and units.")
app.add_typer(lists)


def presets() -> list[dict[str, str]]:
    """Every preset: ``name``, ``board``, ``summary`` and ``origin``.

    ``origin``: gradloom, or the package that adds it.
    """
    from gradloom.preset import KNOWN

    return [
        {"name": name, "board": preset.board, "summary": preset.summary, "origin": KNOWN.origin(name)}
        for name, preset in KNOWN.items()
    ]


class ListedUnit(TypedDict):
    """A unit that can be generated alone."""

    name: str
    run: bool
    summary: str
    origin: str
    parameters: dict[str, Any]


def units() -> list[ListedUnit]:
    """Units that can be generated alone.

    Of each: ``name``, ``summary``, ``parameters`` with defaults, ``run``: whether :func:`gradloom.run` takes it, and
    ``origin``: gradloom, or the package that adds it.
    """
    from gradloom.rtl.catalog import KNOWN
    from gradloom.sim.units.adapters import runs

    return [
        {
            "name": name,
            "run": runs(unit),
            "summary": unit.summary,
            "origin": KNOWN.origin(name),
            "parameters": {each.name: each.default for each in unit.parameters},
        }
        for name, unit in KNOWN.items()
    ]


def doctor(
    board: str | None = None,
    *,
    design: Path | str | None = None,
    host: str | None = None,
    port: str | None = None,
    tell: Callable[[str], object] | None = None,
) -> list[dict[str, Any]]:
    """Tools that gradloom uses, or the workplace of ``board``.

    Of each tool: ``tool``, ``version`` ("missing" where it is not found), ``found``, ``purpose`` and how to ``get`` it.

    Of each check of a workplace: ``check``, ``state`` ("ok", "fault" or "skipped"), ``found`` and ``advice``.
    ``design``: folder of ``generate``; ``host``: of a board that answers ssh; ``port``: of its serial line; ``tell``
    gets a line before a check that takes long.
    """
    if board is None:
        from gradloom.boards.doctor import examine

        for name, value in (("design", design), ("host", host), ("port", port)):
            if value is not None:
                raise ValueError(f"{name}={value}: needs --board")
        return [each.as_dict() for each in examine()]
    from gradloom import boards
    from gradloom.boards.checkup import Workplace

    place = Workplace(
        design=None if design is None else designed(Path(design)),
        host=host,
        port=port,
        tell=tell or (lambda line: None),
    )
    return [each.as_dict() for each in boards.checkup(boards.find(board), place)]


@lists.command("presets", epilog="Example: gradloom list presets --json")
def _presets_verb(as_json: Json = False) -> None:
    """List the presets: a machine, a board and what it is for."""
    table(presets(), ("name", "board", "summary", "origin"), as_json)


@lists.command("boards", epilog="Example: gradloom list boards")
def _boards_verb(as_json: Json = False) -> None:
    """List the boards and what their chips have."""
    from gradloom.boards import all_boards

    table(
        [board.as_dict() for board in all_boards()],
        ("name", "part", "lut", "ff", "dsp", "bram36", "uram", "summary"),
        as_json,
    )


@app.command("doctor", epilog="Example: gradloom doctor --board kv260 --host ubuntu@kria")
def _doctor_verb(
    board: Annotated[str | None, usual_option(help="Check the workplace of this board.", usual="list tools")] = None,
    design: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Compare the board with this output of gradloom generate.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="USER@HOST", help="User and host name of a KV260 for ssh.")
    ] = None,
    port: Annotated[str | None, typer.Option(metavar="TTY", help="Serial port of a Genesys 2 or ULX3S.")] = None,
    as_json: Json = False,
) -> None:
    """List the tools that this machine has, and what each is for.

    For a missing tool it says how to get it.

    With --board: check tools and versions, licence, cables and the board itself; exit with 2 if a check fails.
    """
    rows = doctor(board, design=design, host=host, port=port, tell=lambda line: typer.echo(f"{line} ...", err=True))
    if board is None:
        table(rows, ("tool", "version", "purpose", "get"), as_json)
        return
    table(rows, ("check", "state", "found", "advice"), as_json)
    wrong = [row["check"] for row in rows if row["state"] == "fault"]
    if wrong:
        raise ValueError(f"{len(wrong)} of {len(rows)} checks failed: {', '.join(wrong)}")


@lists.command("units", epilog="Example: gradloom list units")
def _units_verb(as_json: Json = False) -> None:
    """List the units that can be generated alone.

    The list also tells which of them ``gradloom run`` takes.
    """
    rows = (
        units()
        if as_json
        else [
            each
            | {
                "run": "yes" if each["run"] else "no",
                "parameters": ", ".join(f"{name}={value}" for name, value in each["parameters"].items()),
            }
            for each in units()
        ]
    )
    table(rows, ("name", "run", "parameters", "summary", "origin"), as_json)
