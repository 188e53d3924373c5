"""The verbs that list presets, boards, units and tools."""

from typing import Any

from .app import app
from .arguments import Json
from .output import table

__all__ = ["doctor", "presets", "units"]


def presets() -> list[dict[str, str]]:
    """Every preset: ``name``, ``board``, ``summary`` and ``origin``.

    ``origin``: gradloom, or the package that adds it.
    """
    from ..machines.presets import KNOWN

    return [
        {"name": name, "board": preset.board, "summary": preset.summary, "origin": KNOWN.origin(name)}
        for name, preset in KNOWN.items()
    ]


def units() -> list[dict[str, Any]]:
    """Units that can be generated alone.

    Of each: ``name``, ``summary``, ``parameters`` with defaults, ``run``: whether :func:`gradloom.run` takes it, and
    ``origin``: gradloom, or the package that adds it.
    """
    from gradloom.rtl.catalog import KNOWN
    from gradloom.sim.units.run import runs

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


def doctor() -> list[dict[str, Any]]:
    """Tools that gradloom uses.

    Of each: ``tool``, ``version`` ("missing" where it is not found), ``found``, ``purpose`` and how to ``get`` it.
    """
    from gradloom.boards.doctor import examine

    return [each.as_dict() for each in examine()]


@app.command("presets", epilog="Example: gradloom presets --json")
def _presets_verb(as_json: Json = False) -> None:
    """List the presets: a machine, a board and what it is for."""
    table(presets(), ("name", "board", "summary", "origin"), as_json)


@app.command("boards", epilog="Example: gradloom boards")
def _boards_verb(as_json: Json = False) -> None:
    """List the boards and what their chips have."""
    from gradloom.boards import all_boards

    table(
        [board.as_dict() for board in all_boards()],
        ("name", "part", "lut", "ff", "dsp", "bram36", "uram", "summary"),
        as_json,
    )


@app.command("doctor", epilog="Example: gradloom doctor")
def _doctor_verb(as_json: Json = False) -> None:
    """List the tools that this machine has, and what each is for.

    For a missing tool it says how to get it.
    """
    table(doctor(), ("tool", "version", "purpose", "get"), as_json)


@app.command("units", epilog="Example: gradloom units")
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
