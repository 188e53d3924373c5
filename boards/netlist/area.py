"""Area and deepest paths of a design, by open synthesis."""

import json
import re
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from gradloom.rtl.emit.yosys import Yosys, YosysError, run_yosys

from ..board import Board
from . import timing
from .delays import PathEstimate, estimate
from .timing import PathReport

__all__ = ["RESOURCES", "AreaReport", "SynthesisError", "area", "summary"]

RESOURCES = ("lut", "ff", "dsp", "bram36", "uram", "lutram")

#: LUTs that a distributed memory takes; a shift register takes one.
_LUTRAM = {
    "RAM32M": 4,
    "RAM64M": 4,
    "RAM32M16": 8,
    "RAM64M8": 8,
    "RAM32X1D": 2,
    "RAM64X1D": 2,
    "RAM128X1D": 4,
    "RAM256X1D": 8,
    "RAM32X1S": 1,
    "RAM64X1S": 1,
    "RAM128X1S": 2,
    "RAM256X1S": 4,
    "RAM512X1S": 8,
    "RAM32X16DR8": 8,
    "RAM64X8SW": 8,
}


class SynthesisError(ValueError):
    """The design could not be synthesised."""


class AreaReport(TypedDict):
    """Resources, levels and deepest paths of a design, as :func:`area` returns them.

    ``clock_mhz`` of the design, budgets of its ``units`` and what is ``beyond`` them: :func:`gradloom.report`.
    """

    board: str
    family: str
    top: str
    total: dict[str, float]
    share: dict[str, float]
    units: dict[str, dict[str, float | None]]
    levels: int
    paths: list[PathReport]
    estimate: PathEstimate | None
    clock_mhz: NotRequired[float | None]
    beyond: NotRequired[list[str]]


def area(directory: Path | str, board: Board, *, unit: str | None = None, paths: int = 5) -> AreaReport:
    """Synthesises ``directory/rtl/*.v`` for ``board``.

    A module in ``directory/synth`` stands in for its namesake. It takes the whole design, or module ``unit`` and its
    submodules.

    Each distinct module is synthesised once, on its own, and counted as often as it is used. A LUT is a
    function of up to six inputs: vendor tools optimise across modules and put two small functions into one
    LUT, so their count is lower.

    Returns
    -------
    dict
        ``total`` and ``units`` (by module: ``instances`` and what all of them take, without what they hold):
        ``lut`` (those used as memory included), ``ff``, ``dsp``, ``bram36``, ``uram``, ``lutram``; ``share``
        of the board's totals, with ``bits`` of block and ultra RAM together, in percent; ``levels`` between
        registers, for each of ``units`` those of paths that end in it too, and the deepest ``paths``;
        ``estimate`` of the slowest path, without placement.
    """
    sources, top = stand_ins(directory, unit)
    hierarchical, flat = _synthesise(top, sources, board.family)
    cells = {name: hierarchical["modules"][name] for name in sources if name in hierarchical["modules"]}
    instances = _instances(top, cells)
    listed = {
        name: {"instances": count} | {key: count * value for key, value in _count(cells[name]).items()}
        for name, count in instances.items()
    }
    total = {key: sum(entry[key] for entry in listed.values()) for key in RESOURCES}
    return summary(board, top, total, listed, timing.Netlist(flat), lambda cell: _unit(cell, top, cells), paths)


def summary(
    board: Board,
    top: str,
    total: dict[str, float],
    units: dict[str, dict[str, float]],
    netlist: timing.Netlist,
    unit: Callable[[str], str],
    paths: int,
) -> AreaReport:
    """Makes the result of :func:`area`.

    ``total`` and ``units`` are without levels; ``unit`` tells a cell's by its name.
    """
    bits = (total["bram36"] * 36 + total["uram"] * 288) / max(board.bram36 * 36 + board.uram * 288, 1)
    share = {key: _percent(total[key], getattr(board, key)) for key in RESOURCES if key != "lutram"}
    levels = netlist.by_unit(unit)
    deepest = netlist.worst(paths)
    slowest = estimate(netlist, board.family)
    return {
        "board": board.name,
        "family": board.family,
        "top": top,
        "total": {key: _plain(value) for key, value in total.items()},
        "share": share | {"bits": round(100 * bits, 1)},
        "units": {
            name: {**{key: _plain(value) for key, value in entry.items()}, "levels": levels.get(name, 0)}
            for name, entry in units.items()
        },
        "levels": max(levels.values(), default=max((path.levels for path in deepest), default=0)),
        "paths": [path.as_dict() for path in deepest],
        "estimate": None if slowest is None else slowest.as_dict(),
    }


def stand_ins(directory: Path | str, unit: str | None = None) -> tuple[dict[str, Path], str]:
    """Files of a generated design by module, and its top module.

    Files of ``synth`` are in place of their namesakes. The top module holds all others; or the files are those of
    ``unit``, which then is that module.
    """
    root = Path(directory)
    sources = {path.stem: path for path in sorted((root / "rtl").glob("*.v"))}
    if not sources:
        raise SynthesisError(f"{directory} has no rtl/*.v: name a directory that `gradloom generate` made")
    held = {name: _held(path) & set(sources) for name, path in sources.items()}
    if unit is None:
        outer = sorted(set(sources) - set().union(*held.values()))
        if len(outer) != 1:
            raise SynthesisError(f"{root}/rtl has {len(outer)} outer modules, must have 1: {', '.join(outer)}")
        top = outer[0]
    elif unit in sources:
        top, wanted, found = unit, {unit}, set[str]()
        while wanted:
            found |= wanted
            wanted = set().union(*(held[name] for name in wanted)) - found
        sources = {name: path for name, path in sources.items() if name in found}
    else:
        raise SynthesisError(f"unit={unit}: {root}/rtl has {', '.join(sources)}")
    for path in sorted((root / "synth").glob("*.v")):
        if path.stem in sources:
            sources[path.stem] = path
    return sources, top


def _held(path: Path) -> set[str]:
    """Modules that a file's hold, from text that we emitted ourselves."""
    text = path.read_text(encoding="utf-8")
    return set(re.findall(r"^  (\w+) (?:\\\S+ |\w+) \($", text, re.MULTILINE)) - {path.stem}


def _instances(top: str, modules: dict[str, Any]) -> dict[str, int]:
    """How often each module is used in all, outermost first."""
    counts: dict[str, int] = {}

    def visit(name: str, times: int) -> None:
        counts[name] = counts.get(name, 0) + times
        held: dict[str, int] = {}
        for cell in modules[name]["cells"].values():
            if cell["type"] in modules:
                held[cell["type"]] = held.get(cell["type"], 0) + 1
        for child, number in held.items():
            visit(child, times * number)

    visit(top, 1)
    return counts


def _unit(cell: str, top: str, modules: dict[str, Any]) -> str:
    """The module that holds a cell of the flat netlist.

    The cell's name begins with the instances on the way to it.
    """
    unit, instance = top, ""
    for part in cell.removeprefix("$flatten").replace("\\", "").split("."):
        # An instance in a submodule that was not placed has that one's name before its own.
        instance = f"{instance}.{part}" if instance else part
        kind = modules[unit]["cells"].get(instance, {}).get("type")
        if kind in modules:
            unit, instance = kind, ""
    return unit


def _synthesise(top: str, sources: dict[str, Path], family: str) -> tuple[dict, dict]:
    """The mapped design as Yosys JSON, with its modules and flattened."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        # Half of the modules each, by length: there is a process a core, and no pass waits for a module of the
        # other half.
        halves: tuple[list[str], list[str]] = ([], [])
        for name in sorted(sources, key=lambda name: -sources[name].stat().st_size):
            min(halves, key=lambda half: sum(sources[each].stat().st_size for each in half)).append(name)
        mapped = [root / f"{index}.il" for index in range(2)]
        writing = [
            f"hierarchy -check -purge_lib -top {top}",
            "blackbox =A:whitebox",
            f"write_json {root / 'hierarchical.json'}",
            "setattr -mod -unset keep_hierarchy",
            "flatten",
            "opt_clean",
            f"write_json {root / 'flat.json'}",
        ]
        try:
            if not halves[1]:
                # One module: the process that maps it has all there is.
                run_yosys([*_mapping(sources, halves[0], family), *writing])
            else:
                commands = [
                    [*_mapping(sources, half, family), *_kept(half, file)]
                    for half, file in zip(halves, mapped, strict=True)
                ]
                with ExitStack() as both:
                    for each in commands:
                        both.enter_context(Yosys()).run(each)
                run_yosys([*_CELLS, *(f"read_rtlil {file}" for file in mapped), *writing])
        except YosysError as error:
            raise SynthesisError(f"{top} could not be synthesised: {error}") from None
        texts = [(root / f"{name}.json").read_text(encoding="utf-8") for name in ("hierarchical", "flat")]
    return json.loads(texts[0]), json.loads(texts[1])


#: Reads the cells of AMD's chips.
_CELLS = ("read_verilog -lib -specify +/xilinx/cells_sim.v", "read_verilog -lib +/xilinx/cells_xtra.v")


def _mapping(sources: dict[str, Path], half: Collection[str], family: str) -> Iterator[str]:
    """Commands that map the modules of ``half``.

    The other modules are boxes to ``half``.
    """
    options = f"-family {family} -flatten -noiopad -noclkbuf -nowidelut" + (" -uram" if family == "xcup" else "")
    yield from _CELLS
    yield from (f"read_verilog {'' if name in half else '-lib '}{path.resolve()}" for name, path in sources.items())
    yield from (f"setattr -mod -set keep_hierarchy 1 {name}" for name in half)
    yield from ("proc", "flatten", "opt_clean")
    # Constants pass a delay line a register at a time, and each time the thorough passes go over all modules:
    # cheap passes get them through one module after the other.
    labels = ("prepare", "map_dsp", "coarse", "map_memory", "fine", "map_luts")
    for start, end in zip(labels, labels[1:], strict=False):
        yield from (f"opt -fast {name}" for name in half)
        yield f"synth_xilinx {options} -run {start}:{end}"
    # Each register with an inverted reset has got an inverter of its own.
    yield "opt_merge"
    yield f"synth_xilinx {options} -run map_luts:"


def _kept(half: Collection[str], target: Path) -> Iterator[str]:
    """Commands that write the modules of ``half`` to ``target``."""
    yield "select " + " ".join(half)
    yield f"write_rtlil -selected {target}"


def _count(module: dict[str, Any]) -> dict[str, float]:
    used: dict[str, float] = dict.fromkeys(RESOURCES, 0)
    for cell in module["cells"].values():
        kind = cell["type"]
        if re.fullmatch(r"LUT\d(_2)?|INV", kind):
            used["lut"] += 1
        elif re.fullmatch(r"FD[RSCP]E(_1)?|LD[CP]E", kind):
            used["ff"] += 1
        elif kind.startswith("DSP48"):
            used["dsp"] += 1
        elif kind.startswith("RAMB36"):
            used["bram36"] += 1
        elif kind.startswith("RAMB18"):
            used["bram36"] += 0.5
        elif kind.startswith("URAM288"):
            used["uram"] += 1
        elif kind.startswith("SRL") or kind in _LUTRAM:
            used["lut"] += _LUTRAM.get(kind, 1)
            used["lutram"] += _LUTRAM.get(kind, 1)
    return used


def _percent(used: float, there: int) -> float:
    return round(100 * used / there, 1) if there else (0.0 if not used else 100.0)


def _plain(value: float) -> float:
    return int(value) if value == int(value) else value


def board_of(report: dict[str, Any], fallback: str = "kv260") -> str:
    """The board that a design was generated for."""
    return str(report.get("board") or fallback)
