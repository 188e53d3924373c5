"""The verb that imports a quantised recurrent network."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..app import app
from ..arguments import Json
from ..output import print_json, say, table, working

if TYPE_CHECKING:
    from gradloom.models.recurrent.stored import NetworkSummary

__all__ = ["import_model"]


def import_model(
    model: Path | str, *, calibrate: Path | str | None = None, bits: str | None = None, output: Path | str | None = None
) -> "NetworkSummary":
    """Reads a quantised recurrent network from ONNX.

    Each quantiser becomes integer arithmetic.

    Parameters
    ----------
    model : path
        ``.onnx``, or the folder of an earlier import.
    calibrate : path, optional
        .npz with sequences ``x``, ``[n, steps, channels]``, or tokens ``[n, steps]``: the model is a native LSTM, GRU
        or RNN in floating point, and is quantised by them.
    bits : str, optional
        Widths of codes for that, ``W8A6C8`` by default: of weights, of activations and gates, and of what the cell
        remembers.
    output : path, optional
        Folder that gets the network in integers, and this report as ``report.json``.

    Returns
    -------
    dict
        Sizes, and ``quantizers``: for each what it ``becomes`` (``nothing``, ``shift``, ``multiply``, ``table``, or
        ``table of codes`` for an activation), the numbers, the range ``from`` which it takes integers, and for which
        integers it is ``exact``. ``fits``: the preset that holds it, or what does not fit and the parameter to
        change.

    Raises
    ------
    ValueError
        The node, its value and the bound. Nothing is written.
    """
    from gradloom.models.recurrent.stored import load_network, save_network, summary
    from gradloom.output import check_folder

    if output is not None:
        check_folder(output, verb="import")
    if calibrate is not None:
        network = _calibrated(Path(model), Path(calibrate), bits)
    elif bits is not None:
        raise ValueError(f"bits={bits}: must be left out unless --calibrate names data")
    else:
        network = load_network(model)
    if output is not None:
        save_network(network, output)
    return summary(network) | {"fits": _fits(network)}


def _fits(network: Any) -> str:
    """Which preset holds a network, or what no design of theirs holds."""
    from gradloom.boards import find as find_board
    from gradloom.preset import PRESETS
    from gradloom.rtl.engines.cell.parameters import CellParameters
    from gradloom.rtl.machines.fit import check_fit
    from gradloom.systems.sequences.sizes_for import chosen, told

    said = []
    for name, preset in PRESETS.items():
        start: Any = preset.config
        if not isinstance(start, CellParameters):
            continue
        try:
            config, why = chosen(network, preset, start)
            check_fit(config, find_board(preset.board))
        except ValueError as error:
            said.append(f"{name} does not hold it: {error}")
        else:
            changed = f", with {told(why)}" if why else ""
            return f"{name} holds it{changed}: gradloom infer MODEL --board {preset.board} --engine rtl runs it"
    return "; ".join(said)


def _calibrated(model: Path, data: Path, bits: str | None) -> Any:
    from gradloom.models.files.archive import read_npz
    from gradloom.models.recurrent.calibrate import Bits, quantized
    from gradloom.models.recurrent.readers.native import load_native
    from gradloom.models.sequences import check_sequences

    widths = None if bits is None else Bits.of(bits)
    network = load_native(model)
    x = read_npz(data, ["x"])["x"]
    try:
        check_sequences("x", x, network.channels, network.tokens)
        return quantized(network, x, widths)
    except ValueError as error:
        raise ValueError(f"calibrate={data}: {error}") from None


@app.command("import", epilog="Example: gradloom import lstm.onnx -o lstm\n\nExample: gradloom import lstm.onnx --json")
def _import_verb(
    model: Annotated[Path, typer.Argument(metavar="M.onnx", help="A recurrent network.")],
    calibrate: Annotated[
        Path | None,
        typer.Option(metavar="D.npz", help="Quantise a network in floating point by sequences x (n, steps, channels)."),
    ] = None,
    bits: Annotated[
        str | None,
        typer.Option(metavar="W8A6C8", help="Bits of weights, activations and the cell's memory for --calibrate."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write the network in integers.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Read a quantised recurrent network from ONNX.

    Shows the integer form of each quantiser.
    """
    with working("importing", as_json):
        told = import_model(model, calibrate=calibrate, bits=bits, output=output)
    if as_json:
        print_json(told)
        return
    from gradloom.models.sequences import taken

    convolutions = len(told["convolutions"])
    say(
        f"{told['name']}: {taken(told['channels'], told['tokens'])}, "
        + (f"{convolutions} convolution{'s' * (convolutions > 1)}, " if convolutions else "")
        + f"{told['kind']} of {told['hidden']} with {told['inputs']} inputs"
        + (f", {told['classes']} classes" if told["classes"] else "")
        + f"; {told['parameters']:,} weights, {told['products_a_step']:,} products a step"
    )
    rows = [
        {
            "quantizer": each["quantizer"],
            "becomes": _arithmetic(each),
            "from": "{:,} to {:,}".format(*each["from"]),
            "codes": f"{each['lo']} to {each['hi']}",
            "exact": each["exact"],
        }
        for each in told["quantizers"]
    ]
    table(rows, ("quantizer", "becomes", "from", "codes", "exact"), False)
    for where, steps in told["host"].items():
        if steps:
            say(f"the host computes {', '.join(steps)} {'in front' if where == 'before' else where}")
    say(told["fits"])
    if output is not None:
        say(f"the network in integers is in {output}")


def _arithmetic(told: dict[str, Any]) -> str:
    """A quantiser's arithmetic, for people."""
    if told["becomes"] == "nothing":
        return "nothing (clip)"
    if told["becomes"] == "table":
        return f"table of {told['thresholds']:,} thresholds"
    if told["becomes"] == "table of codes":
        return f"table of {told['entries']:,} codes"
    low, high = told["addend"]
    addend = f"{low}" if low == high else f"[{low} to {high}]"
    product = "n"
    if told["becomes"] == "multiply":
        low, high = told["multiplier"]
        product = f"n * {low}" if low == high else f"n * [{low} to {high}]"
    text = f"({product} + {addend}) >> {told['shift']}"
    return text + (", half to even" if told["rounding"] != "down" else "")
