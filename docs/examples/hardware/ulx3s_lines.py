"""UART lines of a ULX3S, from four sources.

``python docs/examples/hardware/ulx3s_lines.py DIR``

The bit-exact reference, the simulated RTL from power-up on, the same RTL with a listener who joins in the middle of the
first repeat, and the netlist that synthesis made of the design in DIR (of ``gradloom generate`` and ``gradloom build``;
without ``board/build/netlist.v`` it is left out). All lines must be equal; the reference has none with cycles.

The RTL runs the board's firmware with a pause between repeats that is a thousandth of the board's: 2 ms. The netlist
takes minutes, as its UART is as slow as on the board; ``--lines N`` hears only its first N lines, and no repeat.
"""

import argparse
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path

from gradloom.boards import find
from gradloom.boards.ulx3s.project import BAUD
from gradloom.program.power_up import PAUSE_SECONDS
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.sim.bench.tuner import SimulatedTuner, build_netlist, build_tuner, expected_lines
from gradloom.systems.images.program.digits import digits_data, digits_plan


def heard(name: str, program: Path, folder: Path, most: int | None = None) -> tuple[list[str], int]:
    """The UART's lines, or its first ``most``, and the cycles to their end."""
    tuner = SimulatedTuner(program, folder)
    start = time.monotonic()
    lines = []
    for line in itertools.islice(tuner.told(1 << 26), most):
        lines.append(line)
        print(f"{name}  {line}", flush=True)
    spent = time.monotonic() - start
    print(f"{name}  {tuner.cycles:,} cycles simulated in {spent:.0f} s")
    tuner.close()
    return lines, tuner.cycles


def heard_late(program: Path, folder: Path, cycles: int) -> list[str]:
    """The lines of the first repeat that a late listener hears in full.

    The listener joins after ``cycles`` cycles.
    """
    tuner = SimulatedTuner(program, folder)
    tuner.set("away", 1)
    tuner.rest(cycles)
    tuner.join()
    number, lines = tuner.repeated(1 << 26)
    print(f"late     joined after {cycles:,} cycles and heard the rest of a repeat, first {tuner.lines[0]!r}")
    print(f"late     then repeat {number} in full, {tuner.cycles:,} cycles after power-up")
    tuner.close()
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--lines", type=int, help="of the netlist only so many; else all")
    asked = parser.parse_args()
    if asked.lines is not None and asked.lines < 1:
        parser.error(f"--lines {asked.lines}: must be at least 1")
    report = json.loads((asked.directory / "report.json").read_text(encoding="utf-8"))
    config = ImageConfig(**report["parameters"])
    memory = find("ulx3s").memory_bytes
    pause = PAUSE_SECONDS * config.clock_mhz * 1000
    plan = digits_plan(config, memory=memory, pause=pause)
    expected = expected_lines(plan, digits_data(plan.samples))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = build_tuner(config, plan, folder, memory_bytes=memory)
        lines, cycles = heard("RTL    ", program, folder)
        # A repeat takes half a million cycles: a quarter of a million behind its begin is in the middle of a line.
        found = {"RTL    ": lines, "late   ": heard_late(program, folder, cycles + pause + (1 << 18))}
    if (asked.directory / "board" / "build" / "netlist.v").is_file():
        program = build_netlist(asked.directory, divisor=round(config.clock_mhz * 1e6 / BAUD))
        found["netlist"], _ = heard("netlist", program, asked.directory, asked.lines)
    for name, lines in found.items():
        told = [line for line in lines if not line.startswith("cycles")]
        equal = told == (expected[: len(told)] if asked.lines and name == "netlist" else expected)
        print(f"{name}: {len(lines)} lines, {'equal to the reference' if equal else 'DIFFER from the reference'}")
        if not equal:
            sys.exit(3)
    simulated, *others = found.values()
    if any(simulated[: len(other)] != other for other in others):
        sys.exit("RTL, late listener and netlist differ")


if __name__ == "__main__":
    main()
