"""A board's memory card as a file."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["card_file"]


@contextlib.contextmanager
def card_file(card: Path | str, *, write: bool = False) -> Iterator[BinaryIO]:
    """The card's device, or its image, as a file.

    What is wrong with it is a :class:`ValueError` in one line that names it.
    """
    from gradloom.firmware.card import CardError

    try:
        with Path(card).open("r+b" if write else "rb") as file:
            yield file
    except CardError as error:
        raise ValueError(f"card={card}: {error}") from None
    except OSError as error:
        more = ", which can be written" if write else ""
        why = error.strerror or str(error)
        raise ValueError(f"card={card}: {why}: name the card's device or its image{more}") from None
