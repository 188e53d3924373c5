"""Prompts for a board by its UART: tokens in, tokens out."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import lines
from .lines import Lines

__all__ = ["Reply", "prompted"]

_WORDS = ("answers", "busy", "refused", "token", "answered")
#: No token ends the answer before its length.
_NO_END = 0xFFFFFFFF
#: Questions for what is missing, none of which brings a token, before the line is given up.
_TRIES = 60


@dataclass(frozen=True)
class Reply:
    """An answer: its tokens, and cycles of the accelerator.

    ``waited``: the most that a token waited for a running program to yield. ``took``: the most from a token's start to
    its end.
    """

    tokens: list[int]
    waited: int
    took: int


def prompted(
    board: Lines,
    prompt: Sequence[int],
    tokens: int,
    adapter: int,
    *,
    end: int | None = None,
    told: Callable[[int], None] | None = None,
) -> Reply:
    """The tokens that a board answers a prompt with.

    At most ``tokens``, up to and with the token ``end``. ``told`` is told each in its order. What a line loses is asked
    for again. :class:`ValueError` if the board refuses the prompt, or does not answer.
    """
    name = secrets.randbits(31)
    request: tuple[str | int, ...] = ("ask", name, adapter, tokens, _NO_END if end is None else end, *prompt)
    found: dict[int, int] = {}
    count: int | None = None
    given = silent = vain = waited = took = 0
    accepted = False
    while count is None or len(found) < count:
        question: tuple[str | int, ...] = ("again", name, given)
        board.ask(*(question if accepted else request))
        before, spoke = len(found), False
        while (answer := board.hear(_WORDS)) is not None:
            spoke = True
            if answer.word == "refused":
                raise ValueError(f"the board refuses the prompt: {answer.rest[9:]}")
            if answer.word == "busy":
                raise ValueError("the board answers another prompt; try again when it has ended")
            if answer.word in ("", "text") or answer.numbers[0] != name:
                continue
            accepted = True
            if answer.word == "token":
                _, index, token = answer.numbers
                found[index] = token
                while given in found:
                    if told is not None:
                        told(found[given])
                    given += 1
            elif answer.word == "answered":
                _, count, waited, took = answer.numbers
                break
        silent = 0 if spoke else silent + 1
        vain = 0 if len(found) > before else vain + 1
        if silent == lines.SILENT_TRIES:
            raise ValueError(f"the board is silent after {silent} requests: is it on, and does it run a job?")
        if vain == _TRIES:
            raise ValueError(f"no token arrived in {vain} requests: check cable and baud")
    return Reply([found[index] for index in range(count)], waited, took)
