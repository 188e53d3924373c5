"""Arguments that several verbs have."""

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = [
    "Bits",
    "BITS",
    "Baud",
    "HEAD",
    "Head",
    "Json",
    "Model",
    "PresetName",
    "Settings",
    "TrustedKey",
    "designed",
    "usual_option",
]

Json = Annotated[bool, typer.Option("--json", help="Print figures as JSON.")]
Settings = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change a parameter; repeatable.")]
PresetName = Annotated[str, typer.Argument(metavar="PRESET", help="A preset: see gradloom list presets.")]
Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A .gguf or .safetensors file, or a folder in Hugging Face's format.")
]
BITS = "Bits of a frozen weight's code: 4, 3 or 2."
HEAD = "Format of the head: float16, or nf like the linear layers."
Bits = Annotated[int, typer.Option(help=BITS)]
TrustedKey = Annotated[
    Path | None, typer.Option("--trust", metavar="ROOT.pub", help="Key that signs what the board's firmware installs.")
]
Head = Annotated[str, typer.Option(help=HEAD)]


def usual_option(*names: str, usual: str, **more: Any) -> Any:
    """An option that is None unless given; ``usual`` is its default."""
    return typer.Option(*names, show_default=usual, **more)


def designed(directory: Path) -> Path:
    """A directory of ``generate``, which must have Verilog."""
    if not (directory / "rtl").is_dir():
        raise ValueError(f"{directory}: has no rtl/*.v; name a directory that gradloom generate made")
    return directory


Baud = Annotated[int | None, usual_option(metavar="N", help="Bits a second of the port.", usual="115200")]
