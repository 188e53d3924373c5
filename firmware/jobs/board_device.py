"""The device of a board, which one program at a time has."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..device.transport import Transport
from .lock import locked
from .remote import AgentTransport, Connection

__all__ = ["BoardDevice", "find_device"]

_LOCK = Path("/run/lock/gradloom.lock")
#: Seconds in which another process that serves a device must answer.
_TIMEOUT = 60.0


@dataclass(frozen=True)
class BoardDevice:
    """A way to the accelerator that one program at a time may use.

    ``options``: arguments of the agent that name the same device. ``lock``: file that who has the device has locked.
    """

    options: tuple[str, ...]
    lock: Path
    open: Callable[[], Transport]

    @contextlib.contextmanager
    def held(self, holder: str, inherited: int | None = None) -> Iterator[int]:
        """Keeps others away while the block runs.

        Gives the descriptor of the lock, which a child may inherit. ``holder``: who has the device, in words, for
        :class:`~.lock.InUseError` of others. ``inherited``: such a descriptor.
        """
        with locked(self.lock, holder, "the board is in use by", inherited) as number:
            yield number


def find_device(*, bitfile: str | None = None, at: str | None = None) -> BoardDevice:
    """The board's device.

    By UIO, by PYNQ with a ``bitfile``, or one that another process serves ``at`` a Unix socket: a simulation.
    """
    if at is not None:
        return BoardDevice(("--at", at), Path(f"{at}.lock"), lambda: _served(at))
    if bitfile is not None:
        return BoardDevice(("--bitfile", bitfile), _LOCK, lambda: _pynq(bitfile))
    return BoardDevice((), _LOCK, _uio)


def _uio() -> Transport:
    from ..device.uio_transport import UioTransport

    return UioTransport()


def _pynq(bitfile: str) -> Transport:
    from ..device.pynq_transport import PynqTransport

    return PynqTransport(bitfile)


def _served(at: str) -> Transport:
    other = socket.socket(socket.AF_UNIX)
    try:
        other.connect(at)
    except OSError as error:
        other.close()
        raise ValueError(f"{at}: nobody serves a device there ({error.strerror})") from None
    connection = Connection(other.fileno(), other.fileno(), timeout=_TIMEOUT, close=other.close)
    return AgentTransport(connection, connection.ask({"do": "open"})[0])
