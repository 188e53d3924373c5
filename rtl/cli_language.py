"""The verbs of language models. Like ``cli.py``, it looks upwards only when a verb is used."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["register"]

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A .gguf or .safetensors file, or a folder of Hugging Face's.")
]
Bits = Annotated[int, typer.Option(help="Of a frozen weight's code: 4, 3 or 2.")]
Head = Annotated[str, typer.Option(help="Format of the head: float16, or nf as the linears.")]
Json = Annotated[bool, typer.Option("--json", help="Print figures as JSON.")]


def register(app: typer.Typer) -> None:
    """Adds the verbs to the command line."""
    app.command(epilog="Example: gradloom pack SmolLM2-135M-Instruct.Q4_1.gguf -o smollm2-nf4")(pack)


def pack(
    model: Model,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Where to write.")],
    bits: Bits = 4,
    head: Head = "float16",
    as_json: Json = False,
) -> None:
    """Write a language model's weights in the board's layout: codes and scales in one stream a linear."""
    import gradloom

    from .cli import _print_json, _progress, _say

    with _progress(as_json) as progress:
        result = gradloom.pack(model, output, bits=bits, head=head, progress=progress)
    if as_json:
        _print_json(result)
        return
    _say(
        f"[bold]{result['model']}[/bold] is in {output}: {result['linears']} linears, codes and scales "
        f"{result['frozen_bytes']:,} bytes ({result['bits_per_parameter']} bits a parameter), {result['bytes']:,} "
        f"bytes with embedding, norms and head"
    )
