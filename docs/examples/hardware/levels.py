"""Writes docs/levels.json: levels of logic as reports count them.

``gradloom report DIR --json > REPORT``, then ``python docs/examples/hardware/levels.py DESIGN REPORT...``, where DESIGN
is a preset or a unit. The site shows them on docs/evidence/timing.md.
"""

import json
import sys
from pathlib import Path

LEVELS = Path(__file__).resolve().parents[2] / "levels.json"


def measured(report: dict) -> dict[str, int]:
    """Levels by unit, the deepest first."""
    rows = sorted(report["units"].items(), key=lambda item: (-item[1]["levels"], item[0]))
    return {name: entry["levels"] for name, entry in rows}


if __name__ == "__main__":
    known = json.loads(LEVELS.read_text(encoding="utf-8"))
    for design, path in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        known[design] = measured(json.loads(Path(path).read_text(encoding="utf-8")))
    LEVELS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8", newline="\n")
