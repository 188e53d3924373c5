"""Which bits of ports and named registers change in a run.

In the Verilog that a preset generates, Verilator counts how often each bit of a port or of a named register rises and
falls (``--coverage-toggle``); a bit is covered that has done both. Instances of a module count together. What runs is
in :mod:`.runs`. Bits that cannot change (:func:`constants`) are left out, and what is left over is listed.
"""

import json
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradloom.rtl.emit.yosys import run_yosys

__all__ = ["ARGUMENTS", "Signal", "constants", "counted", "instrument", "parts", "report", "signals", "told"]

#: A bit of a signal: module, signal, index.
Bit = tuple[str, str, int]

#: Verilator's. Modules that are used more than once stay apart, which keeps the C++ small.
ARGUMENTS = ("--coverage-toggle", "--coverage-max-width", "65536", "--inline-mult", "1")

_MODULE = re.compile(r"module \\?(\S+?)\s*[(;]")
_DECLARED = re.compile(r"  (?:input|output|reg) (?:signed )?(?:\[(\d+):0\] )?(\\\S+|\w+)\s*(?:=[^;]*)?;")
_WIRE = re.compile(r"  wire (?:signed )?(?:\[\d+:0\] )?(\\\S+|\w+)\s*;")
_PLACED = re.compile(r"  (\\\S+|\w+) +(\\\S+|\w+)\s*\(")
_CODED = re.compile(r"__0([2-7][0-9A-Fa-f])")
_UNNAMED = re.compile(r"_\d+_")


@dataclass(frozen=True)
class Signal:
    """A port or a named register, and its bits."""

    name: str
    width: int
    port: bool


def _declared(line: str) -> Signal | None:
    """The signal that a line declares, or None.

    Memories, and signals that Yosys had to name, give None.
    """
    match = _DECLARED.fullmatch(line)
    if match is None or _UNNAMED.fullmatch(match[2]):
        return None
    return Signal(match[2].lstrip("\\"), int(match[1] or 0) + 1, not line.startswith("  reg "))


def signals(text: str) -> dict[str, dict[str, Signal]]:
    """Ports and named registers of Verilog, by module and name.

    The Verilog must be written by this project.
    """
    found: dict[str, dict[str, Signal]] = {}
    module: dict[str, Signal] = {}
    for line in text.splitlines():
        if begins := _MODULE.match(line):
            module = found.setdefault(begins[1], {})
        elif signal := _declared(line):
            module.setdefault(signal.name, signal)
    return found


def instrument(text: str) -> str:
    """Verilog in which Verilator counts changes of ports and registers.

    It counts named registers, and nothing else.
    """
    lines = ["/*verilator coverage_off*/"]
    ports: set[str] = set()
    for line in text.splitlines():
        if _MODULE.match(line):
            ports.clear()
        signal = _declared(line)
        if signal is not None and signal.port:
            ports.add(signal.name)
        # A port's own second line is the one that Verilator goes by.
        wire = _WIRE.fullmatch(line)
        if signal is not None or wire is not None and wire[1].lstrip("\\") in ports:
            line = f"/*verilator coverage_on*/{line}/*verilator coverage_off*/"
        lines.append(line)
    return "\n".join(lines) + "\n"


def counted(data: Iterable[str]) -> dict[Bit, tuple[int, int]]:
    """``(rises, falls)`` by bit, from Verilator's coverage files.

    ``data`` has the lines of the files; the counts are of all instances.
    """
    found: dict[Bit, list[int]] = defaultdict(lambda: [0, 0])
    for line in data:
        match = re.match(r"C '(.*)' (\d+)$", line)
        if match is None:
            continue
        fields = dict(part.split("\2", 1) for part in match[1].split("\1") if "\2" in part)
        module, toggle = (
            fields["page"].removeprefix("v_toggle/"),
            re.fullmatch(r"(.*?)(?:\[(\d+)\])?:(0->1|1->0)", fields["o"]),
        )
        if toggle is not None:
            found[_decoded(module), _decoded(toggle[1]), int(toggle[2] or 0)][toggle[3] == "1->0"] += int(match[2])
    return {bit: (up, down) for bit, (up, down) in found.items()}


def _decoded(name: str) -> str:
    """Decodes a name of Verilator.

    Verilator writes ``$`` and the second of two underscores by their codes.
    """
    return _CODED.sub(lambda code: chr(int(code[1], 16)), name)


def parts(texts: Iterable[str]) -> dict[str, list[tuple[str, str]]]:
    """Module and name of each instance, by the module that has it.

    The Verilog must be written by this project.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    module = ""
    for text in texts:
        for line in text.splitlines():
            if begins := _MODULE.match(line):
                module = begins[1]
                found[module] = []
            elif placed := _PLACED.match(line):
                found[module].append((placed[1].lstrip("\\"), placed[2].lstrip("\\")))
    return found


def _instances(texts: Sequence[str], top: str) -> dict[str, list[str]]:
    """Prefixes of the flattened names of each module's instances."""
    placed = parts(texts)
    found: dict[str, list[str]] = defaultdict(list)

    def walk(name: str, prefix: str) -> None:
        found[name].append(prefix)
        for kind, instance in placed[name]:
            if kind in placed:
                walk(kind, f"{prefix}{instance}.")

    walk(top, "")
    return found


def constants(files: Sequence[Path], top: str = "gradloom") -> set[Bit]:
    """Bits that are constant in every instance.

    They are found when Yosys has flattened the design and folded its constants.
    """
    texts = [path.read_text(encoding="utf-8") for path in files]
    fold = ["opt_expr -fine", "opt_clean", "opt_dff"]
    with tempfile.TemporaryDirectory() as folder:
        netlist = Path(folder) / "flat.json"
        run_yosys(
            [
                f"read_verilog {' '.join(map(str, files))}",
                f"hierarchy -top {top}",
                "proc",
                "flatten",
                *fold * 3,
                "opt_expr -fine",
                "opt_clean",
                f"write_json {netlist}",
            ]
        )
        nets = json.loads(netlist.read_text(encoding="utf-8"))["modules"][top]["netnames"]
    found: set[Bit] = set()
    known = {name: each for text in texts for name, each in signals(text).items()}
    for module, prefixes in _instances(texts, top).items():
        for signal in known[module].values():
            wires = [nets[prefix + signal.name]["bits"] for prefix in prefixes if prefix + signal.name in nets]
            if wires:
                found |= {
                    (module, signal.name, index)
                    for index in range(signal.width)
                    if all(isinstance(bits[index], str) for bits in wires)
                }
    return found


def told(files: Sequence[Path], counts: Path, top: str = "gradloom") -> dict[str, Any]:
    """:func:`report` of Verilog after a run that wrote ``counts``.

    The Verilog is in ``files``, its outer module is ``top``.
    """
    with counts.open(encoding="latin-1") as lines:
        seen = counted(lines)
    known = {module: each for path in files for module, each in signals(path.read_text(encoding="utf-8")).items()}
    return report(known, seen, constants(files, top))


def report(
    known: Mapping[str, Mapping[str, Signal]], seen: Mapping[Bit, tuple[int, int]], fixed: set[Bit]
) -> dict[str, Any]:
    """Points, covered ones, excluded ones, and ranges of uncovered bits.

    They are given by module and in all. Points are excluded by rule.
    """
    units: dict[str, Any] = {}
    for module, each in sorted(known.items()):
        excluded: Counter[str] = Counter()
        points = covered = 0
        holes = []
        for signal in each.values():
            quiet = []
            for index in range(signal.width):
                up, down = seen.get((module, signal.name, index), (0, 0))
                if not (up and down):
                    if (module, signal.name, index) in fixed:
                        excluded["constant"] += 1
                        continue
                    quiet.append(index)
                points += 1
                covered += bool(up and down)
            holes += [f"{signal.name}{bits}" for bits in _ranges(quiet, signal.width)]
        units[module] = {"points": points, "covered": covered, "excluded": dict(excluded), "holes": holes}
    left_out = sum((Counter(each["excluded"]) for each in units.values()), Counter())
    points, covered = (sum(each[name] for each in units.values()) for name in ("points", "covered"))
    return {
        "points": points,
        "covered": covered,
        "share": round(100 * covered / points, 2),
        "excluded": dict(left_out),
        "units": units,
    }


def _ranges(indices: Sequence[int], width: int) -> list[str]:
    """``[3:1]`` for 1, 2, 3.

    It is empty for the one bit of a signal that has no more.
    """
    found: list[list[int]] = []
    for index in indices:
        if found and found[-1][1] == index - 1:
            found[-1][1] = index
        else:
            found.append([index, index])
    if width == 1:
        return [""] * len(found)
    return [f"[{low}]" if low == high else f"[{high}:{low}]" for low, high in found]
