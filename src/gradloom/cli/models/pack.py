"""The verb that packs a language model's weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypedDict

import typer

from ..app import app
from ..arguments import Bits, Head, Json, Model
from ..output import print_json, progress_bar, say

__all__ = ["PackSizes", "pack"]


class PackSizes(TypedDict):
    """Sizes of weights in the board's layout."""

    model: str
    bits: int
    head: str
    linears: int
    linear_parameters: int
    frozen_bytes: int
    bits_per_parameter: float
    bytes: int


def pack(
    source: Path | str,
    output: Path | str,
    *,
    bits: int = 4,
    head: str = "float16",
    progress: Callable[[int, int, str], None] | None = None,
) -> PackSizes:
    """Writes a language model's weights in the board's layout.

    Returns their sizes.
    """
    from gradloom.models.files.language.checkpoint import find_weights, open_checkpoint
    from gradloom.models.pack import write_pack
    from gradloom.output import check_folder, staged

    check_folder(output, verb="pack")
    checkpoint = open_checkpoint(find_weights(source))
    with staged(output, verb="pack") as stage:
        manifest = write_pack(checkpoint, stage, bits=bits, head=head, progress=progress)
    parameters = checkpoint.model.linear_parameters
    return {
        "model": checkpoint.model.name,
        "bits": bits,
        "head": head,
        "linears": len(manifest["linears"]),
        "linear_parameters": parameters,
        "frozen_bytes": manifest["frozen_bytes"],
        "bits_per_parameter": round(8 * manifest["frozen_bytes"] / parameters, 3),
        "bytes": manifest["bytes"],
    }


@app.command("pack", epilog="Example: gradloom pack SmolLM2-135M-Instruct.Q4_1.gguf -o smollm2-nf4")
def _pack_verb(
    model: Model,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Output folder.")],
    bits: Bits = 4,
    head: Head = "float16",
    as_json: Json = False,
) -> None:
    """Write a language model's weights in the board's layout.

    Each linear has codes and scales in one stream.
    """
    with progress_bar(as_json) as progress:
        result = pack(model, output, bits=bits, head=head, progress=progress)
    if as_json:
        print_json(result)
        return
    say(
        f"[bold]{result['model']}[/bold] is in {output}: {result['linears']} linears, codes and scales "
        f"{result['frozen_bytes']:,} bytes ({result['bits_per_parameter']} bits a parameter), {result['bytes']:,} "
        f"bytes with embedding, norms and head"
    )
