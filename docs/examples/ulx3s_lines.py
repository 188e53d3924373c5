"""What a ULX3S says at power-up, three times: ``python docs/examples/ulx3s_lines.py DIR``.

By the bit-exact reference, by the simulated RTL, and by the netlist that synthesis made of the design in DIR (of
``gradloom generate`` and ``gradloom build``; without ``board/build/netlist.v`` it is left out). All lines must be
equal; the reference does not tell of cycles. The netlist takes minutes: its UART is as slow as on the board.
"""
import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from gradloom.boards import find
from gradloom.boards.ulx3s.project import BAUD
from gradloom.rtl.config import Config
from gradloom.rtl.plan.digits import digits_data, digits_plan
from gradloom.sim.tuner import SimulatedTuner, build_netlist, build_tuner, expected_lines


def heard(name: str, program: Path, folder: Path) -> list[str]:
    """What the UART says."""
    tuner = SimulatedTuner(program, folder)
    start = time.monotonic()
    lines = []
    for line in tuner.told(1 << 26):
        lines.append(line)
        print(f"{name}  {line}", flush=True)
    spent = time.monotonic() - start
    print(f"{name}  {tuner.cycles:,} cycles simulated in {spent:.0f} s")
    tuner.close()
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    asked = parser.parse_args()
    report = json.loads((asked.directory / "report.json").read_text(encoding="utf-8"))
    config = Config(**report["parameters"])
    memory = find("ulx3s").memory_bytes
    plan = digits_plan(config, memory=memory)
    expected = expected_lines(plan, digits_data(plan.samples))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = {"RTL    ": heard("RTL    ", build_tuner(config, plan, folder, memory_bytes=memory), folder)}
    if (asked.directory / "board" / "build" / "netlist.v").is_file():
        program = build_netlist(asked.directory, divisor=round(config.clock_mhz * 1e6 / BAUD))
        found["netlist"] = heard("netlist", program, asked.directory)
    for name, lines in found.items():
        equal = [line for line in lines if not line.startswith("cycles")] == expected
        print(f"{name}: {'equal to the reference' if equal else 'DIFFERS from the reference'}")
        if not equal:
            sys.exit(3)
    if len(set(map(tuple, found.values()))) != 1:
        sys.exit("RTL and netlist differ")


if __name__ == "__main__":
    main()
