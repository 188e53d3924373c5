"""Clock of ``lstm-ulx3s`` on an ECP5-85F, by place-and-route.

``python docs/examples/lstm_ecp5.py``

The accelerator alone: no processor, no memory, no pins of the board. Its inputs come out of a shift register and its
outputs leave through another one, so that a few pins do. Takes half an hour; ``--minutes`` ends it before.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gradloom.boards import find
from gradloom.boards.ulx3s.routing import tell_router
from gradloom.boards.ulx3s.tools import FlowError, route_command, summary, synthesise, tool

PRESET = "lstm-ulx3s"
SETTINGS = {"device": "85k", "package": "CABGA381", "speed": 6, "mhz": 75}

WRAPPER = """\
module wrapper (input clk, input rst, input d, output q);
  reg [{inputs}:0] inputs = 0;
  reg [{outputs}:0] outputs = 0, held = 0;
  reg [9:0] count = 0;
  wire [{outputs}:0] o;
  assign q = held[0];
  always @(posedge clk) begin
    inputs <= {{inputs, d}};
    outputs <= o;
    count <= count + 1;
    held <= count == 0 ? outputs : held >> 1;
  end
  gradloom design (.clk(clk), .rst(rst){ports});
endmodule
"""


def wrapper(verilog: str) -> str:
    """A top with four pins, from the Verilog of the design's top."""
    header = verilog[verilog.index("\nmodule gradloom(") :]
    found = re.findall(r"^  (input|output) (?:\[(\d+):0\] )?(\w+);$", header[: header.index("endmodule")], re.M)
    at, ports = {"input": 0, "output": 0}, ""
    for way, high, name in found:
        if name in ("clk", "rst"):
            continue
        bits = int(high or 0) + 1
        ports += f",\n    .{name}({'inputs' if way == 'input' else 'o'}[{at[way]} +: {bits}])"
        at[way] += bits
    return WRAPPER.format(inputs=at["input"] - 1, outputs=at["output"] - 1, ports=ports)


def measured(folder: Path, seed: int, minutes: float) -> dict:
    """Results of place-and-route."""
    generate = [sys.executable, "-m", "gradloom", "generate", PRESET, "-o", str(folder / "design")]
    subprocess.run(generate, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    design = folder / "design"
    (folder / "wrapper.v").write_text(wrapper((design / "rtl" / "gradloom.v").read_text("utf-8")), encoding="ascii")
    sources = [
        f"design/{'synth' if (design / 'synth' / path.name).is_file() else 'rtl'}/{path.name}"
        for path in sorted((design / "rtl").glob("*.v"))
    ]
    settings = SETTINGS | {"seed": seed}
    print("synthesis", flush=True)
    synthesise(folder, [*sources, "wrapper.v"], "wrapper")
    tell_router(folder / "build" / "netlist.json", "wrapper")
    print("place-and-route", flush=True)
    end = time.monotonic() + 60 * minutes

    def watch() -> None:
        if time.monotonic() > end:
            raise FlowError(f"place-and-route did not end within {minutes:g} minutes; its log:\n{_tail(folder)}")

    command = route_command(settings, "--lpf-allow-unconstrained", "--placer", "heap", "--router", "router2")
    tool(command, folder, watch=watch).action()
    report = json.loads((folder / "build" / "report.json").read_text(encoding="utf-8"))
    print("\n".join(_clocks(folder)))
    return summary(report, find("ulx3s"), settings)


def _lines(folder: Path) -> list[str]:
    return (folder / "build" / "place.log").read_text(encoding="utf-8", errors="replace").splitlines()


def _tail(folder: Path) -> str:
    return "\n".join([*_clocks(folder), *_lines(folder)[-5:]])


def _clocks(folder: Path) -> list[str]:
    return [line for line in _lines(folder) if "Max frequency for clock" in line]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60, help="place-and-route is stopped behind so many")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        try:
            found = measured(Path(name), asked.seed, asked.minutes)
        except FlowError as error:
            sys.exit(str(error))
    print(json.dumps(found | {"worst_path": []}))
    for step in sorted(found["worst_path"], key=lambda step: -step["ns"])[:6]:
        print(f"    {step['ns']:.2f} ns {step['kind']}: {step['from']} to {step['to']}")


if __name__ == "__main__":
    main()
