"""Runs the tools of a board's flow, or shows their commands.

All tools are looked up before the first command.
"""

import dataclasses
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .programs import PROGRAMS, BoardProgramError, find_program, version


class FlowError(ValueError):
    """A flow cannot start, or one of its commands failed."""


class NoProjectError(FlowError):
    """A part of the board's project is not installed here.

    Nothing is written. The message names the part.
    """


class MissingToolError(FlowError):
    """A vendor tool is neither on PATH nor in a Python package.

    The message says which, and what to install.
    """

    def __init__(self, tools: Sequence[str]):
        self.tools = tuple(tools)
        super().__init__("; ".join(f"{tool} is not installed, or not on PATH: {PROGRAMS[tool].get}" for tool in tools))


@dataclasses.dataclass(frozen=True)
class FlowCommand:
    """A program, its arguments, and the folder to run it in.

    The folder is relative to the design's folder. ``explain``: what an exit code means, for a person.
    """

    args: tuple[str, ...]
    cwd: str = "."
    explain: Mapping[int, str] = dataclasses.field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        line = shlex.join(self.args)
        return line if self.cwd == "." else f"(cd {shlex.quote(self.cwd)} && {line})"


@dataclasses.dataclass(frozen=True)
class FlowStep:
    """A Python action between commands.

    It has the shell line that does the same.
    """

    text: str
    action: Callable[[], object]

    def __str__(self) -> str:
        return self.text


def _programs(steps: Sequence[FlowCommand | FlowStep]) -> dict[str, str | None]:
    """Paths of the tools that ``steps`` need, in order of use.

    None where one is missing.
    """
    return {step.args[0]: find_program(step.args[0]) for step in steps if isinstance(step, FlowCommand)}


def _trouble(programs: dict[str, str | None]) -> list[str]:
    """A line for each of the programs that are there and cannot be used."""
    lines = []
    for tool, path in programs.items():
        if path is not None and tool in PROGRAMS:
            try:
                version(tool, path)
            except BoardProgramError as error:
                lines.append(str(error))
    return lines


def _located(command: FlowCommand, path: str | None) -> FlowCommand:
    """``command`` as a shell finds it.

    It is by name if PATH has it, else by its path.
    """
    name = command.args[0]
    if path is None or shutil.which(name) is not None:
        return command
    return dataclasses.replace(command, args=(path, *command.args[1:]))


def run(
    steps: Sequence[FlowCommand | FlowStep], directory: Path, *, dry_run: bool, echo: Callable[[str], object]
) -> list[str]:
    """Runs ``steps`` in order, or only echoes them.

    Returns their text, in which a tool that PATH has not stands with its path.

    Raises :class:`MissingToolError`, or :class:`FlowError` for a tool that does not start or is too old, before the
    first step; :class:`FlowError` at the first that fails.
    """
    programs = _programs(steps)
    absent = [tool for tool, path in programs.items() if path is None]
    if absent and not dry_run:
        raise MissingToolError(absent)
    trouble = _trouble(programs)
    if trouble and not dry_run:
        raise FlowError("; ".join(trouble))
    steps = [_located(step, programs[step.args[0]]) if isinstance(step, FlowCommand) else step for step in steps]
    for step in steps:
        echo(str(step))
        if dry_run:
            continue
        if isinstance(step, FlowStep):
            step.action()
            continue
        code = subprocess.run(step.args, cwd=directory / step.cwd, check=False).returncode
        if code:
            usual = f"{Path(step.args[0]).name} ended with exit code {code}: {step}"
            raise FlowError(step.explain.get(code, usual))
    for tool in absent:
        echo(f"# {tool} is not installed, or not on PATH: {PROGRAMS[tool].get}")
    for line in trouble:
        echo(f"# {line}")
    return [str(step) for step in steps]
