"""The verb that brings a trained adapter off a board."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .app import app
from .arguments import Json
from .output import print_json, say

__all__ = ["collect"]


def collect(output: Path | str, *, card: Path | str) -> dict[str, Any]:
    """Writes what a board has learnt.

    The output has the adapter in PEFT's format, ``optimizer.safetensors`` and ``log.json``. ``card`` is the memory
    card's device, or a copy of it in a file.
    """
    from gradloom.sim.workloads.collected import collected_files, read_collected

    from ..output import check_folder, staged

    check_folder(output)
    try:
        with Path(card).open("rb") as file:
            found = read_collected(file)
    except OSError as error:
        raise ValueError(f"card={card}: {error.strerror or error}: name the card's device or its image") from None
    except ValueError as error:
        raise ValueError(f"card={card}: {error}") from None
    with staged(output) as stage:
        log = collected_files(found, stage)
    return {"output": str(output), "model": found.about["model"], **log}


@app.command("collect", epilog="Example: gradloom collect --card /dev/sdb -o adapter")
def _collect_verb(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Output folder.")],
    card: Annotated[Path, typer.Option(metavar="CARD", help="The board's memory card: its device, or its image.")],
    as_json: Json = False,
) -> None:
    """Bring what a board has learnt off its memory card."""
    result = collect(output, card=card)
    if as_json:
        print_json(result)
        return
    last = next((loss for loss in reversed(result["loss"]) if loss is not None), None)
    loss = "" if last is None else f", last loss {last:.4f} nats a token"
    say(
        f"{output}: {result['model']} after {result['steps']:,} of {result['of']:,} steps, "
        f"{result['parameters']:,} parameters{loss}"
    )
