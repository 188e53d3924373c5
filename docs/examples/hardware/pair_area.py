"""LUTs a DSP slice of an array with two products each.

``python docs/examples/hardware/pair_area.py [--family xcup|xc7] [--rows 64] [--cols 32] [--json]``

Open synthesis of the array with its feet, packing and skew, without streams and sums over tiles. A minute or several.
"""

import argparse
import json
import tempfile
from pathlib import Path

from gradloom import boards
from gradloom.rtl.emit.verilog import emit
from gradloom.rtl.formats.pair import Pair
from gradloom.rtl.systolic.paired import PairedArray

BOARDS = {"xcup": "kv260", "xc7": "genesys2"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", choices=BOARDS, default="xcup")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--cols", type=int, default=32, help="results a cycle, two a slice")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    array = PairedArray(rows=asked.rows, columns=asked.cols, pair=Pair(Pair.APART[asked.family]))
    with tempfile.TemporaryDirectory() as folder:
        design = Path(folder) / "array"
        emit(array, design, name="paired", family=asked.family)
        found = boards.measure(boards.find(BOARDS[asked.family]), design)
    total = found["total"]
    row = {"lut": total["lut"], "ff": total["ff"], "dsp": total["dsp"], "levels": found["levels"]}
    row["lut_per_slice"] = round(total["lut"] / total["dsp"], 2)
    if asked.json:
        print(json.dumps(row, indent=2))
    else:
        print(
            f"{asked.rows}×{asked.cols} on {asked.family}: {row['dsp']} slices, {row['lut']:,} LUTs, "
            f"{row['lut_per_slice']} a slice, {row['ff']:,} flip-flops, {row['levels']} levels"
        )


if __name__ == "__main__":
    main()
