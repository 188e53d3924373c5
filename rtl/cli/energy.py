"""The verb that records how often each bit of a design changes."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..catalog import parse_settings
from ..machines.presets import find_preset
from .app import app
from .arguments import Json, Settings
from .generate import configured
from .output import print_json, progress_bar, say, table

__all__ = ["energy"]

_COLUMNS = ("part", "instances", "nets", "toggles_a_cycle", "toggles_a_net", "share")


def energy(
    preset: str,
    *,
    saif: Path | str | None = None,
    settings: Mapping[str, object] | None = None,
    design: Path | str | None = None,
    samples: int = 4,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Switching activity of a preset's short run in simulated RTL.

    It is no energy: no power model of these chips has been calibrated. Vivado's ``report_power`` estimates watts from
    the SAIF file, with ``gradloom build``.

    Parameters
    ----------
    preset : str
    saif : path, optional
        Gets the SAIF file, whose name ends in .saif.
    settings : mapping, optional
        Parameters of the design by name.
    design : path, optional
        Folder of an earlier :func:`generate`, whose Verilog runs; without ``settings``.
    samples : int
        Images or sequences of the run; a language model has one text.
    progress : callable, optional
        ``progress(done, total, text)``.

    Returns
    -------
    dict
        ``run`` in words, ``cycles``, ``nets``, ``toggles_a_cycle`` and ``toggles_a_net`` (transitions of a net in a
        cycle), of all and by ``engines``; ``most_active`` parts with their own nets; ``share`` in percent.
    """
    from gradloom.boards.activity import ACTIVITY_PATH
    from gradloom.sim.activity.driver import record

    found = find_preset(preset)
    find_preset(preset, verb="energy")
    if settings:
        if design is not None:
            raise ValueError(f"design={design}: must be left out with --set, it has its own parameters")
        found = dataclasses.replace(found, config=configured(found.config, dict(settings)))
    return record(
        found,
        None if saif is None else Path(saif),
        design=design,
        samples=samples,
        path=ACTIVITY_PATH,
        progress=progress,
    )


@app.command("energy", epilog="Example: gradloom energy instantft-kv260 --saif activity.saif")
def _energy_verb(
    preset: Annotated[str, typer.Argument(metavar="PRESET", help="A preset: see gradloom presets.")],
    saif: Annotated[
        Path | None, typer.Option(metavar="OUT.saif", help="Write a SAIF file for gradloom build --saif.")
    ] = None,
    settings: Settings = [],  # noqa: B006
    design: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Simulate the Verilog of an earlier gradloom generate.")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Images or sequences of the run.")] = 4,
    as_json: Json = False,
) -> None:
    """Record how often each bit of a design changes in a short run.

    The figures are relative: they are no joules.
    """
    with progress_bar(as_json) as tell:
        result = energy(
            preset, saif=saif, settings=parse_settings(settings), design=design, samples=samples, progress=tell
        )
    if as_json:
        print_json(result)
        return
    whole = {key: result[key] for key in ("nets", "toggles_a_cycle", "toggles_a_net")}
    rows = [*result["engines"], {"part": "all", "instances": 1, **whole, "share": 100.0}]
    say(
        f"[bold]{preset}[/bold]: {result['run']}: {result['cycles']:,} cycles, "
        f"{result['microseconds']:,} us at {result['clock_mhz']} MHz"
    )
    table(rows, _COLUMNS, False, title="transitions of nets (toggles); share in percent")
    table(result["most_active"], _COLUMNS, False, title="most active, nets of the part itself")
    say("Switching activity is relative and no joules: no power model has been calibrated, and wires have no length.")
    if saif is not None:
        say(f"{saif}: with Vivado, gradloom build BOARD DIR --saif {saif} estimates power from it")
