"""Runs Yosys commands in a separate process."""

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

__all__ = ["Yosys", "YosysError", "run_yosys", "yosys_files"]

# A subprocess: pyosys changes how its process loads libraries.
_PROGRAM = """\
import sys
from pyosys import libyosys as ys
design = ys.Design()
for command in sys.stdin:
    ys.run_pass(command.rstrip(), design)
"""


def yosys_files() -> Path:
    """The folder of the package with Yosys.

    Its ``share`` has models of vendors' cells. Nothing is loaded.
    """
    spec = find_spec("pyosys")
    if spec is None or spec.origin is None:
        raise YosysError("pyosys is not installed: pip install pyosys")
    return Path(spec.origin).parent


class YosysError(ValueError):
    """A command failed; the message is Yosys' own."""


class Yosys:
    """A Yosys process with one design.

    Use it in a ``with``: the end of the block waits for the last command.

    :meth:`run` only sends; a command that fails is a :class:`YosysError` at the end of the block. ``folder``: what
    relative paths are relative to.
    """

    def __init__(self, folder: Path | None = None) -> None:
        # A file, not a pipe: nobody reads while commands are sent.
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            text=True,
            cwd=folder,
        )

    def run(self, commands: Iterable[str]) -> None:
        """Sends commands, which run in order."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("".join(f"{command}\n" for command in commands))
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # It has failed and ended; what it said is told at the end.

    def __enter__(self) -> "Yosys":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._log:
            if kind is not None:
                self._process.kill()
            try:
                self._process.communicate()
            except BaseException:
                # An interrupt: a pass may take minutes.
                self._process.kill()
                self._process.wait()
                raise
            if kind is None and self._process.returncode:
                self._log.seek(0)
                lines = self._log.read().decode(errors="replace").strip().splitlines() or ["no message"]
                raise YosysError("Yosys: " + "; ".join(_reason(lines)))


def _reason(lines: list[str]) -> list[str]:
    """The line with the error.

    Where a check failed, its findings stand before.
    """
    end = next((number for number, line in enumerate(lines) if line.startswith("ERROR")), len(lines) - 1)
    found = [number for number, line in enumerate(lines[:end]) if line.startswith("Warning: ")]
    if "check -assert" not in lines[end] or not found:
        return [lines[end]]
    first = lines[found[0] : (*found, end)[1]]
    return [line.strip().removeprefix("Warning: ") for line in first]


def run_yosys(commands: Iterable[str], folder: Path | None = None) -> None:
    """Runs Yosys commands and waits for them.

    :class:`YosysError` with its message if one fails.
    """
    with Yosys(folder) as yosys:
        yosys.run(commands)
