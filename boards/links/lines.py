"""Requests and answers by a board's UART, a line each, with sums.

A line is a word, fields and the CRC-32 of all before the last blank. A damaged request has no answer; whoever asks
repeats it.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gradloom.firmware.chip.card import CardError

__all__ = ["SILENT_TRIES", "LineAnswer", "Line", "Lines", "Tell"]

#: Reads without a byte after which a request is repeated: a second of a port; and requests without any byte.
_EMPTY, SILENT_TRIES = 10, 10
#: A line has fewer characters.
_LONGEST = 1024
_GONE = "the port is gone; was it unplugged?"
#: What the firmware says of a job while it runs.
_WORKS = ("run ", "steps: ", "program: ", "kept: ")
#: Told what is done, of so much, and a text; 0 of 0 while it waits.
Tell = Callable[[int, int, str], None] | None


class Line(Protocol):
    """A serial port; a read ends after a while without a byte."""

    def read(self, size: int = 1, /) -> bytes: ...

    def write(self, data: bytes, /) -> int | None: ...


@dataclass(frozen=True)
class LineAnswer:
    """An answer whose sum holds: its first word and what follows."""

    word: str
    rest: str

    @property
    def numbers(self) -> list[int]:
        """The fields, eight hexadecimal digits each."""
        return [int(each, 16) for each in self.rest.split()]


class Lines:
    """The lines of a board.

    ``words`` are first words of answers. ``text`` is the last line that was none, ``damaged`` the number of answers
    whose sum did not hold.
    """

    def __init__(self, line: Line, tell: Tell = None) -> None:
        self._line, self._heard = line, b""
        self.tell = tell if tell is not None else lambda done, total, text: None
        self.text, self.damaged = "", 0

    def ask(self, *fields: str | int) -> None:
        """Sends a request: words, and numbers of eight digits."""
        request = " ".join(each if isinstance(each, str) else f"{each:08x}" for each in fields).encode()
        try:
            # A line's end first: what the board may have heard before is no part of the request.
            self._line.write(b"\n%s %08x\n" % (request, zlib.crc32(request)))
        except OSError:
            raise CardError(_GONE) from None

    def hear(self, words: tuple[str, ...]) -> LineAnswer | None:
        """The next line that is an answer; None after a silence.

        An answer whose sum does not hold has an empty word. Other lines are in ``text``, one at a time: their word is
        ``text``.
        """
        line = self._next()
        if line is None:
            return None
        word, _, rest = line.partition(" ")
        if word in words:
            body, _, total = line.rpartition(" ")
            try:
                if int(total, 16) == zlib.crc32(body.encode()):
                    return LineAnswer(word, body.partition(" ")[2])
            except ValueError:
                pass
            self.damaged += 1
            return LineAnswer("", rest)
        self.text = line
        if self.works:
            self.tell(0, 0, f"the board works: {line}")
        return LineAnswer("text", line)

    @property
    def works(self) -> bool:
        """Whether the last line that was no answer is of a job."""
        return self.text.startswith(_WORKS)

    def _next(self) -> str | None:
        """The next line, without its end; None after a silence."""
        empty = 0
        while b"\n" not in self._heard and len(self._heard) < _LONGEST:
            try:
                data = self._line.read(_LONGEST)
            except OSError:
                raise CardError(_GONE) from None
            self._heard += data
            empty = 0 if data else empty + 1
            if empty == _EMPTY:
                return None
        text, _, self._heard = self._heard.partition(b"\n")
        return text.rstrip(b"\r").decode("ascii", "replace")
