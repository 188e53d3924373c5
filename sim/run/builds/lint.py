"""Lints a generated design with Verilator.

``python -m gradloom.sim.run.builds.lint DIR``
"""

import sys
from pathlib import Path

from .runner import lint


def main(directory: Path) -> int:
    """Prints the findings; the exit code says whether there are any."""
    files = sorted((directory / "rtl").glob("*.v"))
    if not files:
        raise SystemExit(f"{directory}: has no rtl/*.v; name a directory that gradloom generate made")
    found = lint(files, top="gradloom")
    print(found or f"{len(files)} files, {sum(file.stat().st_size for file in files):,} bytes: nothing found")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
