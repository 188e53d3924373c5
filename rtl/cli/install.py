"""The verbs that install a signed adapter on a board, or take it back."""

import secrets
from pathlib import Path
from typing import Annotated, Any

import typer

from .app import app
from .arguments import Json
from .cards import card_file
from .output import print_json, say

__all__ = ["install", "rollback"]


def install(package: Path | str, *, card: Path | str) -> dict[str, Any]:
    """Puts a package into the inbox of a board's memory card.

    The board checks and installs it when it starts next. ``card`` is the card's device, or its image in a file. What
    the board would refuse for its base or version is refused here; signatures are checked by the board alone.
    """
    import hashlib

    from gradloom.firmware.card import BLOCK
    from gradloom.firmware.delivered import Area, Request

    from ..delivery.manifest import KEYS, SIGNED, SIZE, WORDS, Manifest

    content = Path(package).read_bytes()
    Manifest.key_of(content)
    if len(content) < SIZE:
        raise ValueError(f"package={package}: has {len(content)} bytes, a manifest alone has {SIZE}; get it again")
    manifest = Manifest.read(content[:SIGNED])
    if manifest.kind not in (KEYS, WORDS):
        raise ValueError(f"package={package}: is not for boards; sign it with --card")
    if len(content) - SIZE != manifest.payload_bytes:
        raise ValueError(f"package={package}: has {len(content)} bytes, must have {SIZE + manifest.payload_bytes}")
    with card_file(card, write=True) as file:
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
        area.ask(file, Request.INSTALL, _number(state), content)
    return {
        "card": str(card),
        "version": manifest.version,
        "base": base.hex(),
        "installed": state.current.version if state.current else 0,
        "bytes": len(content),
    }


def rollback(*, card: Path | str) -> dict[str, Any]:
    """Asks a board, by its card, to bring back the adapter before.

    :class:`ValueError` if there is none, or if its version is below the least that was signed.
    """
    from gradloom.firmware.delivered import Area, Request

    with card_file(card, write=True) as file:
        area = Area.of(file)
        state = area.state(file)
        if state.current is None or state.older is None:
            raise ValueError(f"card={card}: has no older adapter; install one")
        if state.older.version < state.least:
            raise ValueError(f"version={state.older.version}: must be at least {state.least}, which was signed")
        area.ask(file, Request.ROLLBACK, _number(state))
    return {"card": str(card), "version": state.older.version, "installed": state.current.version}


def _result(state: Any) -> bytes | None:
    return state.current.result if state.current else None


def _number(state: Any) -> int:
    """Of a request: not that of the last one."""
    while (number := secrets.randbits(32)) in (0, state.request):
        pass
    return number


Card = Annotated[Path, typer.Option(metavar="CARD", help="The board's memory card: its device, or its image.")]


@app.command("install", epilog="Example: gradloom install run.pkg --card /dev/sdb")
def _install_verb(
    package: Annotated[Path, typer.Argument(metavar="FILE.pkg", help="A package of gradloom sign --card.")],
    card: Card,
    as_json: Json = False,
) -> None:
    """Put a signed package onto a board's memory card."""
    result = install(package, card=card)
    if as_json:
        print_json(result)
        return
    say(
        f"{result['card']}: version {result['version']} waits in the inbox, base {result['base'][:16]}, installed is "
        f"{'version ' + str(result['installed']) if result['installed'] else 'none'}; the board checks it at its start"
    )


@app.command("rollback", epilog="Example: gradloom rollback --card /dev/sdb")
def _rollback_verb(card: Card, as_json: Json = False) -> None:
    """Bring back the adapter before the installed one."""
    result = rollback(card=card)
    if as_json:
        print_json(result)
        return
    say(f"{result['card']}: the board brings back version {result['version']} for {result['installed']} at its start")
