"""A file that one process at a time has locked."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from ..device.host import AcceleratorError

__all__ = ["InUseError", "is_locked", "locked"]

#: Seconds in which a lock may become free.
_PATIENCE = 0.5


class InUseError(AcceleratorError):
    """Another program has the board, or the job."""


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
