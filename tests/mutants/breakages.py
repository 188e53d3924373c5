"""Breaks what units are for, one after another, and runs the test that must find it.

    python -m tests.mutants.breakages rtl/shell firmware

``breakages.toml`` says of each what no longer holds, the file, its text, what this becomes, and the test. Unlike a
drawn change, each takes away a part of the function that its unit promises. Without a folder all are made. What lived
is printed; exit code 3 then.
"""

import argparse
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .changes import Change
from .run import ROOT, Bench

LIST = Path(__file__).with_name("breakages.toml")


@dataclass(frozen=True)
class Breakage:
    """``old`` of a file becomes ``new``: ``what`` says which function is gone, ``test`` finds it."""

    what: str
    path: str
    old: str
    new: str
    test: str

    def change(self, root: Path = ROOT) -> Change:
        """As a change of the file; :class:`ValueError` unless the text is there once."""
        text = (root / self.path).read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"{self.path}: has {self.old!r} {text.count(self.old)} times, must have it once")
        start = text.index(self.old)
        return Change(Path(self.path), text.count("\n", 0, start) + 1, start, self.old, self.new, "function")


def listed() -> list[Breakage]:
    """All of them, in the order of the list."""
    return [Breakage(**each) for each in tomllib.loads(LIST.read_text(encoding="utf-8"))["breakage"]]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folders", nargs="*", default=[""], help="Files or folders of sources.")
    asked = parser.parse_args(arguments)
    chosen = [each for each in listed() if each.path.startswith(tuple(asked.folders))]
    lived = []
    with tempfile.TemporaryDirectory(prefix="breakages-") as folder:
        bench = Bench(Path(folder))
        for number, each in enumerate(chosen, start=1):
            if each.test not in bench.took:
                bench.timed(each.test)
            found, _ = bench.changed(each.change(), each.test, bench.limit(each.test))
            print(f"{number} of {len(chosen)}: {found}: {each.path}: {each.what} ({each.test})", flush=True)
            lived += [each] if found == "lived" else []
    print(f"{len(chosen) - len(lived)} of {len(chosen)} breakages were found")
    for each in lived:
        print(f"lived: {each.path}: {each.what}")
    return 3 if lived else 0


if __name__ == "__main__":
    sys.exit(main())
