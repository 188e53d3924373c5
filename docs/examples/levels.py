"""Tables of docs/evidence/timing.md: levels and budgets of units.

``gradloom report DIR --json > REPORT``, then ``python docs/examples/levels.py REPORT...``.
"""

import json
import sys
from pathlib import Path


def table(report: dict) -> str:
    """A row a unit, the deepest first."""
    rows = sorted(report["units"].items(), key=lambda item: (-item[1]["levels"], item[0]))
    return "\n".join(
        [
            "| unit | levels | budget |",
            "| --- | --- | --- |",
            *(f"| `{name}` | {entry['levels']} | {entry['budget']} |" for name, entry in rows),
        ]
    )


if __name__ == "__main__":
    for path in sys.argv[1:]:
        print(table(json.loads(Path(path).read_text(encoding="utf-8"))), end="\n\n")
