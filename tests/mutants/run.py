"""Finds out which single changes of the sources no test notices.

    python -m tests.mutants.run rtl/shell --count 20 -o build/mutants.jsonl

draws changes over the files of rooms and runs, for each, the tests of its own room in a copy of the tree, a file at a
time: first those that name the source, the most often first, then the others. Of Python each file runs once without a
change, for the time that it takes and for the statements of Python that it runs: a change elsewhere is none of its
matter. Of firmware that runs from an image, that is built again, and the tests that run it count, too. The first
failure, or a run that takes longer than its limit, has found the change. Each verdict is appended to the output, a line
of JSON, and holds for later runs: what was found as long as its source stays, what lived as long as the tests stay,
too. What is not found within ``--seconds`` is undecided. Changes that ``equivalent.toml`` lists are not run. What lived
is printed; exit code 3 if the share that was found, of those that are decided and not listed, is below ``--least``.
"""

import argparse
import ast
import hashlib
import json
import math
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

from coverage import CoverageData

from gradloom.firmware.chip.soc_image import IMAGES, sources

from .changes import Change, changes_of

ROOT = Path(__file__).resolve().parents[2]
#: Sources that are changed, unless others are named.
ROOMS = ("rtl", "sim", "firmware", "src/gradloom", "boards")
_ENDINGS = (".py", ".c", ".v")
#: Changes that no test can notice, and why.
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
#: Rooms of tests for folders that have none of their own.
_TOP = {"rtl": "emit", "src/gradloom": "cli", "firmware/jobs": "jobs", "firmware/linux": "jobs"}
#: Seconds beyond three times what the unchanged tests take, and of tests that are not timed yet.
_MORE, _FIRST = 60, 900

#: Tests that run the images of the firmware, by what is called main in them, the quickest first.
_RUN = {
    "soc": (
        "tests/firmware/chip/test_deliver.py",
        "tests/systems/text/card/test_trial.py",
        "tests/systems/text/card/test_power.py",
        "tests/soc",
        "tests/engines/linear/test_soc.py",
        "tests/systems/text/card",
    ),
    "tuner": ("tests/boards/ulx3s/test_data.py",),
}
#: Tests of all sources below a folder.
_WHOLE = {"rtl": (Path("tests/emit/test_documented_ports.py"),)}


def room_of(path: Path, root: Path = ROOT) -> Path:
    """The folder with the tests of a source's room, relative to ``root``."""
    top = _TOP.get(path.parent.as_posix())
    parts = [top] if top else [part for part in path.parent.parts if part not in ("src", "gradloom", "rtl")]
    room = root / "tests"
    for part in parts:
        if not (room / part).is_dir():
            break
        room = room / part
    if room == root / "tests":
        raise ValueError(f"{path}: there is no folder of tests of its room")
    return room.relative_to(root)


def images_of(path: Path) -> list[str]:
    """Images of the firmware that a source is part of."""
    return [main for main in IMAGES if path.parts[0] == "firmware" and path.name in sources(main)]


def engine_of(path: Path, root: Path = ROOT) -> list[Path]:
    """Tests of the engine whose time or whose reference a source is: an engine has one name in all its places."""
    if path.parent.as_posix() not in ("sim/time", "sim/reference"):
        return []
    named = (each for each in (root / "tests/engines").glob("*/") if f"{path.stem}_".startswith(f"{each.name}_"))
    return sorted(file for each in named for file in each.rglob("test_*.py"))


def importing(path: Path, root: Path = ROOT) -> list[Path]:
    """Tests that import a module by its name."""
    parts = path.with_suffix("").parts
    name = re.compile(r"\bgradloom\." + r"\.".join(parts[2 * (parts[0] == "src") :]) + r"\b")
    files = sorted((root / "tests").rglob("test_*.py")) if path.suffix == ".py" else []
    return [each for each in files if name.search(each.read_text())]


def files_of(path: Path, root: Path = ROOT) -> list[str]:
    """Files of tests of a source's room: its own, those that name it, the others.

    Then those elsewhere that import it, those of its engine, those of all such sources, and those that run an image.
    """
    # Of C and Verilog a file's name: all tests speak of gradloom, and few of gradloom.c.
    word = re.compile(rf"\b{path.stem}" + (r"\b" if path.suffix == ".py" else r"""(\.[cv]\b|["'])"""))

    def far(file: Path) -> tuple[bool, int, Path]:
        return not file.stem.startswith(f"test_{path.stem}"), -len(word.findall(file.read_text())), file

    running = [root / each for main in images_of(path) for each in _RUN[main]]
    found = sorted((root / room_of(path, root)).rglob("test_*.py"), key=far)
    found += importing(path, root) + engine_of(path, root)
    found += [root / each for each in _WHOLE.get(path.parts[0], ()) if (root / each).is_file()]
    for each in running:
        found += sorted(each.glob("test_*.py")) if each.is_dir() else [each]
    return list(dict.fromkeys(each.relative_to(root).as_posix() for each in found))


def lines_of(change: Change, root: Path = ROOT) -> tuple[str, str]:
    """The line of a change, and what it becomes."""
    text = (root / change.path).read_text(encoding="utf-8")
    now, then = (each.splitlines()[change.line - 1].strip() for each in (text, change.made(text)))
    return now, then


def statement_of(text: str, line: int) -> range:
    """Lines of the innermost statement of Python that has ``line``, without its body's."""
    found = range(line, line + 1)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and node.end_lineno is not None and node.lineno <= line <= node.end_lineno:
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno
            # Of nested statements the walk meets the inner one later.
            if line <= max(last, node.lineno):
                found = range(node.lineno, max(last, node.lineno) + 1)
    return found


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
        folders = {room_of(change.path, self._root), *(Path(each).parent for each in files_of(change.path, self._root))}
        files = {each for folder in folders for each in (self._root / folder).rglob("*")}
        return _digest(sorted(each for each in files if each.suffix in (*_ENDINGS, ".cpp", ".sv")))

    def told(self, change: Change) -> str | None:
        """What holds of a change without a run."""
        found = self._told.get(self._key(change))
        if found is None or (found["found"] == "lived" and found["tests"] != self._tests(change)):
            return None
        return found["found"]

    def tell(self, change: Change, found: str, test: str = "") -> None:
        """Appends a verdict; ``test``: what found it."""
        name, start, source = key = self._key(change)
        each = {"change": name, "start": start, "source": source, "tests": self._tests(change), "found": found}
        each["by"] = test
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
        #: Seconds that tests take without a change, and the lines of sources that they run; images of the firmware as
        #: built without one.
        self.took: dict[str, float] = {}
        self._lines: dict[str, dict[str, set[int]]] = {}
        self._images: dict[str, str] = {}
        # One thread for matrix products, as in `make test`: bounds of CPU time are those of one.
        self._environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        self._environment["PYTHONPATH"] = str(folder / "src")

    def tested(self, tests: str, limit: float | None = None, lines: Path | None = None) -> tuple[str, str]:
        """``lived``, ``failed`` or ``hung``, and the first test that failed; ``lines``: a folder for what is run."""
        with tempfile.TemporaryDirectory() as cache:
            command = ["-m", "pytest", "-q", "-x", "-o", f"cache_dir={cache}", tests]
            if lines:
                options = lines / "options"
                options.write_text(
                    f"[run]\nsource = {self.folder}\nparallel = true\npatch = subprocess\ndata_file = {lines}/data\n"
                )
                command = ["-m", "coverage", "run", f"--rcfile={options}", *command]
            with subprocess.Popen(
                [sys.executable, *command],
                cwd=self.folder,
                env=self._environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            ) as process:
                try:
                    code = process.wait(limit)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    return "hung", tests
                except BaseException:
                    os.killpg(process.pid, signal.SIGKILL)
                    raise
            if code in (0, 5):
                return "lived", ""
            failed = Path(cache, "v/cache/lastfailed")
            return "failed", next(iter(json.loads(failed.read_text())), tests) if failed.is_file() else tests

    def timed(self, tests: str) -> None:
        """Runs tests without a change, for :meth:`limit` and :meth:`reached`; refuses those that fail."""
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            if self.tested(tests, lines=Path(folder))[0] != "lived":
                raise ValueError(f"{tests}: fails without a change")
            self.took[tests] = time.monotonic() - start
            found = self._lines[tests] = {}
            for each in Path(folder).glob("data*"):
                data = CoverageData(str(each))
                data.read()
                for name in data.measured_files():
                    found.setdefault(name, set()).update(data.lines(name) or ())

    def limit(self, tests: str) -> float:
        """Seconds that a run with a change may take."""
        return 3 * self.took[tests] + _MORE if tests in self.took else _FIRST

    def reached(self, change: Change, tests: str) -> bool:
        """Whether tests run the statement of a change; of other languages than Python that is not known.

        Tests that are not timed yet run without a change first.
        """
        file = (self.folder / change.path).resolve()
        if file.suffix != ".py":
            return True
        if tests not in self.took:
            self.timed(tests)
        lines = self._lines[tests].get(str(file), set())
        return not lines.isdisjoint(statement_of(file.read_text(encoding="utf-8"), change.line))

    def judge(self, change: Change, seconds: float = math.inf) -> tuple[str, str]:
        """What tests say of a change, and which one: ``undecided`` where nothing has found it within ``seconds``.

        What tests take without a change, for :meth:`reached`, does not count.
        """
        left = seconds
        for tests in files_of(change.path, self.folder):
            if not self.reached(change, tests):
                continue
            start, limit = time.monotonic(), self.limit(tests)
            found, test = self.changed(change, tests, min(left, limit))
            if found == "hung" and left < limit:
                return "undecided", ""
            left -= time.monotonic() - start
            if found == "hung":
                # The machine may have become slow: so they say without the change.
                self.timed(tests)
                if (longer := self.limit(tests)) > limit:
                    found, test = self.changed(change, tests, longer)
            elif found == "failed" and (self.folder / test.partition("::")[0]).is_file() and tests not in self.took:
                self.timed(tests)
            if found != "lived":
                return found, test
        return "lived", ""

    def changed(self, change: Change, tests: str, limit: float) -> tuple[str, str]:
        """What tests say of a change within ``limit`` seconds, as :meth:`tested` does.

        Images that the source is part of are built with it; what a compiler refuses has failed.
        """
        file, images = self.folder / change.path, images_of(change.path)
        for main in images:
            if main not in self._images and not self._built(main):
                raise ValueError(f"the image of {main} is not built without a change")
            self._images.setdefault(main, self._image(main).read_text(encoding="ascii"))
        own = file.read_text(encoding="utf-8")
        try:
            file.write_text(change.made(own), encoding="utf-8")
            for main in images:
                if not self._built(main):
                    return "failed", f"the compiler of {main}"
            return self.tested(tests, limit)
        finally:
            file.write_text(own, encoding="utf-8")
            for main in images:
                self._image(main).write_text(self._images[main], encoding="ascii")

    def _image(self, main: str) -> Path:
        return self.folder / "firmware/chip" / IMAGES[main].name

    def _built(self, main: str) -> bool:
        command = [sys.executable, "-m", "gradloom.firmware.chip.soc_image", "--main", main]
        done = subprocess.run(command, cwd=self.folder, env=self._environment, capture_output=True, check=False)
        return done.returncode == 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("rooms", nargs="*", default=ROOMS, help="Files or folders of sources.")
    parser.add_argument("--count", type=int, default=20, help="Changes.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=math.inf, help="Most for a change.")
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
            found, test = f"equivalent ({why})" if why else verdicts.told(change), ""
            if found is None:
                found, test = bench.judge(change, asked.seconds)
                if found != "undecided":
                    verdicts.tell(change, found, test)
            counted += not why and found != "undecided"
            if found == "lived":
                lived.append(str(change))
            print(f"{number} of {len(made)}: {found}{test and f' ({test})'}: {change}", flush=True)
    share = 1 - len(lived) / max(1, counted)
    print(f"{counted - len(lived)} of {counted} changes were found, {share:.1%}")
    for name in lived:
        print(f"lived: {name}")
    return 0 if share >= asked.least else 3


if __name__ == "__main__":
    sys.exit(main())
