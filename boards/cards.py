"""Reads a memory card in a board or in another machine.

The board sends blocks by its UART; the other machine answers ssh.
"""

import base64
import io
import os
import shlex
import subprocess
import zlib
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from gradloom.firmware.card import BLOCK, CardError

from .ssh import ssh

__all__ = ["FarCard", "Line", "RemoteCard", "SerialCard", "opened"]

#: Blocks of a request by UART: about a second at 115,200 baud.
_AT_ONCE = 16
#: Requests without a block that arrives whole, before the line is given up.
_TRIES = 6
#: Reads without a byte after which a request is repeated: a second of a port; and requests without any byte.
_EMPTY, _SILENT_TRIES = 10, 10
#: Told blocks that are read, of so many, and what is done; 0 blocks while it waits.
Tell = Callable[[int, int, str], None] | None
#: An answer has fewer characters.
_LONGEST = 1024
_GONE = "the port is gone; was it unplugged?"


class Line(Protocol):
    """A serial port; a read ends after a while without a byte."""

    def read(self, size: int = 1, /) -> bytes: ...

    def write(self, data: bytes, /) -> int | None: ...


class FarCard(io.RawIOBase):
    """A card as a file that can be read and sought in.

    ``tell`` is told blocks of a long read, or what it waits for.
    """

    def __init__(self, tell: Tell = None) -> None:
        self._at = 0
        self._tell = tell if tell is not None else lambda done, total, text: None

    @abstractmethod
    def blocks(self, first: int, count: int) -> bytes:
        """``count`` blocks of the card; fewer at its end, if that is known."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            raise io.UnsupportedOperation("the card's end is not known")
        self._at = offset + (self._at if whence == os.SEEK_CUR else 0)
        return self._at

    def readinto(self, buffer: Any) -> int:
        room = memoryview(buffer).cast("B")
        first, skip = divmod(self._at, BLOCK)
        count = -(-(skip + len(room)) // BLOCK)
        data = self.blocks(first, count)[skip : skip + len(room)]
        room[: len(data)] = data
        self._at += len(data)
        return len(data)


def opened(card: FarCard) -> io.BufferedReader:
    """The card as a file whose reads are whole.

    They read no more of the card than asked for.
    """
    return io.BufferedReader(card, buffer_size=BLOCK)


class SerialCard(FarCard):
    """The card in a board, read by UART.

    The firmware answers between jobs. What a line loses or changes is asked for again. :class:`ValueError` in one line
    if it does not arrive.
    """

    def __init__(self, line: Line, tell: Tell = None) -> None:
        super().__init__(tell)
        self._line = line
        self._heard = b""
        #: Requests so far, and answers that were no whole ones.
        self.requests = self.damaged = 0

    def blocks(self, first: int, count: int) -> bytes:
        found: dict[int, bytes] = {}
        failed = silent = 0
        while missing := [number for number in range(first, first + count) if number not in found]:
            start, end = missing[0], missing[0]
            while end + 1 in missing[:_AT_ONCE] and end + 1 - start < _AT_ONCE:
                end += 1
            before, spoke = len(found), self._ask(start, end + 1 - start, found)
            if len(found) > before:
                self._tell(len(found), count, "reading the card")
                failed = silent = 0
            elif spoke:
                silent, failed = 0, failed + 1
            else:
                silent += 1
            if failed == _TRIES:
                raise ValueError(f"block {start} did not arrive whole in {_TRIES} tries: check cable and baud")
            if silent == _SILENT_TRIES:
                raise ValueError(
                    f"the board is silent after {_SILENT_TRIES} requests: is it on, and its card in the slot? It "
                    f"answers when it has said 'ready'"
                )
        return b"".join(found[number] for number in range(first, first + count))

    def _ask(self, first: int, count: int, found: dict[int, bytes]) -> bool:
        """Asks once, and puts blocks into ``found``.

        Returns whether there was an answer, damaged or whole.
        """
        request = f"read {first:08x} {count:08x}".encode()
        # A line's end first: what the board may have heard before is no part of the request.
        try:
            self._line.write(b"\n%s %08x\n" % (request, zlib.crc32(request)))
        except OSError:
            raise ValueError(_GONE) from None
        self.requests += 1
        wanted, answered = first + count - 1, False
        while (text := self._hear()) is not None:
            kind = text[:6]
            number = self._take(text, found)
            if number is None and kind in (b"block ", b"fault "):
                self.damaged += 1
            if number is None and text.startswith((b"run ", b"steps: ", b"program: ", b"kept: ")):
                # It listens again when the job has ended.
                self._tell(0, 0, f"the board works: {text.decode('ascii', 'replace')}")
                continue
            answered = True
            if number == wanted:
                break
        return answered

    def _take(self, text: bytes, found: dict[int, bytes]) -> int | None:
        """The number of the block that a whole answer is about."""
        body, _, total = text.rpartition(b" ")
        kind, _, rest = body.partition(b" ")
        name, _, data = rest.partition(b" ")
        try:
            if kind not in (b"block", b"fault") or int(total, 16) != zlib.crc32(body):
                return None
            number = int(name, 16)
        except ValueError:
            return None
        if kind == b"fault":
            raise CardError(f"the board cannot read block {number} of its card: {data.decode('ascii', 'replace')}")
        found[number] = base64.b64decode(data)
        return number

    def _hear(self) -> bytes | None:
        """The next line, without its end; None after a silence."""
        empty = 0
        while b"\n" not in self._heard and len(self._heard) < _LONGEST:
            try:
                data = self._line.read(_LONGEST)
            except OSError:
                raise ValueError(_GONE) from None
            self._heard += data
            empty = 0 if data else empty + 1
            if empty == _EMPTY:
                return None
        text, _, self._heard = self._heard.partition(b"\n")
        return text.rstrip(b"\r")


class RemoteCard(FarCard):
    """A card or an image in another machine, read over ssh."""

    def __init__(self, host: str, path: str, tell: Tell = None) -> None:
        super().__init__(tell)
        self.host, self.path = host, path

    def blocks(self, first: int, count: int) -> bytes:
        name = shlex.quote(self.path)
        try:
            done = subprocess.run(
                ssh(self.host, f"dd if={name} bs={BLOCK} skip={first} count={count}"),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        except OSError as error:
            raise ValueError(f"ssh does not start: {error.strerror}") from None
        if done.returncode:
            said = " ".join(done.stderr.decode("ascii", "replace").split()) or f"exit code {done.returncode}"
            raise ValueError(f"{self.host} does not give {self.path}: {said}")
        return done.stdout
