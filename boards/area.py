"""What a design takes of a board, by open synthesis: LUTs, registers, DSP slices, memories; its deepest paths."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Protocol

from . import timing

__all__ = ["RESOURCES", "SynthesisError", "area"]

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

_YOSYS = """\
import sys
from pyosys import libyosys as ys
design = ys.Design()
for command in sys.stdin.read().splitlines():
    ys.run_pass(command, design)
"""


class SynthesisError(ValueError):
    """The design could not be synthesised."""


class BoardFacts(Protocol):
    """What is needed of a board: its totals and its family as Yosys calls it."""

    name: str
    family: str
    lut: int
    ff: int
    dsp: int
    bram36: int
    uram: int


def area(directory: Path | str, board: BoardFacts, *, paths: int = 5) -> dict[str, Any]:
    """Synthesises ``directory/rtl/*.v`` (a module in ``directory/synth`` stands in for its namesake) for
    ``board``.

    The units that the outermost module holds are kept apart and each distinct one is synthesised once. A LUT
    is a function of up to six inputs: vendor tools put two small ones into one, so their count is lower.

    Returns
    -------
    dict
        ``total`` and ``units`` (by module: ``instances`` and the sum over them): ``lut`` (those used as
        memory included), ``ff``, ``dsp``, ``bram36``, ``uram``, ``lutram``; ``share`` of the board's totals,
        with ``bits`` of block and ultra RAM together, in percent; ``levels`` and ``paths``, deepest first.
    """
    root = Path(directory)
    sources = {path.stem: path for path in sorted((root / "rtl").glob("*.v"))}
    if not sources:
        raise SynthesisError(f"{directory} has no rtl/*.v: name a directory that `gradloom generate` made")
    instances = _instances(sources)
    inner = {child for children in instances.values() for child in children}
    outer = [name for name in sources if name not in inner]
    if len(outer) != 1:
        raise SynthesisError(
            f"{directory}/rtl has {len(outer)} outermost modules ({', '.join(outer)}), must have one"
        )
    top = outer[0]
    units = instances[top]
    for path in sorted((root / "synth").glob("*.v")):
        sources[path.stem] = path
    hierarchical, flat = _synthesise(top, list(units), list(sources.values()), board.family)
    cells = {name: _count(module) for name, module in hierarchical["modules"].items()}
    parts = {top: (1, cells.get(top, dict.fromkeys(RESOURCES, 0)))}
    parts |= {unit: (count, cells[unit]) for unit, count in units.items() if unit in cells}
    listed = {
        name: {"instances": count} | {key: count * value for key, value in used.items()}
        for name, (count, used) in parts.items()
    }
    total = {key: sum(entry[key] for entry in listed.values()) for key in RESOURCES}
    bits = (total["bram36"] * 36 + total["uram"] * 288) / max(board.bram36 * 36 + board.uram * 288, 1)
    share = {key: _percent(total[key], getattr(board, key)) for key in RESOURCES if key != "lutram"}
    deepest = timing.worst_paths(flat, count=paths)
    inside = [path.levels for path in deepest if not path.ends_at_port]
    return {
        "board": board.name,
        "family": board.family,
        "top": top,
        "total": {key: _plain(value) for key, value in total.items()},
        "share": share | {"bits": round(100 * bits, 1)},
        "units": {
            name: {key: _plain(value) for key, value in entry.items()} for name, entry in listed.items()
        },
        "levels": max(inside, default=max((path.levels for path in deepest), default=0)),
        "paths": [path.as_dict() for path in deepest],
    }


def _instances(sources: dict[str, Path]) -> dict[str, dict[str, int]]:
    """How many of which module each module holds, from the text that we emitted ourselves."""
    found: dict[str, dict[str, int]] = {}
    for name, path in sources.items():
        counts: dict[str, int] = {}
        for match in re.finditer(
            r"^  (\w+) (?:\\\S+ |\w+) \($", path.read_text(encoding="utf-8"), re.MULTILINE
        ):
            if match[1] in sources and match[1] != name:
                counts[match[1]] = counts.get(match[1], 0) + 1
        found[name] = counts
    return found


def _synthesise(top: str, units: list[str], sources: list[Path], family: str) -> tuple[dict, dict]:
    with tempfile.TemporaryDirectory() as folder:
        hierarchical, flat = Path(folder) / "hierarchical.json", Path(folder) / "flat.json"
        uram = "-uram" if family == "xcup" else ""
        commands = [
            *(f"read_verilog {path.resolve()}" for path in sources),
            f"hierarchy -top {top}",
            *(f"setattr -mod -set keep_hierarchy 1 {unit}" for unit in units),
            f"synth_xilinx -family {family} -top {top} -flatten -noiopad -noclkbuf {uram}",
            f"write_json {hierarchical}",
            "setattr -mod -unset keep_hierarchy",
            "flatten",
            "opt_clean",
            f"write_json {flat}",
        ]
        done = subprocess.run(
            [sys.executable, "-c", _YOSYS],
            input="\n".join(commands),
            text=True,
            capture_output=True,
            check=False,
        )
        if done.returncode or not flat.exists():
            errors = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
            raise SynthesisError(
                f"Yosys could not synthesise {top}: " + (errors[-1] if errors else "no message")
            )
        return json.loads(hierarchical.read_text(encoding="utf-8")), json.loads(
            flat.read_text(encoding="utf-8")
        )


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
