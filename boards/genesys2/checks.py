"""Checks of a workplace for the Genesys 2."""

from collections.abc import Iterator

from ..board import Board
from ..checkup import Check, Workplace, cable, chip, programs, speaks
from ..links.jtag import Chip
from ..links.monitor import BAUD
from ..vivado.probe import vivado_checks
from .facts import CABLES

__all__ = ["CHIP", "checks"]

CHIP = Chip(
    board="genesys2",
    title="Genesys 2",
    name="xc7k325t",
    idcode=0x0365_1093,
    mask=0x0FFF_FFFF,
    connector="the port PROG",
)
_PROG, _UART = CABLES
_EDITION = (
    "Vivado ML Enterprise, the licence for this part that comes with the board, or AMD's evaluation licence of 30 days"
)


def checks(board: Board, place: Workplace) -> Iterator[Check]:
    """Checks tools, licence, both cables, chip and UART."""
    yield from programs(("vivado", "openFPGALoader"))
    yield from vivado_checks(board, place, edition=_EDITION)
    plugged = cable("cable PROG", place, _PROG, f"switch the board on, and connect {CHIP.connector}")
    yield plugged
    yield cable("cable UART", place, _UART, "connect the port UART")
    yield chip(CHIP) if plugged.state == "ok" else Check(check="chip", state="skipped", found="needs the cable PROG")
    if place.port is not None:
        place.tell("UART: press CPU RESET within 10 s")
    yield from speaks(
        place,
        baud=BAUD,
        seconds=10,
        silent="press CPU RESET while this runs; without lines: run gradloom flash, LD0 must be on, LD1 off",
    )
