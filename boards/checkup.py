"""Checks of a board's workplace that several boards share."""

import dataclasses
import importlib.util
import re
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from gradloom.json_file import read_json

from .flow import FlowError
from .links.jtag import Chip, require_chip
from .links.monitor import open_port
from .links.usb import RULES, usb_devices
from .programs import PROGRAMS, BoardProgramError, find_program, version

__all__ = ["Check", "Workplace", "cable", "chip", "packages", "programs", "speaks"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """A finding about a workplace, and what to do."""

    check: str
    state: Literal["ok", "fault", "skipped"]
    found: str
    advice: str = ""

    def as_dict(self) -> dict[str, str]:
        """Plain values, for JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workplace:
    """Design, host name and serial port, as far as they are given.

    ``root``: where ``sys`` and ``dev`` are. ``tell``: gets a line before a check that takes long.
    """

    design: Path | None = None
    host: str | None = None
    port: str | None = None
    root: Path = Path("/")
    tell: Callable[[str], object] = print

    def report(self) -> dict[str, Any]:
        """The design's ``report.json``; empty without a design."""
        if self.design is None:
            return {}
        found = read_json(self.design / "report.json")
        return found if isinstance(found, dict) else {}


def programs(names: Sequence[str]) -> Iterator[Check]:
    """Whether programs are there, start, and are new enough."""
    for name in names:
        path = find_program(name)
        if path is None:
            yield Check(check=name, state="fault", found="not on PATH", advice=PROGRAMS[name].get)
            continue
        try:
            yield Check(check=name, state="ok", found=version(name, path) or "there")
        except BoardProgramError as error:
            yield Check(check=name, state="fault", found=error.why, advice=error.hint or PROGRAMS[name].get)


def packages(needed: Sequence[tuple[str, str, str]]) -> Iterator[Check]:
    """Whether Python packages are there: name, module, and how to get it."""
    for name, module, get in needed:
        if importlib.util.find_spec(module) is None:
            yield Check(check=name, state="fault", found="not installed", advice=get)
        else:
            yield Check(check=name, state="ok", found=metadata.version(name))


def cable(what: str, place: Workplace, numbers: tuple[int, int], advice: str) -> Check:
    """Whether a USB device is plugged in, and may be used."""
    vendor, product = numbers
    found = [each for each in usb_devices(place.root) if (each.vendor, each.product) == numbers]
    if not found:
        return Check(check=what, state="fault", found=f"no USB device {vendor:04x}:{product:04x}", advice=advice)
    if not any(each.usable for each in found):
        return Check(
            check=what,
            state="fault",
            found=f"{found[0].node}: no permission",
            advice=f"install the udev rules of the design ({RULES}) and plug the cable in again, or run as root",
        )
    return Check(check=what, state="ok", found=", ".join((found[0].name, *found[0].ports)))


def chip(wanted: Chip) -> Check:
    """Whether the board's chip answers over JTAG, and is the right one."""
    if find_program("openFPGALoader") is None:
        return Check(check="chip", state="skipped", found="needs openFPGALoader")
    try:
        return Check(check="chip", state="ok", found=require_chip(wanted))
    except FlowError as error:
        return Check(check="chip", state="fault", found=str(error))


def speaks(place: Workplace, *, baud: int, seconds: float, silent: str) -> Iterator[Check]:
    """Whether the board prints lines, and which design prints them.

    ``silent``: what to do if it prints nothing.
    """
    if place.port is None:
        yield Check(check="UART", state="skipped", found="no port given", advice="--port /dev/ttyUSB0, or another")
        return
    try:
        text = _heard(place.port, baud, seconds)
    except ValueError as error:
        yield Check(check="UART", state="fault", found=str(error))
        return
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        yield Check(check="UART", state="fault", found=f"{place.port}: no byte in {seconds:g} s", advice=silent)
        return
    ours = re.search(r"^gradloom: (\w+=\d+(?:,\w+=\d+)*)\s*$", text, re.M)
    if ours is None:
        if text.count("?") * 4 > len(text):
            yield Check(
                check="UART", state="fault", found=f"{place.port}: no text at {baud} baud", advice="--port of the board"
            )
        else:
            yield Check(check="UART", state="ok", found=f"{place.port}: {lines[-1][:60]!r}")
        return
    yield Check(check="UART", state="ok", found=f"{place.port}: gradloom")
    yield from _same_design(place, ours[1])


def _same_design(place: Workplace, there: str) -> Iterator[Check]:
    table = place.report().get("machine", {}).get("table")
    if table is None:
        yield Check(check="design", state="skipped", found=there, advice="--design DIR compares it")
    elif table.partition(";")[0] == there:
        yield Check(check="design", state="ok", found=there)
    else:
        yield Check(
            check="design",
            state="fault",
            found=f"the board has {there}, {place.design} has {table.partition(';')[0]}",
            advice="run gradloom flash again",
        )


def _heard(port: str, baud: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> str:
    """Output of a port, at most up to the line that names the design."""
    from .links.monitor import shown

    text, end = "", clock() + seconds
    with open_port(port, baud) as line:
        while clock() < end and not re.search(r"^gradloom: \S+=\d+\s", text, re.M):
            try:
                text += shown(line.read(max(line.in_waiting, 1)))
            except OSError:
                raise ValueError(f"port={port}: is gone; was it unplugged?") from None
    return text
