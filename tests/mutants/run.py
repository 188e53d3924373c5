"""Finds out which single changes of the sources no test notices.

    python -m tests.mutants.run rtl/shell --count 20 -o build/mutants.jsonl

draws changes over the files of rooms and runs, for each, the tests of its own room in a copy of the tree: first those
that name the file, then the others. A failure, or a run that takes longer than its limit, has found the change. Each
verdict is appended to the output, a line of JSON, and holds for later runs: what was found as long as its source stays,
what lived as long as the tests stay, too. Changes that ``equivalent.toml`` lists are not run. What lived is printed;
exit code 3 if the share that was found, of those that are not listed, is below ``--least``.
"""

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .changes import Change, changes_of

ROOT = Path(__file__).resolve().parents[2]
#: Sources that are changed, unless others are named.
ROOMS = ("rtl", "sim", "firmware", "src/gradloom", "boards")
_ENDINGS = (".py", ".c", ".v")
#: Changes that no test can notice, and why.
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
#: Tests that compare sources with a sum of them: they would find any change.
_LEFT_OUT = ("tests/firmware/chip/test_soc_image.py",)
#: Rooms of tests for folders that have none of their own.
_TOP = {"rtl": "emit", "src/gradloom": "cli", "firmware/jobs": "jobs", "firmware/linux": "jobs"}
#: Seconds beyond three times what the unchanged tests take.
_MORE = 60


def room_of(path: Path, root: Path = ROOT) -> list[str]:
    """Tests of a source's room, those that name the source first, and the room last."""
    top = _TOP.get(path.parent.as_posix())
    parts = [top] if top else [part for part in path.parent.parts if part not in ("src", "gradloom", "rtl")]
    room = root / "tests"
    for part in parts:
        if not (room / part).is_dir():
            break
        room = room / part
    if room == root / "tests":
        raise ValueError(f"{path}: there is no folder of tests of its room")
    own = sorted(room.rglob(f"test_{path.stem}*.py"))
    # Of C and Verilog a file's name: all tests speak of gradloom, and few of gradloom.c.
    word = re.compile(rf"\b{path.stem}" + (r"\b" if path.suffix == ".py" else r"""(\.[cv]\b|["'])"""))
    named = own + [
        each for each in sorted(room.rglob("test_*.py")) if each not in own and word.search(each.read_text())
    ]
    return [each.relative_to(root).as_posix() for each in (*named, room)]


def lines_of(change: Change, root: Path = ROOT) -> tuple[str, str]:
    """The line of a change, and what it becomes."""
    text = (root / change.path).read_text(encoding="utf-8")
    now, then = (each.splitlines()[change.line - 1].strip() for each in (text, change.made(text)))
    return now, then


def equivalents() -> dict[tuple[str, str, str], str]:
    """Why no test can notice a change, by its file, the line and what this becomes."""
    listed = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("change", ())
    return {(each["path"], each["line"], each["becomes"]): each["why"] for each in listed}


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for each in files:
        digest.update(each.read_bytes())
    return digest.hexdigest()[:16]


class Verdicts:
    """Verdicts of earlier runs, and of this one, in a file of lines."""

    def __init__(self, path: Path, root: Path = ROOT) -> None:
        self._path, self._root = path, root
        self._told: dict[tuple[str, int, str], dict[str, Any]] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            each = json.loads(line)
            self._told[each["change"], each["start"], each["source"]] = each

    def _key(self, change: Change) -> tuple[str, int, str]:
        # A line may have a change of one name at several places.
        return str(change), change.start, _digest([self._root / change.path])

    def _tests(self, change: Change) -> str:
        room = self._root / room_of(change.path, self._root)[-1]
        return _digest(sorted(each for each in room.rglob("*") if each.suffix in (".py", *_ENDINGS, ".cpp", ".sv")))

    def told(self, change: Change) -> str | None:
        """What holds of a change without a run."""
        found = self._told.get(self._key(change))
        if found is None or (found["found"] == "lived" and found["tests"] != self._tests(change)):
            return None
        return found["found"]

    def tell(self, change: Change, found: str) -> None:
        """Appends a verdict."""
        name, start, source = key = self._key(change)
        each = {"change": name, "start": start, "source": source, "tests": self._tests(change), "found": found}
        self._told[key] = each
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(each) + "\n")


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
        folder.mkdir(exist_ok=True)
        # A test that runs as another user reads it.
        folder.chmod(0o755)
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True)
        for name in filter(None, listed.stdout.split("\0")):
            source, target = root / name, folder / name
            if source.is_symlink() or source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        self.took: dict[tuple[str, ...], float] = {}

    def tested(self, tests: Sequence[str], limit: float | None = None) -> str:
        """``lived``, ``failed`` or ``hung``."""
        # One thread for matrix products, as in `make test`: bounds of CPU time are those of one.
        environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        environment["PYTHONPATH"] = str(self.folder / "src")
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
                os.killpg(process.pid, signal.SIGKILL)
                return "hung"
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
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
        *named, room = room_of(change.path, self.folder)
        # Tests with the file's name, then the others of the room.
        for part in filter(None, (named, [room, *(f"--ignore={each}" for each in named)])):
            limit = self.limit(part)
            found = self.changed(change, part, limit)
            if found == "hung":
                # The machine may have become slower: so the tests say without the change.
                del self.took[tuple(part)]
                if (longer := self.limit(part)) > limit:
                    found = self.changed(change, part, longer)
            if found != "lived":
                return found
        return "lived"

    def changed(self, change: Change, tests: Sequence[str], limit: float) -> str:
        """What tests say of a change within ``limit`` seconds."""
        file = self.folder / change.path
        own = file.read_text(encoding="utf-8")
        try:
            file.write_text(change.made(own), encoding="utf-8")
            return self.tested(tests, limit)
        finally:
            file.write_text(own, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("rooms", nargs="*", default=ROOMS, help="Files or folders of sources.")
    parser.add_argument("--count", type=int, default=20, help="Changes.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--least", type=float, default=0.95, help="Share that must be found.")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/mutants.jsonl"))
    asked = parser.parse_args(arguments)
    made = drawn(asked.rooms, asked.count, asked.seed)
    # Who stops this stops the tests, too, and leaves no copy behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    lived, counted, known = list[str](), 0, equivalents()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        bench = Bench(Path(folder))
        verdicts = Verdicts(asked.output, bench.folder)
        for number, change in enumerate(made, start=1):
            why = known.get((change.path.as_posix(), *lines_of(change, bench.folder)))
            found = f"equivalent ({why})" if why else verdicts.told(change)
            if found is None:
                found = bench.judge(change)
                verdicts.tell(change, found)
            counted += not why
            if found == "lived":
                lived.append(str(change))
            print(f"{number} of {len(made)}: {found}: {change}", flush=True)
    share = 1 - len(lived) / max(1, counted)
    print(f"{counted - len(lived)} of {counted} changes were found, {share:.1%}")
    for name in lived:
        print(f"lived: {name}")
    return 0 if share >= asked.least else 3


if __name__ == "__main__":
    sys.exit(main())
