"""The verb that records how often each bit of a design changes."""

import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, overload

import typer

from gradloom.options import check_request
from gradloom.output import some
from gradloom.preset import Preset, find_preset
from gradloom.rtl.catalog import parse_settings

from ..app import app
from ..arguments import Json, Settings, usual_option
from ..output import print_json, progress_bar, say, table
from .generate import configured

if TYPE_CHECKING:
    from gradloom.sim.activity.board import MeasuredEnergy
    from gradloom.sim.activity.driver import Activity

__all__ = ["energy"]

_COLUMNS = ("part", "instances", "nets", "toggles_a_cycle", "toggles_a_net", "share")


@overload
def energy(
    preset: str,
    *,
    saif: Path | str | None = None,
    settings: Mapping[str, object] | None = None,
    design: Path | str | None = None,
    samples: int | None = None,
    host: None = None,
    repeats: None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> "Activity": ...


@overload
def energy(
    preset: str,
    *,
    saif: None = None,
    settings: Mapping[str, object] | None = None,
    design: Path | str | None = None,
    samples: int | None = None,
    host: str,
    repeats: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> "MeasuredEnergy": ...


def energy(
    preset: str,
    *,
    saif: Path | str | None = None,
    settings: Mapping[str, object] | None = None,
    design: Path | str | None = None,
    samples: int | None = None,
    host: str | None = None,
    repeats: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> "Activity | MeasuredEnergy":
    """Switching activity of a preset's short run in simulated RTL.

    It is no energy: no power model of these chips has been calibrated. Vivado's ``report_power`` estimates watts from
    the SAIF file, with ``gradloom build``. With ``host`` nothing is simulated: a KV260 that has the design runs the
    preset's fine-tune, and its power sensor measures joules.

    Parameters
    ----------
    preset : str
    saif : path, optional
        Gets the SAIF file, whose name ends in .saif.
    settings : mapping, optional
        Parameters of the design by name.
    design : path, optional
        Folder of an earlier :func:`generate`, whose Verilog runs; without ``settings``.
    samples : int, optional
        Images or sequences of the run, else 4, and on a board the preset's own; a language model has one text.
    host : str, optional
        ``USER@HOST`` of a KV260 for ssh, after :func:`flash`.
    repeats : int, optional
        Measured runs on the board, at least 100, which is the default.
    progress : callable, optional
        ``progress(done, total, text)``.

    Returns
    -------
    dict
        ``run`` in words, ``cycles``, ``nets``, ``toggles_a_cycle`` and ``toggles_a_net`` (transitions of a net in a
        cycle), of all and by ``engines``; ``most_active`` parts with their own nets; ``share`` in percent. From a board
        ``gross_joules`` and ``net_joules`` (without idle power), both also ``_a_run``; ``idle_watts``, ``mean_watts``,
        ``idle_drift_watts``; least and most ``cycles``, and ``forecast_cycles``.
    """
    from gradloom.boards.vivado.activity import ACTIVITY_PATH
    from gradloom.sim.activity.driver import SAMPLES, record

    found = find_preset(preset)
    find_preset(preset, verb="energy")
    if settings:
        if design is not None:
            raise ValueError(f"design={design}: must be left out with --set, it has its own parameters")
        found = dataclasses.replace(found, config=configured(found.config, dict(settings)))
    if host is not None:
        if saif is not None:
            raise ValueError(f"saif={saif}: must be left out with --host, a board does not tell its transitions")
        return _measured(found, design, samples, host, 100 if repeats is None else repeats, progress)
    check_request("without --host, whose board is measured", needless={"repeats": repeats})
    return record(
        found,
        None if saif is None else Path(saif),
        design=design,
        samples=SAMPLES if samples is None else samples,
        path=ACTIVITY_PATH,
        progress=progress,
    )


def _measured(
    preset: Preset,
    design: Path | str | None,
    samples: int | None,
    host: str,
    repeats: int,
    progress: Callable[[int, int, str], None] | None,
) -> "MeasuredEnergy":
    from gradloom import boards
    from gradloom.boards.kv260.bundle.flash import design_name
    from gradloom.boards.links.ssh import valid_host
    from gradloom.sim.activity.board import board_request

    board = boards.find(preset.board)
    boards.require_sensor(board, host)
    valid_host(host)
    name = "gradloom" if design is None else design_name(Path(design))
    tell = progress or (lambda done, total, text: None)
    with tempfile.TemporaryDirectory(prefix="gradloom.") as folder:
        request, facts = board_request(
            preset, design=design, samples=samples, repeats=repeats, scratch=Path(folder), tell=tell
        )
    tell(0, 0, f"measuring {some(repeats, 'run')} on {host}")
    return {
        "preset": preset.name,
        "host": host,
        **facts,
        **boards.measured(board, host=host, name=name, request=request),
    }


def _show_measured(result: Mapping[str, Any]) -> None:
    low, high = result["cycles"]
    say(
        f"[bold]{result['preset']}[/bold] on {result['host']}: {some(result['repeats'], 'run')} of "
        f"{result['samples']:,} "
        f"samples, {some(result['epochs'], 'epoch')}, in {result['seconds']:.2f} s, "
        f"{result['samples_of_sensor']} of the sensor"
    )
    say(f"cycles of a run: {low:,} to {high:,}; forecast {result['forecast_cycles']:,}")
    say(
        f"board: {result['mean_watts']:.3f} W, idle {result['idle_watts']:.3f} W (after the runs "
        f"{result['idle_drift_watts']:+.3f} W)"
    )
    say(
        f"a run: {1e3 * result['gross_joules_a_run']:.3f} mJ of the whole board, "
        f"{1e3 * result['net_joules_a_run']:.3f} mJ above idle"
    )


@app.command("energy", epilog="Example: gradloom energy instantft-kv260 --saif activity.saif")
def _energy_verb(
    preset: Annotated[str, typer.Argument(metavar="PRESET", help="A preset: see gradloom list presets.")],
    saif: Annotated[
        Path | None, typer.Option(metavar="OUT.saif", help="Write a SAIF file for gradloom build --saif.")
    ] = None,
    settings: Settings = [],  # noqa: B006
    design: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Simulate the Verilog of an earlier gradloom generate.")
    ] = None,
    samples: Annotated[
        int | None, usual_option(min=1, help="Images or sequences of the run.", usual="4; with --host the preset's")
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="USER@HOST", help="Measure joules on a KV260 that has the design, over ssh.")
    ] = None,
    repeats: Annotated[int | None, usual_option(min=100, help="Measured runs, with --host.", usual="100")] = None,
    as_json: Json = False,
) -> None:
    """Record how often each bit of a design changes in a short run.

    The figures are relative: they are no joules. With --host a board's power sensor measures joules instead.
    """
    given: dict[str, Any] = {"saif": saif, "design": design, "samples": samples, "host": host, "repeats": repeats}
    with progress_bar(as_json) as tell:
        result = energy(preset, settings=parse_settings(settings), progress=tell, **given)
    if as_json:
        print_json(result)
        return
    if host is not None:
        _show_measured(result)
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
