"""Reads a memory card in a board or in another machine.

The board sends blocks by its UART; the other machine answers ssh.
"""

import base64
import io
import os
import shlex
import subprocess
from abc import abstractmethod
from typing import Any

from gradloom.firmware.chip.card import BLOCK, CardError

from . import lines
from .lines import Line, LineAnswer, Lines, Tell
from .ssh import ssh

__all__ = ["FarCard", "RemoteCard", "SerialCard", "opened"]

#: Blocks of a request by UART: about a second at 115,200 baud.
_AT_ONCE = 16
#: Requests without a block that arrives whole, before the line is given up.
_TRIES = 6


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
    """The card in a board, read and written by UART.

    The firmware takes writes to the card's inbox alone. What a line loses or changes is asked for again.
    :class:`CardError` in one line if it does not arrive.
    """

    def __init__(self, line: Line, tell: Tell = None) -> None:
        super().__init__(tell)
        self.lines = Lines(line, tell)
        #: Requests so far.
        self.requests = 0

    def blocks(self, first: int, count: int) -> bytes:
        found: dict[int, bytes] = {}
        tries = _Tries()
        while missing := [number for number in range(first, first + count) if number not in found]:
            start, end = missing[0], missing[0]
            while end + 1 in missing[:_AT_ONCE] and end + 1 - start < _AT_ONCE:
                end += 1
            before, spoke = len(found), self._read(start, end + 1 - start, found)
            if len(found) > before:
                self._tell(len(found), count, "reading the card")
            tries.made(spoke, whole=len(found) > before, what=f"block {start}")
        return b"".join(found[number] for number in range(first, first + count))

    def _read(self, first: int, count: int, found: dict[int, bytes]) -> bool:
        """Asks once, and puts blocks into ``found``.

        Returns whether there was an answer, damaged or whole.
        """
        self.lines.ask("read", first, count)
        self.requests += 1
        answered = False
        while (answer := self.lines.hear(("block", "fault"))) is not None:
            if answer.word == "text":
                answered |= not self.lines.works
                continue
            answered = True
            if not answer.word:
                continue
            number = int(answer.rest[:8], 16)
            self._check(answer, number, "read")
            found[number] = base64.b64decode(answer.rest[9:])
            if number == first + count - 1:
                break
        return answered

    @staticmethod
    def _check(answer: LineAnswer, number: int, what: str) -> None:
        if answer.word == "fault":
            raise CardError(f"the board cannot {what} block {number} of its card: {answer.rest[9:]}")

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        """Writes whole blocks, from the start of one on."""
        content = bytes(data)
        first, skip = divmod(self._at, BLOCK)
        if skip or len(content) % BLOCK:
            raise io.UnsupportedOperation("a card is written by whole blocks")
        count = len(content) // BLOCK
        for number in range(count):
            self._write(first + number, content[number * BLOCK :][:BLOCK])
            self._tell(number + 1, count, "writing to the card")
        self._at += len(content)
        return len(content)

    def _write(self, number: int, block: bytes) -> None:
        tries = _Tries()
        while True:
            self.lines.ask("write", number, base64.b64encode(block).decode())
            self.requests += 1
            spoke = False
            while (answer := self.lines.hear(("wrote", "fault"))) is not None:
                spoke |= not (answer.word == "text" and self.lines.works)
                if answer.word in ("wrote", "fault") and int(answer.rest[:8], 16) == number:
                    self._check(answer, number, "write")
                    return
            tries.made(spoke, whole=False, what=f"block {number}")

    def start(self) -> None:
        """The board reads its card as after a reset.

        :class:`CardError` while a job runs.
        """
        tries = _Tries()
        while True:
            self.lines.ask("start")
            spoke = False
            while (answer := self.lines.hear(("starts", "fault"))) is not None:
                spoke |= not (answer.word == "text" and self.lines.works)
                if answer.word == "fault":
                    raise CardError(answer.rest[9:])
                if answer.word == "starts":
                    return
            tries.made(spoke, whole=False, what="the request")

    def said(self, words: tuple[str, ...], seconds: int) -> str | None:
        """The next line of the firmware that begins with one of ``words``.

        None after ``seconds`` of silence.
        """
        silent = 0
        while silent < seconds:
            answer = self.lines.hear(())
            if answer is None:
                silent += 1
            elif answer.rest.startswith(words):
                return answer.rest
        return None


class _Tries:
    """Counts requests that were in vain, and gives up."""

    def __init__(self) -> None:
        self.failed = self.silent = 0

    def made(self, spoke: bool, *, whole: bool, what: str) -> None:
        """After a request; :class:`CardError` after too many in vain."""
        if whole:
            self.failed = self.silent = 0
        elif spoke:
            self.silent, self.failed = 0, self.failed + 1
        else:
            self.silent += 1
        if self.failed == _TRIES:
            raise CardError(f"{what} did not arrive whole in {_TRIES} tries: check cable and baud")
        if self.silent == lines.SILENT_TRIES:
            raise CardError(
                f"the board is silent after {lines.SILENT_TRIES} requests: is it on, and its card in the slot? It "
                f"answers when it has said 'ready'"
            )


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
