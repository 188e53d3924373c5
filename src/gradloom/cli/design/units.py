"""The verbs of arrays in files: a unit's RTL on vectors, tensors to NF4."""

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradloom.options import check_request
from gradloom.output import some
from gradloom.rtl.catalog import find_unit, parse_settings

from ..app import app
from ..arguments import Json, Settings, usual_option
from ..output import print_json, say, table, working

if TYPE_CHECKING:
    from gradloom.sim.units.run import UnitRun

__all__ = ["quantize", "run"]


class Simulator(enum.StrEnum):
    verilator = "verilator"
    icarus = "icarus"
    amaranth = "amaranth"


def run(
    unit: str,
    source: Path | str,
    output: Path | str,
    *,
    settings: Mapping[str, object] | None = None,
    simulator: str = "verilator",
) -> "UnitRun":
    """Sends arrays through one unit's RTL and its reference.

    The arrays are of ``source`` (.npz), and both answers go to ``output`` (.npz). Returns ``cycles``, ``equal``,
    ``words`` compared and ``differing`` arrays.

    ``settings``: parameters of the unit by name; ``simulator``: verilator, icarus or amaranth. Arrays that do not fit
    are a :class:`ValueError`.
    """
    from gradloom.sim.units.run import run_unit

    return run_unit(find_unit(unit), Path(source), Path(output), settings=dict(settings or {}), simulator=simulator)


def quantize(source: Path | str, output: Path | str, *, double: bool = False, block: int = 64) -> dict[str, Any]:
    """Quantises every tensor of a file to NF4 in bitsandbytes' layout."""
    from gradloom.models.files.quantized import quantize_file

    return quantize_file(Path(source), Path(output), double=double, block=block) or {}


@app.command(
    "run",
    epilog="Example: gradloom run nf4-encode --describe\n\n"
    "Example: gradloom run nf4-encode --input in.npz --output out.npz --simulator amaranth",
)
def _run_verb(
    unit: Annotated[str, typer.Argument(help="A unit: see gradloom list units.")],
    source: Annotated[Path | None, typer.Option("--input", metavar="IN.npz", help="Arrays to feed.")] = None,
    output: Annotated[Path | None, typer.Option("--output", metavar="OUT.npz", help="Results of the unit.")] = None,
    settings: Settings = [],  # noqa: B006
    simulator: Annotated[Simulator | None, usual_option(help="Simulator of the RTL.", usual="verilator")] = None,
    describe: Annotated[bool, typer.Option("--describe", help="Only list the arrays, their shapes and units.")] = False,
    as_json: Json = False,
) -> None:
    """Send your own vectors through one unit's RTL.

    The bit-exact reference runs beside it.
    """
    from gradloom.sim.units.run import describe_unit

    found = find_unit(unit)
    given = parse_settings(settings)
    if describe:
        check_request(
            "with --describe, which runs nothing", needless={"input": source, "output": output, "simulator": simulator}
        )
        described = describe_unit(found, given)
        if as_json:
            print_json(described)
            return
        say(f"[bold]{found.name}[/bold]: {found.summary}")
        columns = ("name", "shape", "dtype", "units", "description")
        table(described["inputs"], columns, False, title="input")
        table(described["outputs"], columns, False, title="output")
        table(described["parameters"], ("name", "default", "type", "description"), False, title="--set")
        return
    for name, path in (("input", source), ("output", output)):
        if path is None:
            raise ValueError(f"--{name}: is needed (or --describe)")
    assert source is not None and output is not None
    with working(f"simulating {unit}", as_json):
        result = run(unit, source, output, settings=given, simulator=(simulator or Simulator.verilator).value)
    if as_json:
        print_json(result)
    else:
        say(
            f"{result['cycles']:,} cycles; "
            + (f"{100 * result['utilisation']:.1f} % of PE cycles used; " if "utilisation" in result else "")
            + (
                f"equal to the reference in {some(result['words'], 'word')}"
                if result["equal"]
                else f"[red]differs from the reference[/red] in {', '.join(result['differing'])}"
            )
        )
    if not result["equal"]:
        raise typer.Exit(3)


@app.command("quantize", epilog="Example: gradloom quantize weights.safetensors -o weights-nf4.safetensors --double")
def _quantize_verb(
    source: Annotated[Path, typer.Argument(metavar="IN.npz|IN.safetensors", help="Tensors in floating point.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="OUT.safetensors", help="Output file.")],
    double: Annotated[bool, typer.Option("--double", help="Quantise the block scales too.")] = False,
    block: Annotated[int, typer.Option(help="Elements that share a scale.")] = 64,
    as_json: Json = False,
) -> None:
    """Quantise tensors to NF4 in bitsandbytes' own layout and key names."""
    with working(f"quantising {source}", as_json):
        result = quantize(source, output, double=double, block=block)
    if as_json:
        print_json(result)
    else:
        say(f"{output} is written")
