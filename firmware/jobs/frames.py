"""Frames between the agent on a board and the program that asks it.

A frame is a header of 12 bytes, a message as JSON, and bytes: ``GLF1``, then the lengths of both, little-endian.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from typing import Any

__all__ = ["Channel", "ChannelTimeout", "FrameError", "PIECE", "PROTOCOL", "field"]

#: Both sides must speak the same.
PROTOCOL = 2
#: Bytes of a frame at most that a sender cuts long content into.
PIECE = 1 << 20
_MAGIC = b"GLF1"
_HEADER = struct.Struct("<4sII")
_MOST_MESSAGE, _MOST_DATA = 1 << 22, 1 << 24


class FrameError(ValueError):
    """What arrived is no frame, or no message that is known."""


class ChannelTimeout(FrameError):
    """Nothing arrived in time."""


class Channel:
    """Sends and receives frames over two file descriptors.

    Parameters
    ----------
    source, sink : :class:`int`
        File descriptors, which stay the caller's.
    timeout : :class:`float` or ``None``
        Seconds without a byte after which :meth:`receive` gives up, and :meth:`send` while nobody reads.

    ``sent`` and ``received`` count bytes.
    """

    def __init__(self, source: int, sink: int, *, timeout: float | None = None):
        self._source, self._sink = source, sink
        self.timeout = timeout
        self.sent = self.received = 0

    def send(self, message: dict[str, Any], data: bytes | memoryview = b"") -> None:
        """Sends a message and bytes; raises :class:`OSError` where nobody reads."""
        text = json.dumps(message, separators=(",", ":")).encode()
        if len(text) > _MOST_MESSAGE or len(data) > _MOST_DATA:
            raise FrameError(f"a frame of {len(text)} and {len(data)} bytes is too long")
        for part in (_HEADER.pack(_MAGIC, len(text), len(data)) + text, data):
            left = memoryview(part)
            while left:
                if self.timeout is not None and not select.select([], [self._sink], [], self.timeout)[1]:
                    raise ChannelTimeout(f"nothing was read for {self.timeout:g} s")
                # No more than a pipe takes at once where it is ready: a write must not wait for ever.
                done = os.write(self._sink, left[: select.PIPE_BUF if self.timeout is not None else len(left)])
                self.sent += done
                left = left[done:]

    def receive(self, timeout: float | None = None) -> tuple[dict[str, Any], bytes]:
        """The next message and its bytes.

        Raises :class:`EOFError` where the other side has ended, :class:`FrameError` if it is no frame.
        """
        limit = self.timeout if timeout is None else timeout
        magic, length, size = _HEADER.unpack(self._bytes(_HEADER.size, limit, first=True))
        if magic != _MAGIC:
            raise FrameError("what arrived is no frame")
        if length > _MOST_MESSAGE or size > _MOST_DATA:
            raise FrameError(f"a frame of {length} and {size} bytes is too long")
        try:
            message = json.loads(self._bytes(length, limit))
        except ValueError:
            raise FrameError("a frame has no JSON") from None
        if not isinstance(message, dict):
            raise FrameError("a frame's message is no object")
        return message, self._bytes(size, limit)

    def waiting(self, seconds: float = 0.0) -> bool:
        """Whether bytes have arrived, or the other side has ended."""
        return bool(select.select([self._source], [], [], seconds)[0])

    def _bytes(self, length: int, timeout: float | None, *, first: bool = False) -> bytes:
        parts, left = [], length
        while left:
            if timeout is not None and not self.waiting(timeout):
                raise ChannelTimeout(f"no answer within {timeout:g} s")
            part = os.read(self._source, min(left, 1 << 20))
            if not part:
                raise EOFError
            self.received += len(part)
            parts.append(part)
            left -= len(part)
            if first and not _MAGIC.startswith((b"".join(parts))[:4]):
                self._complain(b"".join(parts))
        return b"".join(parts)

    def _complain(self, said: bytes) -> None:
        """Refuses what is no frame, with the line that it begins with."""
        end = time.monotonic() + 0.2
        while b"\n" not in said and len(said) < 200 and self.waiting(max(0.0, end - time.monotonic())):
            part = os.read(self._source, 200)
            if not part:
                break
            said += part
        line = said.decode("utf-8", "replace").strip().splitlines()
        raise FrameError(f"{(line or [''])[0][:100]!r} arrived in place of a frame")


def field(
    message: dict[str, Any], name: str, kind: type[Any], low: float | None = None, high: float | None = None
) -> Any:
    """A field of a message, of its type and within its bounds.

    Raises :class:`FrameError` where it is missing, of another type, or out of bounds.
    """
    value = message.get(name)
    if type(value) is not kind:
        raise FrameError(f"{name}={value!r}: must be of type {kind.__name__}")
    number: Any = value
    if (low is not None and number < low) or (high is not None and number > high):
        raise FrameError(f"{name}={value}: must be from {low} to {high}")
    return value
