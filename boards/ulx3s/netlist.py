"""Area and levels of logic of a ULX3S design.

The synthesis is the first step of its build.
"""

import json
import re
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from gradloom.json_file import read_json

from ..board import Board
from ..netlist import timing
from ..netlist.area import RESOURCES, AreaReport, SynthesisError, board_of, stand_ins, summary
from .tools import design_sources, synthesise

__all__ = ["NAMELESS", "CellHomes", "area"]

#: Stands for the units of registers that Yosys puts beside memories, and whose names tell none.
NAMELESS = "memories"
_TOP = "gradloom_ulx3s"
#: What a cell takes of which resource.
_TAKEN = {
    "TRELLIS_FF": ("ff", 1.0),
    "MULT18X18D": ("dsp", 1.0),
    "DP16KD": ("bram36", 0.5),
    "TRELLIS_DPR16X4": ("lutram", 4.0),
}


def area(board: Board, directory: Path | str, *, unit: str | None = None, paths: int = 5) -> AreaReport:
    """As :func:`gradloom.boards.netlist.area.area`, of the whole system.

    It is the accelerator with processor, memory and UART: the netlist that a build has left, or else one made as the
    build does. ``unit`` is synthesised alone, and so is the accelerator of a design without a board project.

    The design is one module then, so a unit, named by its file, has registers, multipliers and memories, and levels;
    LUTs are only told of the whole, two for a cell of a carry chain, four for a memory of 16 words.
    """
    with tempfile.TemporaryDirectory() as temporary:
        if unit is None and not _without_project(board, Path(directory)):
            folder, top, files = Path(directory) / "board", _TOP, design_sources(Path(directory))
            flat = _left(folder / "build" / "netlist.json")
        else:
            parts, top = stand_ins(directory, unit)
            folder, files, flat = Path(temporary), [str(path.resolve()) for path in parts.values()], None
        if flat is None:
            synthesise(folder, files, top)
            flat = _left(folder / "build" / "netlist.json")
    if flat is None:
        raise SynthesisError(f"{top}: synthesis left no netlist")
    homes = CellHomes(flat["modules"][top], top, {Path(file).stem for file in files}, folder)
    total, units = _count(flat["modules"][top]["cells"], homes)
    return summary(board, top, total, units, timing.Netlist(flat), homes.unit, paths)


def _without_project(board: Board, directory: Path) -> bool:
    """Whether a design of this board has no board project."""
    report = directory / "report.json"
    return not (directory / "board").is_dir() and report.is_file() and board_of(read_json(report), "") == board.name


class CellHomes:
    """Units of the cells of the flat netlist ``module``.

    ``folder``: where its sources' paths begin.

    A memory's or a product's name begins with the instances on the way to it, a register's line in a source is known.
    A memory's own register has neither, but its net has names: where that is no input it comes from, the innermost; or
    what Yosys made of such a name. Registers of memories whose nets have no name are :data:`NAMELESS`.
    """

    def __init__(self, module: dict[str, Any], top: str, known: set[str], folder: Path) -> None:
        self.cells: dict[str, Any] = module["cells"]
        self._known, self._folder = known, folder
        self._top = self._file(module["attributes"].get("src", "")) or top
        self._lines: dict[str, list[str]] = {}
        self.scopes = {
            name: self._file(cell["attributes"].get("module_src", "")) or self._top
            for name, cell in self.cells.items()
            if cell["type"] == "$scopeinfo"
        }
        self._names: dict[int, list[tuple[str, str]]] = defaultdict(list)
        for name, entry in module["netnames"].items():
            made = name.startswith("$")
            if not made or "\\" in name:
                where = "" if made else entry["attributes"].get("src", "")
                for bit in entry["bits"]:
                    self._names[bit].append((name.rpartition("\\")[2], where))

    @property
    def instances(self) -> dict[str, int]:
        """How often each unit is used in all, the outermost first."""
        counts = {self._top: 1}
        for name, unit in self.scopes.items():
            outer = self._scope(name)
            if unit != outer:
                counts[unit] = counts.get(unit, 0) + 1
        return counts

    def unit(self, name: str) -> str:
        """The unit of the cell called ``name``."""
        cell = self.cells[name]
        found = self._file(cell["attributes"].get("src", ""))
        if not found and name.startswith("$auto"):
            pin = "Q" if "Q" in cell["connections"] else "DO"
            nets = [
                (bool(where), net.count("."), net)
                for net, where in self._names[cell["connections"][pin][0]]
                if not self._is_input(where)
            ]
            if not nets:
                return NAMELESS
            name = max(nets)[2]
        return found or self._scope(name.removeprefix("$flatten").replace("\\", ""))

    def _scope(self, name: str) -> str:
        while "." in name:
            name = name.rpartition(".")[0]
            if name in self.scopes:
                return self.scopes[name]
        return self._top

    def _file(self, where: str) -> str:
        """The unit of the first of some places in sources that is ours.

        The form is ``path:line.column-line.column|...``.
        """
        stems = (Path(part.rpartition(":")[0]).stem for part in where.split("|"))
        return next((stem for stem in stems if stem in self._known), "")

    def _is_input(self, where: str) -> bool:
        found = re.match(r"([^|]+):(\d+)\.", where)
        if not found:
            return False
        path = found[1]
        if path not in self._lines:
            file = self._folder / path
            self._lines[path] = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        lines, number = self._lines[path], int(found[2])
        return number <= len(lines) and lines[number - 1].lstrip().startswith("input")


def _left(netlist: Path) -> dict[str, Any] | None:
    """Netlist of synthesis; None where it was cut short, or never ran."""
    try:
        return json.loads(netlist.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def _count(cells: dict[str, Any], homes: CellHomes) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    total: dict[str, float] = dict.fromkeys(RESOURCES, 0)
    units: dict[str, dict[str, float]] = {
        unit: {"instances": count, **dict.fromkeys(("ff", "dsp", "bram36", "lutram"), 0)}
        for unit, count in (*homes.instances.items(), (NAMELESS, 0))
    }
    for name, cell in cells.items():
        kind = cell["type"]
        total["lut"] += {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 4}.get(kind, 0)
        key, amount = _TAKEN.get(kind, ("", 0.0))
        if key:
            total[key] += amount
            units[homes.unit(name)][key] += amount
    return total, units
