"""Runs SCALE-Sim and compares it with its formula.

``python docs/examples/hardware/scale_sim.py [--json]`` takes two minutes.

It runs in an environment of its own, which uv makes and forgets: version 3.0.0 takes an array of one element for a
number, which numpy does not any more. Memories are large enough that nothing waits for them, as in the formula.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["MESHES", "TILES", "TOKENS", "formula", "products", "rows"]

#: What uv installs for the run.
PACKAGES = ("scalesim==3.0.0", "numpy<2.3")
#: Outputs and inputs of the linears of a block of SmolLM2-135M.
BLOCK = ((576, 576), (192, 576), (192, 576), (576, 576), (1536, 576), (1536, 576), (576, 1536))
#: Side of a mesh, and rows of activations of each of its :data:`TILES` tiles.
MESHES = ((8, 8), (16, 16), (16, 64))
TILES = 64
#: Of the block.
TOKENS = (16, 64)

CONFIG = """\
[general]
run_name = peers
[architecture_presets]
ArrayHeight : {height}
ArrayWidth : {width}
IfmapSramSzkB : 65536
FilterSramSzkB : 65536
OfmapSramSzkB : 65536
IfmapOffset : 0
FilterOffset : 10000000
OfmapOffset : 20000000
Bandwidth : 10
ReadRequestBuffer : 64
WriteRequestBuffer : 64
Dataflow : {dataflow}
[layout]
IfmapCustomLayout : False
IfmapSRAMBankBandwidth : 10
IfmapSRAMBankNum : 10
IfmapSRAMBankPort : 2
FilterCustomLayout : False
FilterSRAMBankBandwidth : 10
FilterSRAMBankNum : 10
FilterSRAMBankPort : 2
[sparsity]
SparsitySupport : false
[run_presets]
InterfaceBandwidth : CALC
UseRamulatorTrace : False
"""


def formula(m: int, k: int, n: int, rows: int, columns: int) -> int:
    """Cycles of a weight-stationary product, as SCALE-Sim counts them.

    The product is ``[m, k] x [k, n]``.
    """
    return -(-k // rows) * -(-n // columns) * (2 * rows + columns + m - 2) - 1


def products() -> Iterator[tuple[str, list[tuple[int, int, int]], int, int]]:
    """Name, products of ``m, k, n``, height and width of the array."""
    for size, m in MESHES:
        # 64 tiles: 8 x 8 of them.
        yield f"{TILES} tiles of {m} rows, mesh of {size} x {size}", [(m, 8 * size, 8 * size)], size, size
    for tokens in TOKENS:
        yield (
            f"seven linears of a SmolLM2-135M block, {tokens} tokens, array of 64 x 8",
            [(tokens, k, n) for n, k in BLOCK],
            64,
            8,
        )


def simulate(shapes: list[tuple[int, int, int]], height: int, width: int, dataflow: str = "ws") -> list[int]:
    """Cycles that SCALE-Sim says for each of the products ``m, k, n``.

    ``dataflow``: weight- or output-stationary, ``ws`` or ``os``.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.cfg").write_text(
            CONFIG.format(height=height, width=width, dataflow=dataflow), encoding="utf-8"
        )
        names = [f"product{index}" for index in range(len(shapes))]
        (folder / "products.csv").write_text(
            "Layer, M, N, K,\n"
            + "".join(f"{each}, {m}, {n}, {k},\n" for each, (m, k, n) in zip(names, shapes, strict=True)),
            encoding="utf-8",
        )
        # How the operands lie in memory: asked for, and of no importance without waits.
        (folder / "layout.csv").write_text(
            "Layer,\n" + "".join(f"{each}, {', '.join(['1'] * 13)},\n" for each in names), encoding="utf-8"
        )
        packages = [word for package in PACKAGES for word in ("--with", package)]
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "uv",
                "run",
                "--quiet",
                "--isolated",
                "--no-project",
                *packages,
                "python",
                "-m",
                "scalesim.scale",
                "-c",
                "config.cfg",
                "-t",
                "products.csv",
                "-l",
                "layout.csv",
                "-p",
                "out",
                "-i",
                "gemm",
                "-s",
                "N",
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"SCALE-Sim did not run: {done.stderr.strip().splitlines()[-1]}")
        (report,) = (folder / "out").rglob("COMPUTE_REPORT.csv")
        with report.open(encoding="utf-8", newline="") as file:
            return [int(float(row["Total Cycles"])) for row in csv.DictReader(file, skipinitialspace=True)]


def rows() -> list[dict[str, Any]]:
    """Each line of the table of cycles.

    It has the figure of SCALE-Sim, and its formula.
    """
    found = []
    for what, shapes, height, width in products():
        distinct = sorted(set(shapes))
        cycles = dict(zip(distinct, simulate(distinct, height, width), strict=True))
        found.append(
            {
                "what": what,
                "scale_sim": sum(cycles[each] for each in shapes),
                "formula": sum(formula(*each, height, width) for each in shapes),
            }
        )
    return found


def main() -> None:
    """Prints a line a product; exit code 1 if the formula is another's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = rows()
    if asked.json:
        print(json.dumps(found, indent=2))
    else:
        for each in found:
            print(f"{each['what']}: SCALE-Sim {each['scale_sim']:,}, formula {each['formula']:,}")
    sys.exit(any(each["scale_sim"] != each["formula"] for each in found))


if __name__ == "__main__":
    main()
