"""Requests to a board by its memory card's inbox."""

import secrets
from pathlib import Path
from typing import Any, BinaryIO, NotRequired, TypedDict

from .cards import Tell, any_card, name_of

__all__ = ["Requested", "install", "rollback"]

#: Seconds without a line in which a board checks a package; it takes a fraction of one.
_CHECKED = 10


class Requested(TypedDict):
    """A request to a board, and what it ``said``; ``installed``: the version that it has so far, or 0."""

    card: str
    said: str | None
    version: int
    installed: int
    base: NotRequired[str]
    bytes: NotRequired[int]


def install(
    package: Path | str,
    *,
    card: Path | str | None = None,
    port: str | None = None,
    baud: int | None = None,
    tell: Tell = None,
) -> Requested:
    """Puts a package into the inbox of a board's memory card.

    ``card`` is the card's device, or its image in a file: the board checks and installs the package when it starts
    next. With ``port`` the board itself takes it by its UART, at ``baud`` bits a second (115200), and checks it at once
    unless a job runs. What the board would refuse for its base or version is refused here; signatures are checked by
    the board alone.

    Returns ``said``, the board's own line, or None while the package waits for a start. :class:`ValueError` if the
    board refuses the package. ``tell`` is told blocks that are written, of so many, and what is done.
    """
    import hashlib

    from gradloom.delivery.installed import read_package
    from gradloom.delivery.manifest import KEYS, SIGNED, SIZE, WORDS, Manifest
    from gradloom.firmware.chip.card import BLOCK
    from gradloom.firmware.chip.delivered import Area, DeliveryRequest

    content = read_package(package)
    Manifest.key_of(content)
    if len(content) < SIZE:
        raise ValueError(f"package={package}: has {len(content)} bytes, a manifest alone has {SIZE}; get it again")
    manifest = Manifest.read(content[:SIGNED])
    if manifest.kind not in (KEYS, WORDS):
        raise ValueError(f"package={package}: is not for boards; sign it with --card")
    if len(content) - SIZE != manifest.payload_bytes:
        raise ValueError(f"package={package}: has {len(content)} bytes, must have {SIZE + manifest.payload_bytes}")
    with any_card(card, port, baud=baud, tell=tell, write=True) as file:
        area = Area.of(file)
        state = area.state(file)
        file.seek(0)
        base = hashlib.sha256(file.read(BLOCK)).digest()
        before = state.keys_version if manifest.kind == KEYS else state.highest
        if manifest.version <= before:
            raise ValueError(f"version={manifest.version}: must be above {before}, which was installed")
        if manifest.kind == WORDS and manifest.base != base:
            raise ValueError(
                f"base={base.hex()[:16]}…: must be {manifest.base.hex()[:16]}…; name the card it was made for"
            )
        if manifest.kind == WORDS and any(manifest.parent) and manifest.parent != _result(state):
            raise ValueError("parent: the package changes another adapter than the card has; install that one before")
        area.ask(file, DeliveryRequest.INSTALL, _number(state), content)
        said = _begun(file, port)
    return {
        "card": port or str(card),
        "said": said,
        "version": manifest.version,
        "base": base.hex(),
        "installed": state.current.version if state.current else 0,
        "bytes": len(content),
    }


def rollback(*, card: Path | str | None = None, port: str | None = None, baud: int | None = None) -> Requested:
    """Asks a board to bring back the adapter before.

    It asks by the card or by the UART. ``said`` is as in :func:`install`. :class:`ValueError` if there is none, or if
    its version is below the least that was signed.
    """
    from gradloom.firmware.chip.delivered import Area, DeliveryRequest

    named = name_of(card, port)
    with any_card(card, port, baud=baud, write=True) as file:
        area = Area.of(file)
        state = area.state(file)
        if state.current is None or state.older is None:
            raise ValueError(f"{named}: has no older adapter; install one")
        if state.older.version < state.least:
            raise ValueError(f"version={state.older.version}: must be at least {state.least}, which was signed")
        area.ask(file, DeliveryRequest.ROLLBACK, _number(state))
        said = _begun(file, port)
    return {"card": port or str(card), "said": said, "version": state.older.version, "installed": state.current.version}


def _begun(card: BinaryIO, port: str | None) -> str | None:
    """What a board says of the request that is in its inbox.

    None while a job runs. :class:`ValueError` if it refuses it.
    """
    from gradloom.boards.links.cards import SerialCard
    from gradloom.firmware.chip.card import CardError

    if port is None:
        return None
    assert isinstance(card, SerialCard)
    try:
        card.start()
    except CardError:
        return None
    said = card.said(("install: ", "rollback: ", "card: error", "ready"), _CHECKED)
    if said is None or not said.startswith(("install: ", "rollback: ")):
        raise ValueError(f"port={port}: the board does not say that it has checked the package; press its reset button")
    if " error: " in said:
        raise ValueError(f"port={port}: the board refuses: {said.partition(' error: ')[2]}")
    return said


def _result(state: Any) -> bytes | None:
    return state.current.result if state.current else None


def _number(state: Any) -> int:
    """Of a request: not that of the last one."""
    while (number := secrets.randbits(32)) in (0, state.request):
        pass
    return number
