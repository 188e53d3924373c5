"""The verb ``sweep``.

Modules above this room are imported only when used.
"""

import dataclasses
import enum
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gradloom.output import claimed, continuing, some, staged_file
from gradloom.preset import Preset, find_preset
from gradloom.systems.results import Swept

from ..app import app
from ..output import print_json, progress_bar, say, table
from .generate import configured
from .sweep_points import KEYS, plan_points

__all__ = ["FIGURES", "KEYS", "measure", "plan_points", "sweep"]

#: What is told of it; empty where it is not known, and ``note`` says why where that is no matter of options. ``units``:
#: images that the cycles are for, an image once an epoch, or tokens; ``cycles_a_unit`` compares arrays whose workloads
#: are not of one size. ``toggles``: transitions of nets in a short run, which are relative and no energy.
FIGURES = (
    "cycles",
    "units",
    "cycles_a_unit",
    "milliseconds",
    "memory_bytes",
    "dsp",
    "memory_bits",
    "lut",
    "ff",
    "bram36",
    "uram",
    "levels",
    "accuracy",
    "toggles",
    "toggles_a_cycle",
    "note",
)


class AreaBy(enum.Enum):
    count = "count"
    synthesis = "synthesis"


@app.command(
    "sweep",
    epilog="Example: gradloom sweep digits-ulx3s --rank 1,2,4 --mesh 4x4,8x4 --accuracy -o sweep\n\n"
    "Example: gradloom sweep instantft-kv260 --rank 2,4,8 --codes nf4,int8 --area synthesis -o sweep",
)
def _sweep_verb(
    presets: Annotated[list[str], typer.Argument(metavar="PRESET...", help="Presets: see gradloom list presets.")],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="Where sweep.csv and pareto.png go; a sweep that is there already goes on.",
        ),
    ],
    rank: Annotated[str | None, typer.Option(metavar="N,N,...", help="Ranks of the adapters.")] = None,
    mesh: Annotated[
        str | None, typer.Option(metavar="RxC,...", help="Rows and columns of the array. Default: the preset's.")
    ] = None,
    codes: Annotated[
        str | None,
        typer.Option(
            metavar="C,C,...",
            help="Of the cache: nf4, int8; of a language model's weights: nf4, nf3, nf2; bits of an LSTM: W8A6C8.",
        ),
    ] = None,
    settings: Annotated[
        list[str], typer.Option("--set", metavar="KEY=V,V,...", help="Values of another parameter; repeatable.")
    ] = [],  # noqa: B006
    area: Annotated[AreaBy, typer.Option(help="Also measure area by synthesis (minutes a point).")] = AreaBy.count,
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="Fine-tune the shipped images by the bit-exact reference.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Number of training images, with --accuracy.")] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Number of epochs, with --accuracy. Default: the preset's.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed, with --accuracy.")] = 0,
    toggles: Annotated[
        bool, typer.Option("--toggles", help="Count transitions of nets in a short simulated run (minutes a point).")
    ] = False,
    model: Annotated[
        Path | None, typer.Option(metavar="M.onnx", help="An LSTM in floating point. Default: a shipped one's weights.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="D.npz", help="For --model: x_train, y_train calibrate, x_test, y_test judge."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Points at a time. Default: as many as there are cores.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address of a Dask scheduler; its workers measure the points.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures as JSON.")] = False,
) -> None:
    """Measure cycles, area, memory and accuracy of many designs.

    The table helps to choose rank, array and formats.
    """
    with progress_bar(as_json) as progress:
        rows = sweep(
            presets,
            output,
            rank=rank,
            mesh=mesh,
            codes=codes,
            settings=settings,
            area=area.value,
            accuracy=accuracy,
            limit=limit,
            epochs=epochs,
            seed=seed,
            toggles=toggles,
            model=model,
            data=data,
            jobs=jobs,
            scheduler=scheduler,
            progress=progress,
        )
    if as_json:
        print_json(rows)
    else:
        for preset in presets:
            _show(preset, [row for row in rows if row["preset"] == preset])
        say(f"{output / 'sweep.csv'} has {some(len(rows), 'point')}, drawn in {output / 'pareto.png'}")
    if all(row["cycles"] is None for row in rows):
        raise ValueError(f"points: none of {len(rows)} can be built; their notes in {output / 'sweep.csv'} say why")


def _show(preset: str, rows: list[dict[str, Any]]) -> None:
    """Prints the differences from point to point, and the figures.

    Then come the reasons why some have no figures.
    """
    named = [name for name in ("rank", "mesh", "codes", "settings") if len({row[name] for row in rows}) > 1]
    told = [
        name
        for name in (
            "cycles",
            "cycles_a_unit",
            "milliseconds",
            "memory_bytes",
            "dsp",
            "lut",
            "ff",
            "levels",
            "accuracy",
            "toggles",
            "toggles_a_cycle",
        )
        if any(row[name] is not None for row in rows)
    ]
    good = [row for row in rows if row["cycles"] is not None]
    if good:
        columns = (*named, *(name.replace("_", " ") for name in told))
        table(
            [
                {name: row[name] for name in named}
                | {name.replace("_", " "): "" if row[name] is None else row[name] for name in told}
                for row in good
            ],
            columns,
            False,
            title=preset,
        )
        if "toggles" in told:
            say("toggles: transitions of nets in a short run, all of them and a cycle; relative, no joules")
    else:
        say(f"[italic]{preset}[/italic]: no point has cycles")
    for note in dict.fromkeys(row["note"] for row in rows if row["note"]):
        which = [
            "rank {rank}, {mesh}, {codes}".format_map(row) + (f", {row['settings']}" if row["settings"] else "")
            for row in rows
            if row["note"] == note
        ]
        say(f"{note}: {'; '.join(which[:4])}" + (f" and {len(which) - 4} more" if len(which) > 4 else ""))


def sweep(
    presets: Sequence[str],
    output: Path | str,
    *,
    rank: str | None = None,
    mesh: str | None = None,
    codes: str | None = None,
    settings: Sequence[str] = (),
    area: str = "count",
    accuracy: bool = False,
    limit: int | None = None,
    epochs: int | None = None,
    seed: int = 0,
    toggles: bool = False,
    model: Path | str | None = None,
    data: Path | str | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[dict[str, Any]]:
    """Measures combinations of a sweep, and draws ``output/pareto.png``.

    It measures those that ``output/sweep.csv`` does not have, and returns all rows.

    Lists are texts, as on the command line. A wrong request is a :class:`ValueError` before any work; a combination
    that cannot be built has a row that says why.
    """
    from gradloom.sweeping.picture import plot_pareto
    from gradloom.sweeping.run import SweepTable, cores
    from gradloom.sweeping.run import sweep as run

    points = plan_points(
        presets,
        rank=rank,
        mesh=mesh,
        codes=codes,
        settings=settings,
        area=area,
        accuracy=accuracy,
        limit=limit,
        epochs=epochs,
        seed=seed,
        toggles=toggles,
        model=model,
        data=data,
    )
    folder = Path(output)
    with claimed(folder, verb="sweep"):
        kept = SweepTable(folder / "sweep.csv", KEYS, FIGURES)
        with continuing(lambda: f"{kept.path} has {some(len(kept.rows), 'point')}" if kept.rows else ""):
            run(points, measure, kept, jobs=jobs or cores(), scheduler=scheduler, progress=progress)
        rows = [row for row in map(kept.row, points) if row is not None]
        with staged_file(folder / "pareto.png") as file:
            plot_pareto(file, rows)
    return [{name: _number(value) for name, value in row.items()} for row in rows]


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text or None


def measure(point: Mapping[str, Any]) -> Swept:
    """The figures of a point.

    A combination that cannot exist has none, and a ``note``.
    """
    import warnings

    from gradloom import boards
    from gradloom.rtl.machines.fit import check_fit

    warnings.filterwarnings("ignore", message=".*created but never used")
    preset = find_preset(point["preset"])
    settings = dict(each.split("=", 1) for each in point["settings"].split())
    found: Swept = {}
    try:
        rows, columns = map(int, point["mesh"].split("x"))
        own = preset.workload.resized(preset.config, rows, columns)
        settings = {key: str(value) for key, value in preset.workload.settings_of(point["codes"]).items()} | settings
        settings |= {key: str(value) for key, value in own.items()}
        preset = dataclasses.replace(preset, config=configured(preset.config, settings))
        board = boards.find(preset.board)
        counted = check_fit(preset.config, board)
        boards.check(board, preset)
        found |= {"dsp": sum(counted["dsp"].values()), "memory_bits": sum(counted["memory_bits"].values())}
        found |= preset.workload.function("measure")(preset, point)
        if point["area"] == "synthesis":
            found |= _synthesised(preset, settings)
        if point["toggled"]:
            found |= _toggled(preset, point)
    except ValueError as error:
        return found | {"note": " ".join(str(error).split())}
    return found


def _toggled(preset: Preset, point: Mapping[str, Any]) -> Swept:
    from gradloom.sim.activity.driver import record

    taken = {"rank": point["rank"], "cache": point["codes"]}
    learns = preset.workload.can("finetune")
    known = preset.workload.takes["finetune"].known() if learns else {}
    result = record(preset, None, **{name: value for name, value in taken.items() if name in known})
    return {"toggles": result["toggles"], "toggles_a_cycle": result["toggles_a_cycle"]}


def _synthesised(preset: Preset, settings: Mapping[str, object]) -> Swept:
    import gradloom

    with tempfile.TemporaryDirectory() as folder:
        gradloom.generate(preset.name, f"{folder}/design", settings=settings)
        result = gradloom.report(f"{folder}/design")
    # DSP slices as they are now, and no longer as they are counted.
    total = result["total"]
    return {
        "lut": total["lut"],
        "ff": total["ff"],
        "dsp": total["dsp"],
        "bram36": total["bram36"],
        "uram": total["uram"],
        "levels": result["levels"],
    }
