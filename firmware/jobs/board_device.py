"""The device of a board, which one program at a time has."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..device.host import AcceleratorError
from ..device.transport import Transport

__all__ = ["BoardDevice", "InUseError", "find_device", "is_locked", "locked"]

_LOCK = Path("/run/lock/gradloom.lock")
#: Seconds in which another process that serves a device must answer.
_TIMEOUT = 60.0
#: Seconds in which a lock may become free.
_PATIENCE = 0.5


class InUseError(AcceleratorError):
    """Another program has the board, or the job."""


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
        :class:`InUseError` of others. ``inherited``: such a descriptor.
        """
        with locked(self.lock, holder, "the board is in use by", inherited) as number:
            yield number


@contextlib.contextmanager
def locked(path: Path, holder: str, refusal: str, inherited: int | None = None) -> Iterator[int]:
    """Has a file locked while the block runs; its content names the holder.

    :class:`InUseError` begins with ``refusal`` where another process has it. The lock ends with the processes that
    have its descriptor, however they end.
    """
    number = _opened(path) if inherited is None else inherited
    try:
        end = time.monotonic() + _PATIENCE
        while inherited is None:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # Who only looks whether it is locked has it for a moment.
                if time.monotonic() < end:
                    time.sleep(0.05)
                    continue
                other = os.pread(number, 200, 0).decode("utf-8", "replace").strip()
                raise InUseError(f"{refusal} {other or 'another program'}") from None
        os.ftruncate(number, 0)
        os.pwrite(number, f"{holder}\n".encode(), 0)
        yield number
    finally:
        os.close(number)


def is_locked(path: Path) -> bool:
    """Whether a process has a file :func:`locked`."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(number)


def _opened(path: Path) -> int:
    # Of a file in a folder that all may write, Linux refuses the wish to make it, though it is there.
    for flags in (0, os.O_CREAT):
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o666)
        except FileNotFoundError:
            if flags:
                raise
        except PermissionError:
            raise ValueError(f"{path}: no permission: run with sudo") from None
    raise AssertionError


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
    from .remote import AgentTransport, Connection

    other = socket.socket(socket.AF_UNIX)
    try:
        other.connect(at)
    except OSError as error:
        other.close()
        raise ValueError(f"{at}: nobody serves a device there ({error.strerror})") from None
    connection = Connection(other.fileno(), other.fileno(), timeout=_TIMEOUT, close=other.close)
    return AgentTransport(connection, connection.ask({"do": "open"})[0])
