"""The verb that averages the adapters of several clients."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from .app import app
from .arguments import Json
from .output import print_json, say

__all__ = ["aggregate"]


def aggregate(
    clients: Sequence[Path | str], output: Path | str, *, weights: Sequence[float] = (), rank: int | None = None
) -> dict[str, Any]:
    """Writes the average of adapters in PEFT's format.

    What is averaged is the change of the base, B A; the result tells whether that is exact. ``weights`` are equal
    unless given, ``rank`` is the clients'.
    """
    from gradloom.delivery.aggregate import average
    from gradloom.delivery.installed import read_content
    from gradloom.models.adapters.peft import write_peft
    from gradloom.output import check_folder, staged

    check_folder(output, verb="aggregate")
    if len({str(each) for each in clients}) != len(clients):
        raise ValueError("clients: one of them is named twice")
    made = average({str(each): read_content(each) for each in clients}, weights=weights, rank=rank)
    with staged(output, verb="aggregate") as stage:
        write_peft(stage, made.content.tensors, made.content.config)
    return {
        "output": str(output),
        "clients": len(clients),
        "exact": made.exact,
        "largest_error": max(made.errors.values(), default=0.0),
        "errors": dict(made.errors),
    }


@app.command("aggregate", epilog="Example: gradloom aggregate client1 client2 client3 -o average")
def _aggregate_verb(
    clients: Annotated[list[Path], typer.Argument(metavar="CLIENT_DIR...", help="Adapters in PEFT's format.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Output folder.")],
    weights: Annotated[
        str | None, typer.Option(metavar="W,W,...", help="Weight of each client, such as its samples. Default: equal.")
    ] = None,
    rank: Annotated[int | None, typer.Option(help="Rank of the average. Default: that of a client.")] = None,
    as_json: Json = False,
) -> None:
    """Average the adapters of several clients."""
    result = aggregate(clients, output, weights=_numbers(weights), rank=rank)
    if as_json:
        print_json(result)
        return
    how = (
        "exact"
        if result["exact"]
        else f"by singular values: at most {result['largest_error']:.2%} of a linear's change is left out"
    )
    say(f"{output}: average of {result['clients']} clients, {how}")


def _numbers(text: str | None) -> list[float]:
    try:
        return [float(word) for word in text.split(",")] if text else []
    except ValueError:
        raise ValueError(f"weights={text}: must be numbers with commas between them") from None
