"""Builds the bitstream of a Genesys 2 design and loads it."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from ..board import Board
from ..flow import FlowCommand, FlowError, FlowStep, run
from ..links.jtag import require_chip
from ..vivado.activity import activity_step, check_activity
from .checks import CHIP


def project_name(directory: Path) -> str:
    """Name of the design in ``directory``.

    :class:`FlowError` if there is none for this board.
    """
    settings = directory / "board" / "settings.tcl"
    found = re.search(r"^set name (\S+)$", settings.read_text(encoding="utf-8"), re.M) if settings.is_file() else None
    if found is None or not (directory / "board" / "mig.prj").is_file():
        raise FlowError(
            f"directory {str(directory)!r} holds no generated Genesys 2 design (board/mig.prj): "
            f"run gradloom generate first"
        )
    return found[1]


def build(
    board: Board,
    directory: Path | str,
    *,
    saif: Path | str | None = None,
    dry_run: bool = False,
    echo: Callable[[str], object] = print,
) -> list[str]:
    """Vivado; ``board/bundle/NAME.bit`` appears at the end."""
    directory = Path(directory)
    name = project_name(directory)
    if not dry_run and not any((directory / "rtl").glob("*.v")):
        raise FlowError(f"directory {str(directory)!r} holds no Verilog (rtl/*.v): run gradloom generate first")
    if saif is not None:
        check_activity(saif, directory)
    out = directory / "board" / "build" / "out"
    bundle = directory / "board" / "bundle"

    def begin() -> None:
        shutil.rmtree(bundle, ignore_errors=True)
        out.mkdir(parents=True, exist_ok=True)

    def collect() -> None:
        made = out / f"{name}.bit"
        if not made.is_file():
            raise FlowError(f"the flow did not create {made.name}")
        bundle.mkdir(parents=True)
        shutil.copyfile(made, bundle / f".{made.name}")
        (bundle / f".{made.name}").rename(bundle / made.name)

    steps: list[FlowCommand | FlowStep] = [
        FlowStep("rm -rf board/bundle && mkdir -p board/build/out", begin),
        activity_step(saif, directory),
        FlowCommand(
            ("vivado", "-mode", "batch", "-nojournal", "-notrace", "-log", "build/vivado.log", "-source", "build.tcl"),
            "board",
        ),
        FlowStep(f"mkdir board/bundle && cp board/build/out/{name}.bit board/bundle/", collect),
    ]
    return run(steps, directory, dry_run=dry_run, echo=echo)


def flash(
    board: Board,
    directory: Path | str,
    *,
    host: str | None = None,
    dry_run: bool = False,
    echo: Callable[[str], object] = print,
) -> list[str]:
    """Loads ``board/bundle/NAME.bit`` into the FPGA.

    It is lost when the board is switched off.
    """
    directory = Path(directory)
    name = project_name(directory)
    if host is not None:
        raise ValueError(f"host={host}: {board.name} is flashed over USB, by the machine that it is plugged into")
    bitstream = f"board/bundle/{name}.bit"
    if not dry_run and not (directory / bitstream).is_file():
        raise FlowError(f"directory {str(directory)!r} has no {bitstream}: run gradloom build {board.name} first")
    steps: list[FlowCommand | FlowStep] = [
        FlowStep(f"openFPGALoader -b {board.name} --detect   # must find {CHIP}", lambda: require_chip(CHIP)),
        FlowCommand(("openFPGALoader", "-b", board.name, bitstream)),
    ]
    return run(steps, directory, dry_run=dry_run, echo=echo)
