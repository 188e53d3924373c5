"""Shows what a board says on its UART."""

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import serial

__all__ = ["BAUD", "monitor", "open_port", "shown"]

#: What every board's project sets.
BAUD = 115_200
_BAUDS = (300, 4_000_000)
#: Seconds that a read waits for a first byte, so that an interrupt is not kept waiting.
_WAIT = 0.1
_SHOWN = {*range(0x20, 0x7F), 0x09, 0x0A}


def monitor(port: str | None = None, *, baud: int = BAUD, write: Callable[[str], object]) -> None:
    """Gives ``write`` all bytes of ``port`` until it is gone.

    An interrupt by the user ends it too.

    Without ``port``: the machine's only USB serial port. Bytes that are no printable ASCII come as ``?``, so that a
    wrong rate spoils no terminal. :class:`ValueError` describes a fault of the port.
    """
    _check_rate(baud)
    with open_port(_only() if port is None else port, baud) as line:
        while True:
            try:
                data = line.read(max(line.in_waiting, 1))
            except OSError:
                raise ValueError(f"port={line.name}: is gone; was it unplugged?") from None
            if data:
                write(shown(data))


def open_port(name: str, baud: int) -> "serial.Serial":
    """The serial port ``name``, for this process alone.

    :class:`ValueError` describes a fault in one line.
    """
    import serial

    _check_rate(baud)
    try:
        return serial.Serial(name, baud, timeout=_WAIT, exclusive=True)
    except (OSError, ValueError) as error:
        raise ValueError(f"port={name}: {_why(error)}") from None


def _check_rate(baud: int) -> None:
    if not _BAUDS[0] <= baud <= _BAUDS[1]:
        raise ValueError(f"baud={baud}: must be from {_BAUDS[0]} to {_BAUDS[1]}")


def shown(data: bytes) -> str:
    """``data`` as text, without carriage returns.

    Bytes that are no printable ASCII come as ``?``.
    """
    return "".join(chr(byte) if byte in _SHOWN else "?" for byte in data if byte != 0x0D)


def _usb() -> list[str]:
    from serial.tools import list_ports

    return sorted(each.device for each in list_ports.comports() if each.vid is not None)


def _only() -> str:
    found = _usb()
    if len(found) == 1:
        return found[0]
    there = f"there are {', '.join(found)}" if found else "there is no USB serial port"
    raise ValueError(f"port: {there}; name one with --port")


def _why(error: Exception) -> str:
    number = getattr(error, "errno", None)
    if number == errno.ENOENT:
        return f"no such port; USB serial ports here: {', '.join(_usb()) or 'none'}"
    if number == errno.EACCES:
        return "may not be opened; its group, often dialout, may"
    if number in (errno.EBUSY, errno.EAGAIN) or "exclusively lock" in str(error):
        return "is in use by another program"
    if number in (errno.EISDIR, errno.ENXIO, errno.ENOTTY, errno.ENODEV) or "configure port" in str(error):
        return "is no serial port"
    return " ".join(str(error).split())
