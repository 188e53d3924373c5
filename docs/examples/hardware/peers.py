"""Compares gradloom with a textbook mesh and SCALE-Sim.

``python docs/examples/hardware/peers.py [area] [generation] [cycles] [published] [--json]``

- ``area``: a PE and a mesh of 8 x 8 by open synthesis, for both of AMD's families, beside a textbook mesh of the same
  operands in plain Verilog: one weight register, no streams. A minute or two.
- ``generation``: processor time and size of the Verilog of meshes from 8 x 8 to 64 x 64.
- ``cycles``: weight-stationary products by SCALE-Sim's formula, which loads a tile, then streams, then drains, and by
  ours, which load under compute: the stand-alone mesh by its own law, the machine of the preset edge-qlora-genesys2 by
  its forecast, both of which tests hold to simulated RTL. ``scale_sim.py`` beside this asks SCALE-Sim itself. No other
  generator of such Verilog was found on PyPI; SCALE-Sim is a model and makes none.
- ``published``: what papers say of themselves; nothing of it was measured here.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scale_sim import MESHES, TILES, TOKENS, formula, products

from gradloom.boards import find
from gradloom.boards.netlist.area import area
from gradloom.rtl.emit.verilog import emit
from gradloom.rtl.systolic.mesh import Mesh
from gradloom.rtl.systolic.pe import PE, Precision

PRECISION = Precision()

TEXTBOOK = """\
module textbook_pe (input clk, input load, input signed [{x}:0] x_i, output reg signed [{x}:0] x_o,
    input signed [{w}:0] w_i, output reg signed [{w}:0] w_o, input signed [{p}:0] p_i, output reg signed [{p}:0] p_o);
  reg signed [{w}:0] weight;
  always @(posedge clk) begin
    x_o <= x_i;
    w_o <= w_i;
    if (load) weight <= w_i;
    p_o <= p_i + x_i * weight;
  end
endmodule
"""
TEXTBOOK_MESH = """\
module textbook_mesh (input clk, input load, input [{rows}*{x1}-1:0] x, input [{columns}*{w1}-1:0] w,
    output [{columns}*{p1}-1:0] p);
  wire signed [{x}:0] across [0:{rows}*({columns}+1)-1];
  wire signed [{w}:0] weights [0:({rows}+1)*{columns}-1];
  wire signed [{p}:0] sums [0:({rows}+1)*{columns}-1];
  genvar r, c;
  generate
    for (r = 0; r < {rows}; r = r + 1) begin : row
      assign across[r*({columns}+1)] = x[r*{x1} +: {x1}];
      for (c = 0; c < {columns}; c = c + 1) begin : column
        textbook_pe pe (.clk(clk), .load(load), .x_i(across[r*({columns}+1)+c]), .x_o(across[r*({columns}+1)+c+1]),
          .w_i(weights[r*{columns}+c]), .w_o(weights[(r+1)*{columns}+c]),
          .p_i(sums[r*{columns}+c]), .p_o(sums[(r+1)*{columns}+c]));
      end
    end
    for (c = 0; c < {columns}; c = c + 1) begin : edge_of
      assign weights[c] = w[c*{w1} +: {w1}];
      assign sums[c] = 0;
      assign p[c*{p1} +: {p1}] = sums[{rows}*{columns}+c];
    end
  endgenerate
endmodule
"""

#: System, what it says of itself, where.
PUBLISHED = (
    ("InstantFT", "10 epochs of its fine-tune in 0.36 s on a KV260", "the InstantFT paper"),
    (
        "CDM-QTA",
        "64 x 64 INT8 PEs at 400 MHz; a choice of dataflow a product gains 1.27x over weight-stationary alone",
        "the CDM-QTA paper",
    ),
    ("FINN-GL", "a quantised LSTM in 4.3 ms at 150 MHz, 49.6 % of a ZCU104's LUTs", "the FINN-GL paper"),
)


def areas() -> list[dict[str, Any]]:
    """PE and mesh of 8 x 8, ours and textbook's."""
    rows = []
    numbers = {
        "x": PRECISION.x - 1,
        "w": PRECISION.w - 1,
        "p": PRECISION.sum - 1,
        "x1": PRECISION.x,
        "w1": PRECISION.w,
        "p1": PRECISION.sum,
        "rows": 8,
        "columns": 8,
    }
    for board in ("genesys2", "kv260"):
        family = find(board).family
        for name, make in (("PE", lambda: PE()), ("8 x 8 mesh", lambda: Mesh(rows=8, columns=8))):
            with tempfile.TemporaryDirectory() as folder:
                emit(make(), f"{folder}/ours", name="ours", family=family)
                ours = area(f"{folder}/ours", find(board))
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "rtl").mkdir()
                # A file holds all below its namesake.
                texts = [TEXTBOOK_MESH, TEXTBOOK] if "mesh" in name else [TEXTBOOK]
                module = "textbook_mesh" if "mesh" in name else "textbook_pe"
                text = "\n".join(each.format(**numbers) for each in texts)
                (Path(folder) / "rtl" / f"{module}.v").write_text(text, encoding="ascii")
                plain = area(folder, find(board))
            for who, found in (("gradloom", ours), ("textbook", plain)):
                rows.append(
                    {"what": name, "family": family, "of": who}
                    | {key: found["total"][key] for key in ("lut", "ff", "dsp")}
                    | {"levels": found["levels"]}
                )
    return rows


def generation() -> list[dict[str, Any]]:
    """Processor time of the whole command, and bytes.

    All its processes are counted together.
    """
    rows = []
    for size in (8, 16, 32, 64):
        with tempfile.TemporaryDirectory() as folder:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "gradloom",
                    "generate",
                    "mesh",
                    "--set",
                    f"rows={size}",
                    "--set",
                    f"cols={size}",
                    "-o",
                    f"{folder}/out",
                    "--json",
                ],
                capture_output=True,
                text=True,
                check=True,
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            rows.append(
                {
                    "mesh": f"{size} x {size}",
                    "processor_seconds": round(spent, 1),
                    "bytes": json.loads(done.stdout)["bytes"],
                }
            )
    return rows


def cycles() -> list[dict[str, Any]]:
    """Products by SCALE-Sim's formula and by ours."""
    from gradloom.preset import PRESETS
    from gradloom.sweeping.points import block_products
    from gradloom.systems.text.run.products import forecast_products

    config = PRESETS["edge-qlora-genesys2"].config
    ours = [(Mesh(rows=size, columns=size).cycles(TILES, m), "law of the mesh") for size, m in MESHES]
    ours += [
        (
            forecast_products(block_products(config, rank=0, tokens=tokens), config=config).total,
            "forecast, with memory and bus",
        )
        for tokens in TOKENS
    ]
    return [
        {
            "what": what,
            "macs_a_pe": sum(m * k * n for m, k, n in shapes) // (height * width),
            "scale_sim": sum(formula(*each, height, width) for each in shapes),
            "gradloom": found,
            "by": by,
        }
        for (what, shapes, height, width), (found, by) in zip(products(), ours, strict=True)
    ]


def published() -> list[dict[str, Any]]:
    """Published figures of other systems."""
    return [{"system": system, "says": says, "where": where} for system, says, where in PUBLISHED]


PARTS = {"area": areas, "generation": generation, "cycles": cycles, "published": published}


def markdown(rows: list[dict[str, Any]]) -> str:
    """A table."""
    lines = ["| " + " | ".join(name.replace("_", " ") for name in rows[0]) + " |", "| --- " * len(rows[0]) + "|"]
    lines += [
        "| " + " | ".join(f"{value:,}" if isinstance(value, int) else str(value) for value in row.values()) + " |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Prints tables in Markdown, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="all, unless named")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = {name: PARTS[name]() for name in asked.parts or PARTS}
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    for name, rows in found.items():
        print(f"{name}\n\n{markdown(rows)}\n", flush=True)


if __name__ == "__main__":
    main()
