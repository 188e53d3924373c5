"""Area of processor, firmware memory, UART and SPI port.

``python docs/examples/hardware/soc_area.py``

By open synthesis, without the accelerator; a minute.
"""

import argparse
import json
import re
import tempfile
from collections import Counter
from pathlib import Path

from gradloom.firmware.chip.soc_image import IMAGE
from gradloom.rtl.emit.yosys import run_yosys
from gradloom.rtl.soc import soc_sources


def main() -> None:
    """Prints the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        # The memory's content is found beside the run.
        (Path(name) / IMAGE.name).write_bytes(IMAGE.read_bytes())
        run_yosys(
            [
                f"read_verilog {' '.join(str(path) for path in soc_sources())}",
                "synth_xilinx -family xc7 -top gradloom_soc -flatten -noiopad -noclkbuf -nowidelut",
                "write_json soc.json",
            ],
            folder=Path(name),
        )
        cells = json.loads((Path(name) / "soc.json").read_text(encoding="utf-8"))["modules"]["gradloom_soc"]["cells"]
    kinds = Counter(cell["type"] for cell in cells.values())
    found = {
        "lut": sum(n for kind, n in kinds.items() if re.match(r"LUT|INV|SRL", kind))
        + sum(4 * n for kind, n in kinds.items() if kind == "RAM32M"),
        "ff": sum(n for kind, n in kinds.items() if kind.startswith("FD")),
        "bram36": sum(
            n if kind.startswith("RAMB36") else n / 2 for kind, n in kinds.items() if kind.startswith("RAMB")
        ),
    }
    if asked.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"{found['lut']:,} LUTs, {found['ff']:,} flip-flops, {found['bram36']:g} block RAMs")


if __name__ == "__main__":
    main()
