"""Whether two checkouts generate the same hardware: every preset and unit, byte by byte.

``python tests/tools/same_verilog.py write DIR`` generates all of them with the checkout that the script lies in;
``… compare BEFORE AFTER`` says which files differ (exit code 3). Components that have other names in AFTER are given as
``--renamed OLD=NEW``: the files of BEFORE are compared as if they had been written with the new names.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

#: Compared: Verilog of simulation and of synthesis, and register maps. Board projects hold no hardware of ours.
KINDS = (".v", ".sv", ".xml", ".md", ".mem", ".hex")


def write(folder: Path) -> None:
    """Generates every preset and unit into a folder of its own."""
    names = []
    for what in ("presets", "units"):
        listed = subprocess.run(
            [sys.executable, "-m", "gradloom", "list", what, "--json"], capture_output=True, check=True
        )
        names += [each["name"] for each in json.loads(listed.stdout)]
    for name in names:
        print(f"generate {name}", file=sys.stderr)
        subprocess.run(
            [sys.executable, "-m", "gradloom", "generate", name, "-o", str(folder / name)],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def differing(before: Path, after: Path, renamed: dict[str, str]) -> list[str]:
    """A line for each file that is in one folder only, or differs."""

    def files(folder: Path) -> dict[str, Path]:
        return {
            _renamed(str(path.relative_to(folder)), renamed if folder is before else {}): path
            for path in sorted(folder.rglob("*"))
            if path.suffix in KINDS
        }

    old, new = files(before), files(after)
    lines = [f"only before: {name}" for name in old if name not in new]
    lines += [f"only after: {name}" for name in new if name not in old]
    lines += [
        f"differs: {name}"
        for name in old
        if name in new
        and _renamed(old[name].read_text(encoding="utf-8"), renamed) != new[name].read_text(encoding="utf-8")
    ]
    return lines + ([] if old else ["nothing to compare"])


def _renamed(text: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        text = re.sub(rf"\b{re.escape(old)}\b", new, text)
    return text


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    writer = verbs.add_parser("write")
    writer.add_argument("folder", type=Path)
    comparer = verbs.add_parser("compare")
    comparer.add_argument("before", type=Path)
    comparer.add_argument("after", type=Path)
    comparer.add_argument("--renamed", action="append", default=[], metavar="OLD=NEW")
    given = parser.parse_args()
    if given.verb == "write":
        write(given.folder)
        return 0
    lines = differing(given.before, given.after, dict(pair.split("=", 1) for pair in given.renamed))
    print("\n".join(lines) or "the same")
    return 3 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
