"""A board's memory card as a file."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from gradloom.models.files.kinds import what_is
from gradloom.options import check_request

__all__ = ["any_card", "card_file", "name_of"]

Tell = Callable[[int, int, str], None] | None


@contextlib.contextmanager
def card_file(card: Path | str, *, write: bool = False) -> Iterator[BinaryIO]:
    """The card's device, or its image, as a file.

    What is wrong with it is a :class:`ValueError` in one line that names it.
    """
    from gradloom.firmware.chip.card import CardError

    try:
        with Path(card).open("r+b" if write else "rb") as file:
            yield file
    except CardError as error:
        kind = what_is(card)
        raise ValueError(f"card={card}: is {kind}" if kind else f"card={card}: {error}") from None
    except OSError as error:
        more = ", which can be written" if write else ""
        why = error.strerror or str(error)
        raise ValueError(f"card={card}: {why}: name the card's device or its image{more}") from None


def name_of(card: Path | str | None, port: str | None) -> str:
    """What names the card in a message.

    :class:`ValueError` unless one of both is given.
    """
    if (card is None) == (port is None):
        raise ValueError("card, port: give one of them: a card's device or image, or the board's serial port")
    return f"port={port}" if card is None else f"card={card}"


@contextlib.contextmanager
def any_card(
    card: Path | str | None,
    port: str | None,
    *,
    baud: int | None,
    host: str | None = None,
    tell: Tell = None,
    write: bool = False,
) -> Iterator[BinaryIO]:
    """The card as a file, wherever it is: here, in a board, or at ``host``.

    In a board it is a :class:`~gradloom.boards.links.cards.SerialCard`. What is wrong is a :class:`ValueError` in one
    line that names it.
    """
    from gradloom.boards.links.cards import RemoteCard, SerialCard, opened
    from gradloom.boards.links.monitor import BAUD, open_port
    from gradloom.boards.links.ssh import valid_host
    from gradloom.firmware.chip.card import CardError

    named = name_of(card, port)
    if port is None:
        check_request("without --port, the board's serial port", needless={"baud": baud})
    try:
        if port is not None:
            with open_port(port, baud or BAUD) as line:
                yield cast(BinaryIO, SerialCard(line, tell))
        elif host is not None:
            yield cast(BinaryIO, opened(RemoteCard(valid_host(host), str(card), tell)))
        else:
            assert card is not None
            with card_file(card, write=write) as file:
                yield file
    except CardError as error:
        raise ValueError(f"{named}: {error}") from None
