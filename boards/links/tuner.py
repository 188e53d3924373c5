"""A board that fine-tunes by itself, with data that come by its UART.

Requests and answers are those of :mod:`~.lines`; ``firmware/chip/runs/tuner_main.c`` answers them. Everything that
has come is repeated until its answer is whole, and the board runs nothing but a memory whose sum is the sender's.
"""

import base64
import zlib
from collections.abc import Collection, Iterator

from .lines import Line, LineAnswer, Lines, Tell

__all__ = ["PIECE", "TunerError", "TunerPort"]

#: Bytes of memory, or of the kept lines, in a request.
PIECE = 512
#: How often a request is sent, and silences of a second until a run must have ended.
_TRIES, _RUN_SECONDS = 8, 600
_ENDS = ("done", "failed")
_DAMAGED, _OTHER = "damaged", "the memory has another sum"


class TunerError(ValueError):
    """What a board refuses, or why it does not answer."""


class TunerPort:
    """A board by the ``line`` of its UART.

    ``sent``: pieces that it took.
    """

    def __init__(self, line: Line, tell: Tell = None) -> None:
        self.lines, self.sent, self.held = Lines(line, None), 0, b""
        self.tell = tell if tell is not None else lambda done, total, text: None

    def finished(self) -> None:
        """See :class:`~gradloom.systems.job.BoardHost`."""

    def told(self) -> list[str]:
        """Lines of the run that has ended last."""
        text, total = b"", 1
        while len(text) < total:
            answer = self._ask("told", len(text))
            _, size, data = answer.rest.split(" ")
            total = int(size, 16)
            text += base64.b64decode(data)
        return text[:total].decode("ascii", "replace").splitlines()

    def fetch(self, offset: int, length: int) -> bytes:
        """Bytes of the memory."""
        first = offset // PIECE * PIECE
        pieces = range(first, offset + length, PIECE)
        data = b"".join(base64.b64decode(self._ask("give", at).rest.split(" ")[1]) for at in pieces)
        return data[offset - first :][:length]

    def run(self, image: bytes, changed: Collection[int], *, epochs: int) -> list[str]:
        """Brings ``image``, lets the board run it, and returns the lines of the run.

        ``changed``: offsets of the pieces that may differ from those of the bitstream. Those that differ from what came
        last are sent, too, and all where others differ.
        """
        pieces = range(0, len(image), PIECE)
        changed = {
            *changed,
            *(at for at in pieces if self.held and image[at : at + PIECE] != self.held[at : at + PIECE]),
        }
        # The second time it was switched off meanwhile, the third time other data than the bitstream's were there.
        for some in (sorted(changed), sorted(changed), pieces):
            self._send(image, some)
            if self._starts(image):
                self.held = image
                self._follow(epochs)
                return self.told()
        raise TunerError("the memory has another sum than what was sent; switch the board off and on")

    def _send(self, image: bytes, places: Collection[int]) -> None:
        for number, at in enumerate(places):
            self.tell(number, len(places), "sending data to the board")
            piece = image[at : at + PIECE]
            self._ask("data", at, base64.b64encode(piece + bytes(PIECE - len(piece))).decode())
            self.sent += 1

    def _starts(self, image: bytes) -> bool:
        """Whether the board has what it is to run; it runs then."""
        total = zlib.crc32(image)
        for _ in range(_TRIES):
            self.lines.ask("start", total)
            for answer in self._heard("starts"):
                if answer.word == "starts" or answer.word == "text" and answer.rest.startswith("gradloom: "):
                    return True
                number, _, why = answer.rest.partition(" ")
                if answer.word == "fault" and why == _OTHER and int(number, 16) == total:
                    return False
        raise TunerError("the board does not answer: is it switched on, and is --baud that of its build?")

    def _follow(self, epochs: int) -> None:
        """Up to the last line of a run, or until it is told afterwards."""
        silences = 0
        while silences < _RUN_SECONDS:
            answer = self.lines.hear(())
            if answer is None:
                silences += 1
                if self._ended():
                    return
            elif answer.rest in _ENDS:
                return
            elif answer.rest.startswith("epoch"):
                number = answer.rest.split(":")[0].removeprefix("epoch").strip()
                self.tell(int(number) if number.isdecimal() else 1, epochs, answer.rest)
        raise TunerError("the board's run does not end")

    def _ended(self) -> bool:
        """Whether the board answers, which it does not while it runs."""
        self.lines.ask("told", 0)
        return any(answer.word == "told" for answer in self._heard("told"))

    def _heard(self, word: str) -> Iterator[LineAnswer]:
        """What comes until a silence, a damaged answer, or a repeat: the board has heard no request then."""
        while (answer := self.lines.hear((word, "fault"))) is not None and answer.word:
            if answer.word == "text" and answer.rest.startswith("repeat "):
                while self.lines.hear(()) is not None:
                    pass
                return
            yield answer

    def _ask(self, word: str, number: int, *more: str) -> LineAnswer:
        """A request's answer."""
        for _ in range(_TRIES):
            self.lines.ask(word, number, *more)
            for answer in self._heard(word):
                if answer.word == "text":
                    continue
                first, _, rest = answer.rest.partition(" ")
                if answer.word == word and int(first, 16) == number:
                    return answer
                # What is damaged was this request or one before. The board hears no other while it answers.
                if answer.word == "fault" and rest != _DAMAGED and int(first, 16) == number:
                    raise TunerError(f"the board refuses {word} {number:#x}: {rest}")
        raise TunerError("the board does not answer: is it switched on, and is --baud that of its build?")
