"""Which boards there are, and what each can do."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from gradloom.plugins import Table
from gradloom.preset import Preset

from . import genesys2, kr260, kv260, ulx3s, zcu104
from .board import Board
from .checkup import Check, Workplace
from .links.reach import BoardReach
from .netlist.area import AreaReport, area

if TYPE_CHECKING:
    from gradloom.firmware.device.measured import RunEnergy

# A board is a module that offers BOARD, project_files, build and flash; check, where configurations are bound; checks
# of its workplace; and area, where synthesis is its own. A plug-in's has the name of its BOARD.
_BOARDS: Table[ModuleType] = Table(
    "board", "gradloom.boards", {package.BOARD.name: package for package in (genesys2, kr260, kv260, ulx3s, zcu104)}
)


def all_boards() -> tuple[Board, ...]:
    """Every known board, by name."""
    return tuple(_BOARDS[name].BOARD for name in sorted(_BOARDS))


def find(name: str) -> Board:
    """The board called ``name``.

    :class:`ValueError` names the known ones otherwise.
    """
    return _package(name).BOARD


def write_project(board: Board, directory: Path | str, report: dict) -> list[Path]:
    """Writes the vendor project and the firmware of a generated design.

    The firmware is its sources.

    ``report`` is what ``generate`` puts in ``report.json``: ``preset``, ``parameters``, ``module``, ``ports``, and
    optionally ``name`` and ``window_bytes``. Returns the files written, relative to ``directory``, sorted.
    """
    directory = Path(directory)
    # Everything is checked before anything is written.
    files = _package(board.name).project_files(board, report)
    for path, text in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", newline="\n")
    return sorted(Path(path) for path in files)


def check(board: Board, preset: Preset) -> None:
    """Refuses a configuration that the board's project cannot hold.

    :class:`ValueError`, before anything is made.
    """
    ports = preset.config.ports
    if ports > board.ports:
        raise ValueError(f"ports={ports}: {board.name} has {board.ports} for a design; must be at most that")
    package = _package(board.name)
    if hasattr(package, "check"):
        package.check(board, preset)


def measure(board: Board, directory: Path | str, *, unit: str | None = None) -> AreaReport:
    """Resources of a generated design on the board, by open synthesis.

    With ``unit``, those of this module of it alone; see :func:`gradloom.boards.netlist.area.area`.
    """
    package = _package(board.name)
    own: Callable[..., AreaReport] | None = getattr(package, "area", None)
    return area(directory, board, unit=unit) if own is None else own(board, directory, unit=unit)


def build(
    board: Board,
    directory: Path | str,
    *,
    saif: Path | str | None = None,
    dry_run: bool = False,
    echo: Callable[[str], object] = print,
) -> list[str]:
    """Builds the bitstream and the bundle that the board loads.

    Returns the commands.

    ``saif``: switching activity of the design, from which Vivado estimates power.
    """
    make = _package(board.name).build
    if saif is None:
        return make(board, directory, dry_run=dry_run, echo=echo)
    if "saif" not in inspect.signature(make).parameters:
        raise ValueError(f"saif={saif}: must be left out, {board.name} is not built by Vivado, which reads it")
    return make(board, directory, saif=saif, dry_run=dry_run, echo=echo)


def flash(
    board: Board,
    directory: Path | str,
    *,
    host: str | None = None,
    dry_run: bool = False,
    echo: Callable[[str], object] = print,
) -> list[str]:
    """Copies the bundle to the board and loads it. Returns the commands."""
    return _package(board.name).flash(board, directory, host=host, dry_run=dry_run, echo=echo)


def measured(board: Board, *, host: str, name: str, request: bytes) -> "RunEnergy":
    """Energy of a program that the board repeats, by its own sensor.

    ``name`` of the design that was flashed; ``request``: see ``gradloom_host.measured``.
    """
    require_sensor(board, host)
    result: RunEnergy = _package(board.name).measured(host, name=name, request=request)
    return result


def reached(board: Board, *, host: str, name: str) -> BoardReach:
    """The agent of a board with Linux, by its user and host name.

    ``name`` of the design that was flashed. :class:`ValueError` where the board has no Linux.
    """
    require_agent(board, f"host={host}")
    found: BoardReach = _package(board.name).reached(host, name=name)
    return found


def require_agent(board: Board, asked: str) -> None:
    """Refuses a board without Linux; ``asked`` is the option and its value."""
    if not hasattr(_package(board.name), "reached"):
        raise ValueError(f"{asked}: must be left out, {board.name} has no Linux that an agent could run on")


def require_sensor(board: Board, host: str) -> None:
    """Refuses a board whose host reaches no power sensor."""
    if not hasattr(_package(board.name), "measured"):
        raise ValueError(
            f"host={host}: must be left out, {board.name} has no power sensor for gradloom; measure at its supply"
        )


def checkup(board: Board, place: Workplace) -> Iterator[Check]:
    """Checks of a board's workplace, one after the other.

    :class:`ValueError` if the board has none.
    """
    package = _package(board.name)
    if not hasattr(package, "checks"):
        raise ValueError(f"board={board.name}: has no checks")
    return package.checks(board, place)


def _package(name: str) -> ModuleType:
    return _BOARDS.find(name)
