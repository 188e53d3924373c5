"""Clock of the mesh on an ECP5-85F, by place-and-route.

``python docs/examples/hardware/mesh_ecp5.py``

Operands of 18 x 16 bits, one multiplier a PE; 4 x 4, 8 x 8 and 12 x 12 PEs of the chip's 156 multipliers. Operands come
out of a shift register and results leave through one, so that a few pins do. Takes some minutes a size, the largest of
them more than half an hour by the first router.
"""

import argparse
import json
import tempfile
from pathlib import Path

from gradloom.boards import find
from gradloom.boards.ulx3s.tools import route_command, summary, synthesise, tool
from gradloom.rtl.emit.verilog import convert
from gradloom.rtl.systolic.mesh import Mesh
from gradloom.rtl.systolic.pe import Precision

SETTINGS = {"device": "85k", "package": "CABGA381", "speed": 6, "mhz": 150}
PRECISION = Precision(x=18, w=16)

WRAPPER = """\
module wrapper (input clk, input rst, input d, output q);
  reg [{inputs}:0] operands = 0;
  reg [{outputs}:0] results = 0;
  wire [{outputs}:0] o;
  wire valid;
  assign q = results[0];
  always @(posedge clk) begin
    operands <= {{operands, d}};
    results <= valid ? o : results >> 1;
  end
  mesh mesh (.clk(clk), .rst(rst), .i_payload(operands[{x}:0]), .i_valid(operands[{x} + 1]), .i_ready(),
    .w_payload(operands[{inputs}:{x} + 3]), .w_valid(operands[{x} + 2]), .w_ready(),
    .o_payload(o), .o_valid(valid), .o_ready(1'b1));
endmodule
"""


def measured(size: int, seed: int, placer: str, router: str) -> dict:
    """Results of place-and-route for a mesh of ``size`` rows and columns."""
    emission = convert(Mesh(rows=size, columns=size, precision=PRECISION), name="mesh", family="ecp5")
    x, w, o = size * PRECISION.x + 1, size * PRECISION.w, size * PRECISION.sum + 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        emission.write(folder)
        (folder / "wrapper.v").write_text(WRAPPER.format(inputs=x + w + 1, outputs=o - 1, x=x - 1), encoding="ascii")
        sources = [f"{'synth' if module in emission.synth else 'rtl'}/{module}.v" for module in emission.files]
        settings = SETTINGS | {"seed": seed}
        synthesise(folder, [*sources, "wrapper.v"], "wrapper")
        command = route_command(settings, "--lpf-allow-unconstrained", "--placer", placer, "--router", router)
        tool(command, folder).action()
        report = json.loads((folder / "build" / "report.json").read_text(encoding="utf-8"))
    return summary(report, find("ulx3s"), settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 8, 12])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--placer",
        choices=("heap", "static"),
        default="heap",
        help="the first finds shorter longest ways, the second less wire in all",
    )
    parser.add_argument(
        "--router",
        choices=("router1", "router2"),
        default="router1",
        help="the first finds faster ways, the second finds them in less time",
    )
    asked = parser.parse_args()
    first = None
    for size in asked.sizes:
        found = measured(size, asked.seed, asked.placer, asked.router)
        first = first or found["fmax_mhz"]
        use = found["utilisation"]
        print(
            f"{size} x {size}: {found['fmax_mhz']:.1f} MHz ({100 * (found['fmax_mhz'] / first - 1):+.1f} %), "
            f"{use['lut']['used']:,} LUT, {use['ff']['used']:,} FF, {use['mult18']['used']} multipliers",
            flush=True,
        )
        longest = sorted(found["worst_path"], key=lambda step: -step["ns"])[:3]
        for step in longest:
            print(f"    {step['ns']:.2f} ns {step['kind']}: {step['from']} to {step['to']}")


if __name__ == "__main__":
    main()
