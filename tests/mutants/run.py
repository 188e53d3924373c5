"""Finds out which single changes of the sources no test notices.

    python -m tests.mutants.run rtl/shell --count 20 -o build/mutants.json

draws changes over the files of rooms and runs, for each, the tests of its own room in a copy of the tree: first those
of the file's name. A failure, or a run that takes longer than its limit, has found the change. Runs that are named by
the same output are continued. What lived is printed; exit code 3 if the share that was found is below ``--least``.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .changes import Change, changes_of

ROOT = Path(__file__).resolve().parents[2]
#: Sources that are changed, unless others are named.
ROOMS = ("rtl", "sim", "firmware", "src/gradloom", "boards")
_ENDINGS = (".py", ".c", ".v")
#: Tests that compare sources with a sum of them: they would find any change.
_LEFT_OUT = ("tests/firmware/soc/test_soc_image.py",)
#: Seconds beyond three times what the unchanged tests take.
_MORE = 60


def room_of(path: Path, root: Path = ROOT) -> list[str]:
    """Tests of a source's room, those with the source's name first."""
    parts = [part for part in path.parent.parts if part not in ("src", "gradloom", "rtl")]
    room = root / "tests"
    for part in parts:
        if not (room / part).is_dir():
            break
        room = room / part
    if room == root / "tests":
        raise ValueError(f"{path}: there is no folder of tests of its room")
    named = sorted(room.rglob(f"test_{path.stem}*.py"))
    return [each.relative_to(root).as_posix() for each in (*named, room)]


def drawn(rooms: Sequence[str], count: int, seed: int, root: Path = ROOT) -> list[Change]:
    """Changes of ``rooms``, none twice: a file by chance, a kind of its changes, and one of those."""
    listed = subprocess.run(["git", "ls-files", "--", *rooms], cwd=root, capture_output=True, text=True, check=True)
    files = [Path(each) for each in listed.stdout.splitlines() if each.endswith(_ENDINGS)]
    found = {path: changes_of(root, path) for path in files if not (root / path).is_symlink()}
    dice, made = random.Random(seed), list[Change]()
    while len(made) < count and any(found.values()):
        left = found[dice.choice([path for path, each in found.items() if each])]
        kind = dice.choice(sorted({each.kind for each in left}))
        made.append(dice.choice([each for each in left if each.kind == kind]))
        left.remove(made[-1])
    return made


class Bench:
    """A copy of the tree in which changes are made one at a time."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self.folder = folder
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True)
        for name in filter(None, listed.stdout.split("\0")):
            source, target = root / name, folder / name
            if source.is_symlink() or source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        self.took: dict[tuple[str, ...], float] = {}

    def tested(self, tests: Sequence[str], limit: float | None = None) -> str:
        """``lived``, ``failed`` or ``hung``."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
        command += [f"--deselect={each}" for each in _LEFT_OUT]
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                return "hung"
        return "lived" if code in (0, 5) else "failed"

    def limit(self, tests: Sequence[str]) -> float:
        """Seconds that a run with a change may take; refuses tests that fail without one."""
        key = tuple(tests)
        if key not in self.took:
            start = time.monotonic()
            if self.tested(tests) != "lived":
                raise ValueError(f"{' '.join(tests)}: fails without a change")
            self.took[key] = time.monotonic() - start
        return 3 * self.took[key] + _MORE

    def judge(self, change: Change) -> str:
        """What the tests of a change's room say of it."""
        file, tests = self.folder / change.path, room_of(change.path, self.folder)
        own = file.read_text(encoding="utf-8")
        limit = self.limit(tests[-1:])
        try:
            file.write_text(change.made(own), encoding="utf-8")
            # Tests with the file's name, then all of the room.
            for part in [tests[:-1], tests[-1:]] if tests[:-1] else [tests]:
                if (found := self.tested(part, limit)) != "lived":
                    return found
            return "lived"
        finally:
            file.write_text(own, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("rooms", nargs="*", default=ROOMS, help="Files or folders of sources.")
    parser.add_argument("--count", type=int, default=20, help="Changes.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--least", type=float, default=0.95, help="Share that must be found.")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/mutants.json"))
    asked = parser.parse_args(arguments)
    made = drawn(asked.rooms, asked.count, asked.seed)
    told: dict[str, Any] = json.loads(asked.output.read_text()) if asked.output.is_file() else {}
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        bench = Bench(Path(folder))
        for number, change in enumerate(made, start=1):
            name = str(change)
            if name not in told:
                told[name] = bench.judge(change)
                asked.output.write_text(json.dumps(told, indent=1) + "\n")
            print(f"{number} of {len(made)}: {told[name]}: {name}", flush=True)
    lived = [str(each) for each in made if told[str(each)] == "lived"]
    share = 1 - len(lived) / max(1, len(made))
    print(f"{len(made) - len(lived)} of {len(made)} changes were found, {share:.1%}")
    for name in lived:
        print(f"lived: {name}")
    return 0 if share >= asked.least else 3


if __name__ == "__main__":
    sys.exit(main())
