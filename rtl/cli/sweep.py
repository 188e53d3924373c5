"""The verb ``sweep``.

Modules above this room are imported only when used.
"""

import dataclasses
import enum
import itertools
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gradloom import __version__

from ..machines.presets import Preset, find_preset
from ..output import check_folder, staged_file
from .app import app
from .generate import configured
from .output import print_json, progress_bar, say, table

__all__ = ["FIGURES", "KEYS", "measure", "plan_points", "sweep"]

#: What names a point. ``mesh``: rows x columns of the array; ``codes``: of cached activations, or of frozen weights.
KEYS = (
    "gradloom",
    "preset",
    "rank",
    "mesh",
    "codes",
    "settings",
    "area",
    "accuracy_of",
    "epochs",
    "seed",
    "model",
    "data",
)
#: What is told of it; empty where it is not known, and ``note`` says why where that is no matter of options. ``units``:
#: images that the cycles are for, an image once an epoch, or tokens; ``cycles_a_unit`` compares arrays whose workloads
#: are not of one size.
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
    "note",
)


class Area(enum.Enum):
    count = "count"
    synthesis = "synthesis"


@app.command(
    "sweep",
    epilog="Example: gradloom sweep digits-ulx3s --rank 1,2,4 --mesh 4x4,8x4 --accuracy -o sweep\n\n"
    "Example: gradloom sweep instantft-kv260 --rank 2,4,8 --codes nf4,int8 --area synthesis -o sweep",
)
def _sweep_verb(
    presets: Annotated[list[str], typer.Argument(metavar="PRESET...", help="Presets: see gradloom presets.")],
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
    area: Annotated[Area, typer.Option(help="Also measure area by synthesis (minutes a point).")] = Area.count,
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="Fine-tune the shipped images by the bit-exact reference.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Number of training images, with --accuracy.")] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Number of epochs, with --accuracy. Default: the preset's.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed, with --accuracy.")] = 0,
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
        say(f"{len(rows)} points are in {output / 'sweep.csv'}, drawn in {output / 'pareto.png'}")
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
    from gradloom.sim.workloads.plots import plot_pareto
    from gradloom.sim.workloads.sweep import Table, cores
    from gradloom.sim.workloads.sweep import sweep as run

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
        model=model,
        data=data,
    )
    folder = Path(output)
    check_folder(folder)
    kept = Table(folder / "sweep.csv", KEYS, FIGURES)
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


def plan_points(
    presets: Sequence[str],
    *,
    rank: str | None,
    mesh: str | None,
    codes: str | None,
    settings: Sequence[str],
    area: str,
    accuracy: bool,
    limit: int | None,
    epochs: int | None,
    seed: int,
    model: Path | str | None = None,
    data: Path | str | None = None,
) -> list[dict[str, Any]]:
    """All combinations, as plain values by :data:`KEYS`."""
    found = [find_preset(name, verb="measure") for name in presets]
    if len(set(presets)) < len(presets):
        raise ValueError(f"presets {', '.join(presets)}: one is given twice")
    if not accuracy and (limit is not None or epochs is not None):
        raise ValueError(f"{'limit' if limit is not None else 'epochs'}: needs --accuracy")
    ranks = [_integer("rank", part, 1, 64) for part in _parts("rank", rank)]
    meshes = [_mesh(part) for part in _parts("mesh", mesh)]
    axes = [_axis(item) for item in settings]
    if len({axis[0][0] for axis in axes}) < len(axes):
        raise ValueError(f"--set {' '.join(settings)}: a parameter is given twice")
    points = []
    for preset in found:
        workload = preset.workload
        judged, learns = accuracy and workload.has_accuracy, workload.can("prepare")
        for name in _parts("codes", codes):
            workload.check_codes(name, preset.name)
        _check_kind(preset, rank=rank, epochs=epochs, model=model, data=data)
        fields = {field.name for field in dataclasses.fields(preset.config)}
        for (key, _), *_ in axes:
            if key not in fields:
                raise ValueError(f"{key}: no such parameter of {preset.name}; there are {', '.join(sorted(fields))}")
        for one, size, code, chosen in itertools.product(
            ranks or [workload.rank],
            meshes or ["{}x{}".format(*workload.mesh(preset.config))],
            _parts("codes", codes) or [workload.usual_codes],
            itertools.product(*axes),
        ):
            configured(preset.config, dict(chosen), check=False)
            points.append(
                {
                    "gradloom": __version__,
                    "preset": preset.name,
                    "rank": one,
                    "mesh": size,
                    "codes": code,
                    "settings": " ".join(f"{key}={value}" for key, value in chosen),
                    "area": area,
                    "accuracy_of": (limit or "all") if judged else "",
                    "epochs": (epochs or workload.usual("epochs")) if judged and learns else "",
                    "seed": seed if judged and learns else "",
                    "model": str(model or ""),
                    "data": str(data or ""),
                }
            )
    return points


def _check_kind(preset: Preset, **given: Any) -> None:
    """Refuses options that a preset's kind does not have."""
    learns = preset.workload.can("prepare")
    for name in ("model", "data") if learns else ("rank", "epochs"):
        if given[name] is not None:
            why = "sweeps the shipped fine-tune" if learns else "answers and does not learn"
            raise ValueError(f"{name}={given[name]}: must be left out, {preset.name} {why}")
    if (given["model"] is None) != (given["data"] is None):
        one, other = ("model", "data") if given["data"] is None else ("data", "model")
        raise ValueError(f"{one}={given[one]}: needs --{other} too")
    for name in ("model", "data"):
        if given[name] is not None and not Path(given[name]).is_file():
            raise ValueError(f"{name}={given[name]}: no such file")


def _parts(name: str, text: str | None) -> list[str]:
    if text is None:
        return []
    parts = [part.strip() for part in text.split(",")]
    if not all(parts) or len(set(parts)) < len(parts):
        raise ValueError(f"{name}={text}: must be different values with commas between them")
    return parts


def _integer(name: str, text: str, low: int, high: int) -> int:
    if not re.fullmatch(r"\d{1,6}", text) or not low <= int(text) <= high:
        raise ValueError(f"{name}={text}: must be an integer from {low} to {high}")
    return int(text)


def _mesh(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d{0,3}x[1-9]\d{0,3}", text):
        raise ValueError(f"mesh={text}: must be rows and columns, as in 25x16")
    return text


def _axis(item: str) -> list[tuple[str, str]]:
    key, equals, values = item.partition("=")
    if not equals or not key.strip() or not values.strip():
        raise ValueError(f"--set {item}: must be KEY=VALUE,VALUE,...")
    if key.strip() in ("rows", "panels", "edge", "columns"):
        raise ValueError(f"--set {item}: --mesh says how large the array is")
    return [(key.strip(), value) for value in _parts(key.strip(), values)]


def measure(point: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a point.

    A combination that cannot exist has none, and a ``note``.
    """
    import warnings

    from gradloom import boards

    from ..machines.fit import check_fit

    warnings.filterwarnings("ignore", message=".*created but never used")
    preset = find_preset(point["preset"])
    settings = dict(each.split("=", 1) for each in point["settings"].split())
    found: dict[str, Any] = {}
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
    except ValueError as error:
        return found | {"note": " ".join(str(error).split())}
    return found


def _synthesised(preset: Preset, settings: Mapping[str, object]) -> dict[str, Any]:
    import gradloom

    with tempfile.TemporaryDirectory() as folder:
        gradloom.generate(preset.name, f"{folder}/design", settings=settings)
        result = gradloom.report(f"{folder}/design")
    # DSP slices as they are now, and no longer as they are counted.
    return {name: result["total"][name] for name in ("lut", "ff", "dsp", "bram36", "uram")} | {
        "levels": result["levels"]
    }
