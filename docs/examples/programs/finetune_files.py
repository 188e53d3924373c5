"""Lists the project files that a fine-tune calls.

``python docs/examples/programs/finetune_files.py [PRESET] [OPTION...]``

Runs ``gradloom finetune PRESET --engine reference OPTION...`` under a profiler hook and prints, as JSON:

- ``files``: project files with a function that was called, the hardware's folders aside;
- ``changes``: how often the folder changes along these files, in the order in which each was first entered;
- ``longest``: lines of the longest of them, and which it is.

Modules and class bodies that only run when they are imported do not count, nor do functions that run while another
module is imported: what is counted is the way of a request.
"""

import inspect
import json
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[3]
ROOMS = ("rtl", "sim", "boards", "firmware", "src")
#: Folders of components, which a fine-tune by the reference needs for layouts of commands only.
HARDWARE = tuple(f"rtl/{name}" for name in ("systolic", "stream", "units", "engines", "shell", "machines"))


class Entered:
    """A profiler hook that notes files.

    Their order is that in which a function of each is first called.
    """

    def __init__(self) -> None:
        self.files: list[str] = []
        self._known: dict[str, str | None] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_flags & inspect.CO_OPTIMIZED or code.co_name.startswith("<"):
            return
        name = self._known.setdefault(code.co_filename, _project_file(code.co_filename))
        if name is not None and name not in self.files and not _importing(frame):
            self.files.append(name)


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is just being imported."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__":
            return True
        frame = frame.f_back
    return False


def _project_file(name: str) -> str | None:
    path = Path(name).resolve()
    if not path.is_relative_to(ROOT) or path == Path(__file__).resolve():
        return None
    inside = path.relative_to(ROOT)
    return str(inside) if inside.parts[0] in ROOMS and not str(inside).startswith(HARDWARE) else None


def measured(preset: str, options: list[str]) -> dict[str, object]:
    """The figures of one fine-tune."""
    from gradloom.cli.main import main

    entered = Entered()
    with tempfile.TemporaryDirectory() as folder:
        sys.setprofile(entered)
        try:
            main(["finetune", preset, "--engine", "reference", "-o", f"{folder}/run", "--json", *options])
        except SystemExit as done:
            if done.code:
                raise
        finally:
            sys.setprofile(None)
    lines = {name: len((ROOT / name).read_text(encoding="utf-8").splitlines()) for name in entered.files}
    longest = max(lines, key=lambda name: lines[name])
    rooms = [str(Path(name).parent) for name in entered.files]
    return {
        "preset": preset,
        "files": len(entered.files),
        "changes": sum(a != b for a, b in pairwise(rooms)),
        "longest": {"file": longest, "lines": lines[longest]},
        "order": entered.files,
    }


if __name__ == "__main__":
    chosen, *more = sys.argv[1:] or ["instantft-kv260", "--limit", "40", "--epochs", "1"]
    result = measured(chosen, more)
    print(json.dumps(result, indent=2), file=sys.stderr)
