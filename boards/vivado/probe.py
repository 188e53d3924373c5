"""Asks Vivado whether it has a board's part, board files and a licence."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..board import Board
from ..checkup import Check, Workplace
from ..programs import BoardProgramError, answer, find_program, version

__all__ = ["vivado_checks"]

_SCRIPT = Path(__file__).with_name("probe.tcl")
_SAID = re.compile(r"^gradloom-probe: (\w+) (.*)$", re.M)
_LICENCE = re.compile(r"^ERROR: \[Common 17-345\] (.*)$", re.M)
_SECONDS = 600


def vivado_checks(board: Board, place: Workplace, *, pattern: str = "", edition: str) -> Iterator[Check]:
    """Runs a synthesis of one register.

    ``pattern``: board files that a build needs. ``edition``: what of Vivado includes the part.
    """
    path = find_program("vivado")
    try:
        usable = path is not None and bool(version("vivado", path))
    except BoardProgramError:
        usable = False
    if path is None or not usable:
        yield Check(check="licence", state="skipped", found="needs vivado")
        return
    place.tell("vivado: part and licence, some minutes")
    script = ("-mode", "batch", "-nojournal", "-nolog", "-notrace", "-source", str(_SCRIPT.resolve()))
    options = (*script, "-tclargs", board.part.lower(), *([pattern] if pattern else []))
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = answer(path, *options, seconds=_SECONDS, folder=Path(folder))
        except BoardProgramError as error:
            yield Check(check="part", state="fault", found=str(error))
            return
    text = done.stdout + done.stderr
    said = dict(_SAID.findall(text))
    if said.get("part") != "there":
        found = f"vivado does not have {board.part}" if "part" in said else _last(text)
        yield Check(check="part", state="fault", found=found, advice=f"install the part: {edition}")
        return
    yield Check(check="part", state="ok", found=board.part)
    if pattern:
        there = said.get("board") == "there"
        yield Check(
            check="board files",
            state="ok" if there else "fault",
            found=pattern if there else f"vivado has no board files {pattern}",
            advice="" if there else "Vivado: Tools, Vivado Store, Boards; or xhub::install of the board's item",
        )
    licence = _LICENCE.search(text)
    if said.get("synthesis") == "done":
        yield Check(check="licence", state="ok", found="a register was synthesised for the part")
    else:
        found = licence[1] if licence else said.get("synthesis", _last(text))
        yield Check(check="licence", state="fault", found=found, advice=f"{edition}; vlm shows the licences")


def _last(text: str) -> str:
    return next((line.strip()[:120] for line in reversed(text.splitlines()) if line.strip()), "vivado printed nothing")
