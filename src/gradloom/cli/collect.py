"""The verb that brings a trained adapter off a board."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from gradloom.words import some

from .app import app
from .arguments import Baud, Json
from .cards import any_card, name_of
from .output import print_json, progress_bar, say

__all__ = ["collect"]


def collect(
    output: Path | str,
    *,
    card: Path | str | None = None,
    port: str | None = None,
    host: str | None = None,
    baud: int | None = None,
    tell: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Writes what a board has learnt.

    The output has the adapter in PEFT's format, ``optimizer.safetensors`` and ``log.json``. ``card`` is the memory
    card's device, or a copy of it in a file: on this machine, or on ``host`` (``USER@HOST``, which answers ssh). With
    ``port`` the board itself gives its card's blocks by its UART, at ``baud`` bits a second (115200).

    ``tell`` is told blocks that have arrived, of so many, and what is done.
    """
    from gradloom.output import check_folder, staged
    from gradloom.systems.text.card.collected import collected_files, read_collected

    check_folder(output, verb="collect")
    named = name_of(card, port)
    if host is not None and card is None:
        raise ValueError("host: needs card, the device of the card's reader there, or an image")
    with any_card(card, port, baud=baud, host=host, tell=tell) as file:
        try:
            found = read_collected(file)
        except (OSError, ValueError) as error:
            raise ValueError(f"{named}: {_why(error)}") from None
    with staged(output, verb="collect") as stage:
        log = collected_files(found, stage)
    return {"output": str(output), "model": found.about["model"], **log}


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror or error}: name the card's device or its image"
    return str(error)


@app.command("collect", epilog="Example: gradloom collect --port /dev/ttyUSB0 -o adapter")
def _collect_verb(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Output folder.")],
    card: Annotated[
        Path | None, typer.Option(metavar="CARD", help="The board's memory card: its device, or its image.")
    ] = None,
    port: Annotated[
        str | None, typer.Option(metavar="TTY", help="Serial port of the board, with its card in it.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="USER@HOST", help="Machine that has the card, for ssh. Default: this one.")
    ] = None,
    baud: Baud = None,
    as_json: Json = False,
) -> None:
    """Bring what a board has learnt off its memory card."""
    with progress_bar(as_json) as tell:
        result = collect(output, card=card, port=port, host=host, baud=baud, tell=tell)
    if as_json:
        print_json(result)
        return
    last = next((loss for loss in reversed(result["loss"]) if loss is not None), None)
    loss = "" if last is None else f", last loss {last:.4f} nats a token"
    say(
        f"{output}: {result['model']} after {result['steps']:,} of {some(result['of'], 'step')}, "
        f"{result['parameters']:,} parameters{loss}"
    )
