"""Switching activity of a design, which Vivado estimates power from."""

import re
import shlex
import shutil
from pathlib import Path

from gradloom.rtl.emit.digest import design_digest

from ..flow import FlowStep

__all__ = ["ACTIVITY_PATH", "activity_step", "check_activity"]

#: Instances from a SAIF file's bench to the accelerator in the block designs of boards/*/design.tcl.
ACTIVITY_PATH = ("bench", "gradloom_design_wrapper", "gradloom_design_i", "accelerator", "inst")
#: implement.tcl looks for it in board/build.
_FILE = "activity.saif"

#: A SAIF file of ours begins with lines of some words, the design's among them.
_HEADER_BYTES = 4096
_DESIGN = re.compile(rb'^\(DESIGN "(\S+) ([0-9a-f]{64})"\)$', re.MULTILINE)


def check_activity(saif: Path | str, directory: Path) -> None:
    """Refuses a file whose activity is not that of the design's Verilog."""
    remedy = f"make it with gradloom energy PRESET --design {directory} --saif {saif}"
    try:
        with Path(saif).open("rb") as file:
            header = file.read(_HEADER_BYTES)
            file.seek(-min(file.seek(0, 2), 8), 2)
            end = file.read()
    except OSError as error:
        raise ValueError(f"saif={saif}: {error.strerror or error}; {remedy}") from None
    design = _DESIGN.search(header)
    if design is None or not header.startswith(b"(SAIFILE"):
        raise ValueError(f"saif={saif}: is no SAIF file of gradloom energy; {remedy}")
    if not end.endswith(b"\n)\n"):
        raise ValueError(f"saif={saif}: has no end, the file is cut; {remedy}")
    name, digest = (each.decode() for each in design.groups())
    own = design_digest(sorted((directory / "rtl").glob("*.v")))
    if digest != own:
        raise ValueError(
            f"saif={saif}: is of another design, {name} with Verilog {digest[:12]}, not {own[:12]} as in {directory}; "
            f"{remedy}"
        )


def activity_step(saif: Path | str | None, directory: Path) -> FlowStep:
    """Puts a SAIF file where the project's scripts look for it.

    Without one, an earlier one is removed.
    """
    kept = directory / "board" / "build" / _FILE

    def put() -> None:
        kept.unlink(missing_ok=True)
        if saif is not None:
            shutil.copyfile(saif, kept)

    place = f"board/build/{_FILE}"
    return FlowStep(f"rm -f {place}" if saif is None else f"cp {shlex.quote(str(Path(saif).absolute()))} {place}", put)
