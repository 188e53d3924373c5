"""The vectors of a test bench, and its folder."""

import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

__all__ = ["FOLDER", "BenchPart", "BenchPlan", "WrittenBench", "wrapped", "write_bench"]

FOLDER = "tb"
_FILES = Path(__file__).parent / "files"

#: Cycles without a beat on any port after which a unit counts as stuck.
PATIENCE = 20_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchPart:
    """Words that belong together.

    All are taken, and all have come, before the next part begins.

    ``inputs``: payloads by input stream; ``outputs``: ``(payload, mask)`` by output stream, where the mask has the
    bits that are compared; ``held``: inputs that keep a value; ``pulses``: cycles in which an output is 1; ``reset``:
    whether a reset goes first.
    """

    inputs: Mapping[str, Sequence[int]]
    outputs: Mapping[str, Sequence[tuple[int, int]]]
    held: Mapping[str, int] = dataclasses.field(default_factory=dict)
    pulses: Mapping[str, int] = dataclasses.field(default_factory=dict)
    reset: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchPlan:
    """All parts of a unit's test.

    ``zero``: masks of signals whose bits stay 0, each with the signal that must be 1 for the check, or None; ``lead``:
    cycles for which an input's payload is there before its valid; ``hold``: cycles of a long hold.
    """

    parts: Sequence[BenchPart]
    zero: Mapping[str, tuple[int, str | None]] = dataclasses.field(default_factory=dict)
    lead: Mapping[str, int] = dataclasses.field(default_factory=dict)
    hold: int = 100

    def content(self, ports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Plain values of ``vectors.json``.

        ``ports``: those of the module, as in ``report.json``.
        """
        directions = {port["name"]: port["direction"] for port in ports}
        streams: dict[str, list[str]] = {"in": [], "out": []}
        for name, direction in directions.items():
            stem = name.removesuffix("_valid")
            if stem != name and f"{stem}_payload" in directions:
                streams["in" if direction == "input" else "out"].append(stem)
        parts = {
            f"{stem}_{part}" for each in streams.values() for stem in each for part in ("payload", "valid", "ready")
        }
        idle = [name for name, way in directions.items() if way == "input" and name not in parts | {"clk", "rst"}]
        return {
            "ports": streams,
            "idle": idle,
            "zero": {name: [f"{mask:x}", when] for name, (mask, when) in self.zero.items()},
            "lead": dict(self.lead),
            "hold": self.hold,
            "patience": PATIENCE,
            "parts": [
                {
                    "reset": part.reset,
                    "held": {name: f"{value:x}" for name, value in part.held.items()},
                    "inputs": {name: [f"{each:x}" for each in words] for name, words in part.inputs.items()},
                    "outputs": {
                        name: [[f"{value & mask:x}", f"{mask:x}"] for value, mask in words]
                        for name, words in part.outputs.items()
                    },
                    "pulses": dict(part.pulses),
                    "last": number == len(self.parts) - 1 or self.parts[number + 1].reset,
                }
                for number, part in enumerate(self.parts)
            ],
        }


class WrittenBench(TypedDict):
    """The entry of a test bench in ``report.json``; without ``files``, the ``reason``."""

    files: list[str] | None
    reason: NotRequired[str]


def write_bench(
    stage: Path, top: str, content: Mapping[str, Any], *, bench: str = "bench.py", wrapper: str | None = None
) -> WrittenBench:
    """Writes ``stage/tb``.

    It has the ``bench``, ``vectors.json`` with ``content`` and what runs them. ``wrapper``: Verilog of a module ``tb``
    around ``top``, where one is needed.

    Returns the entry of ``report.json``.
    """
    folder = stage / FOLDER
    folder.mkdir()
    for name, source in (("Makefile", "Makefile"), ("test_design.py", "test_design.py"), ("bench.py", bench)):
        shutil.copyfile(_FILES / source, folder / name)
    outer = top if wrapper is None else "tb"
    texts = {
        "vectors.json": json.dumps(content, indent=1) + "\n",
        "design.mk": f"COCOTB_TOPLEVEL := {outer}\n" + ("" if wrapper is None else "VERILOG_SOURCES := tb.v\n"),
        "ports.vlt": f'`verilator_config\npublic_flat_rw -module "{outer}" -var "*"\n',
    } | ({} if wrapper is None else {"tb.v": wrapper})
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    return {"files": sorted(path.name for path in folder.iterdir())}


def wrapped(top: str, ports: Sequence[Mapping[str, Any]], without: Sequence[str]) -> str:
    """Verilog of a module ``tb`` around ``top``.

    It has its ports but the outputs ``without``, whose names a simulator does not take in the outermost module.
    """
    kept = [port for port in ports if port["name"] not in without]
    span = {port["name"]: f"[{port['width'] - 1}:0] " if port["width"] > 1 else "" for port in kept}
    outer = ",\n".join(f"  {port['direction']} wire {span[port['name']]}{port['name']}" for port in kept)
    inner = ",\n".join(f"    .{port['name']}({port['name'] if port in kept else ''})" for port in ports)
    head = f"// {top} without ports that Verilator's classes have names of.\n"
    return f"{head}module tb (\n{outer}\n);\n  {top} dut (\n{inner}\n  );\nendmodule\n"
