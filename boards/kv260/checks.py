"""Checks of a workplace for a board with a Zynq UltraScale+."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from gradloom.firmware.device.machine import MachineDesign

from ..board import Board
from ..checkup import Check, Workplace, programs
from ..links.ssh import ssh, valid_host
from ..programs import find_program
from ..vivado.probe import vivado_checks
from .bundle.flash import bundle_files, design_name
from .carriers import CARRIERS

__all__ = ["checks"]

_SCRIPT = Path(__file__).with_name("doctor.sh")
_EDITION = "Vivado ML Standard (free) has it: add Zynq UltraScale+ MPSoC in the installer"
_SECONDS = 120


def checks(board: Board, place: Workplace) -> Iterator[Check]:
    """Checks tools and licence here, and over ssh the board itself."""
    yield from programs(("vivado", "bootgen", "dtc", "ssh", "scp"))
    carrier = CARRIERS[board.name]
    yield from vivado_checks(board, place, pattern=carrier.store, edition=_EDITION)
    if place.design is not None:
        name = design_name(place.design)
        absent = [file for file in bundle_files(name) if not (place.design / "board" / "bundle" / file).is_file()]
        yield Check(
            check="bundle",
            state="fault" if absent else "ok",
            found=f"no board/bundle/{absent[0]}" if absent else "complete",
            advice=f"run gradloom build {board.name}" if absent else "",
        )
    if place.host is None:
        yield Check(check="board", state="skipped", found="no host given", advice=f"--host {carrier.host}, or another")
    elif find_program("ssh") is None:
        yield Check(check="board", state="skipped", found="needs ssh")
    else:
        device = quote(str(place.report().get("module", MachineDesign.device)))
        yield from _on_board(valid_host(place.host), board.name, device)


def _on_board(host: str, board: str, device: str) -> Iterator[Check]:
    """Runs ``doctor.sh`` on the board; it changes nothing there."""
    try:
        done = subprocess.run(
            ssh(host, f"sh -s -- '' {board} {device}"),
            input=_SCRIPT.read_text(encoding="utf-8"),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        yield Check(check="board", state="fault", found=f"{host} did not end the checks in {_SECONDS} s")
        return
    said = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "")
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"check"')]
    if done.returncode == 255 or not found:
        yield Check(
            check="board",
            state="fault",
            found=f"{host} does not answer over ssh: {said or f'exit code {done.returncode}'}",
            advice="is it on, in this network, and its name right? try ssh by hand",
        )
        return
    yield Check(check="board", state="ok", found=f"{host} answers")
    for each in found:
        yield Check(**each)
    if done.returncode:
        yield Check(check="board", state="fault", found=f"{host}: the checks ended early: {said}")
