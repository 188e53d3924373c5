"""The verb ``sweep``. Like ``cli.py``, it looks upwards only when it is used."""

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

from ..config import Config, LinearConfig
from ..output import check_folder, staged_file
from ..presets import PRESETS, Preset
from .output import print_json, progress_bar, say, table
from .verbs import configured, find_preset

__all__ = ["FIGURES", "KEYS", "block_products", "measure", "plan_points", "register", "sweep"]

#: What names a point. ``mesh``: rows x columns of the array; ``codes``: of cached activations, or of frozen weights.
KEYS = ("gradloom", "preset", "rank", "mesh", "codes", "settings", "area", "accuracy_of", "epochs", "seed")
#: What is told of it; empty where it is not known, and ``note`` says why where that is no matter of options. ``units``:
#: images that the cycles are for, an image once an epoch, or tokens; ``cycles_a_unit`` compares arrays whose workloads
#: are not of one size.
FIGURES = ("cycles", "units", "cycles_a_unit", "milliseconds", "memory_bytes", "dsp", "memory_bits", "lut", "ff",
           "bram36", "uram", "levels", "accuracy", "note")

_IMAGE_CODES, _LANGUAGE_CODES = ("nf4", "int8"), ("nf4", "nf3", "nf2")
_LANGUAGE_RANK = 8      # unless --rank says otherwise
#: Outputs and inputs of the linears of a block of SmolLM2-135M, and tokens of a step.
_BLOCK = ((576, 576), (192, 576), (192, 576), (576, 576), (1536, 576), (1536, 576), (576, 1536))
_TOKENS = 64


class Area(enum.Enum):
    count = "count"
    synthesis = "synthesis"


def register(app: typer.Typer) -> None:
    """Adds the verb to the command line."""
    app.command(
        "sweep",
        epilog="Example: gradloom sweep digits-ulx3s --rank 1,2,4 --mesh 4x4,8x4 --accuracy -o sweep\n\n"
        "Example: gradloom sweep instantft-kv260 --rank 2,4,8 --codes nf4,int8 --area synthesis -o sweep"
    )(_sweep_verb)


def _sweep_verb(
    presets: Annotated[list[str], typer.Argument(metavar="PRESET...", help="Presets: see gradloom presets.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Where sweep.csv and pareto.png go; "
                                         "a sweep that is there already goes on.")],
    rank: Annotated[str | None, typer.Option(metavar="N,N,...", help="Ranks of the adapters.")] = None,
    mesh: Annotated[
        str | None, typer.Option(metavar="RxC,...", help="Rows and columns of the array. Default: the preset's.")
    ] = None,
    codes: Annotated[
        str | None, typer.Option(metavar="C,C,...", help="Of the cache: nf4, int8; of a language model's weights: "
                                 "nf4, nf3, nf2.")
    ] = None,
    settings: Annotated[
        list[str], typer.Option("--set", metavar="KEY=V,V,...", help="Values of another parameter; repeatable.")
    ] = [],  # noqa: B006
    area: Annotated[Area, typer.Option(help="By count, or by open synthesis too: minutes a point.")] = Area.count,
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="Fine-tune by the bit-exact reference, on shipped images.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Of that, so many training images.")] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Of that, times over the data. Default: the preset's.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of that.")] = 0,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Points at a time. Default: as many as there are cores.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A Dask scheduler, whose workers measure instead.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures as JSON.")] = False,
) -> None:
    """Cycles, area, memory and accuracy of many designs: what rank, array and formats to choose."""
    with progress_bar(as_json) as progress:
        rows = sweep(presets, output, rank=rank, mesh=mesh, codes=codes, settings=settings, area=area.value,
                     accuracy=accuracy, limit=limit, epochs=epochs, seed=seed, jobs=jobs, scheduler=scheduler,
                     progress=progress)
    if as_json:
        print_json(rows)
        return
    for preset in presets:
        _show(preset, [row for row in rows if row["preset"] == preset])
    say(f"{len(rows)} points are in {output / 'sweep.csv'}, drawn in {output / 'pareto.png'}")


def _show(preset: str, rows: list[dict[str, Any]]) -> None:
    """What differs from point to point, and what was found; then why some have no figures."""
    named = [name for name in ("rank", "mesh", "codes", "settings") if len({row[name] for row in rows}) > 1]
    told = [name for name in ("cycles", "cycles_a_unit", "milliseconds", "memory_bytes", "dsp", "lut", "ff", "levels",
                              "accuracy") if any(row[name] is not None for row in rows)]
    good = [row for row in rows if row["cycles"] is not None]
    if good:
        columns = (*named, *(name.replace("_", " ") for name in told))
        table([{name: row[name] for name in named} | {
            name.replace("_", " "): "" if row[name] is None else row[name] for name in told} for row in good],
              columns, False, title=preset)
    else:
        say(f"[italic]{preset}[/italic]: no point has cycles")
    for note in dict.fromkeys(row["note"] for row in rows if row["note"]):
        which = ["rank {rank}, {mesh}, {codes}".format_map(row) + (f", {row['settings']}" if row["settings"] else "")
                 for row in rows if row["note"] == note]
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
    jobs: int | None = None,
    scheduler: str | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[dict[str, Any]]:
    """Measures each combination that ``output/sweep.csv`` has not, draws ``output/pareto.png``, returns all rows.

    Lists are texts, as on the command line. What is wrong with the request is a :class:`ValueError` before any work;
    a combination that cannot be built has a row that says why.
    """
    from gradloom.sim.workloads.plots import plot_pareto
    from gradloom.sim.workloads.sweep import Table, cores
    from gradloom.sim.workloads.sweep import sweep as run

    points = plan_points(presets, rank=rank, mesh=mesh, codes=codes, settings=settings, area=area, accuracy=accuracy,
                         limit=limit, epochs=epochs, seed=seed)
    folder = Path(output)
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
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
    presets: Sequence[str], *, rank: str | None, mesh: str | None, codes: str | None, settings: Sequence[str],
    area: str, accuracy: bool, limit: int | None, epochs: int | None, seed: int,
) -> list[dict[str, Any]]:
    """All combinations, as plain values by :data:`KEYS`."""
    found = [find_preset(name) for name in presets]
    if len(set(presets)) < len(presets):
        raise ValueError(f"presets {', '.join(presets)}: one stands there twice")
    if not accuracy and (limit is not None or epochs is not None):
        raise ValueError(f"{'limit' if limit is not None else 'epochs'}: is of --accuracy, which is not asked for")
    ranks = [_integer("rank", part, 1, 64) for part in _parts("rank", rank)]
    meshes = [_mesh(part) for part in _parts("mesh", mesh)]
    axes = [_axis(item) for item in settings]
    if len({axis[0][0] for axis in axes}) < len(axes):
        raise ValueError(f"--set {' '.join(settings)}: a parameter stands there twice")
    points = []
    for preset in found:
        usual = _LANGUAGE_RANK if preset.language else preset.workload.rank
        known = _LANGUAGE_CODES if preset.language else _IMAGE_CODES
        for name in _parts("codes", codes):
            if name not in known:
                raise ValueError(f"codes={name}: {preset.name} has {', '.join(known)}")
        fields = {field.name for field in dataclasses.fields(preset.config)}
        for (key, _), *_ in axes:
            if key not in fields:
                raise ValueError(f"{key}: no such parameter of {preset.name}; there are {', '.join(sorted(fields))}")
        for one, size, code, chosen in itertools.product(
            ranks or [usual], meshes or [_own_mesh(preset.config)],
            _parts("codes", codes) or ["nf4"], itertools.product(*axes),
        ):
            configured(preset.config, dict(chosen), check=False)
            points.append({
                "gradloom": __version__, "preset": preset.name, "rank": one, "mesh": size,
                "codes": code, "settings": " ".join(f"{key}={value}" for key, value in chosen), "area": area,
                "accuracy_of": (limit or "all") if accuracy and not preset.language else "",
                "epochs": (epochs or preset.workload.epochs) if accuracy and not preset.language else "",
                "seed": seed if accuracy and not preset.language else "",
            })
    return points


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


def _own_mesh(config: Config | LinearConfig) -> str:
    rows = config.edge if isinstance(config, LinearConfig) else config.rows
    return f"{rows}x{config.columns}"


def _changes(preset: Preset, mesh: str) -> dict[str, int]:
    """Parameters that make the array so large."""
    rows, columns = map(int, mesh.split("x"))
    if preset.language:
        return {"edge": rows, "columns": columns}
    wide = preset.config.rank
    if columns % wide:
        raise ValueError(f"mesh={mesh}: columns must be a multiple of {wide}, those of a panel")
    return {"rows": rows, "panels": columns // wide}


def measure(point: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a point. A combination that cannot be has none, and a ``note``."""
    import warnings

    from gradloom import boards

    from ..resources import check_fit

    warnings.filterwarnings("ignore", message=".*created but never used")
    preset = PRESETS[point["preset"]]
    settings = dict(each.split("=", 1) for each in point["settings"].split())
    found: dict[str, Any] = {}
    try:
        settings |= {key: str(value) for key, value in _changes(preset, point["mesh"]).items()}
        config = configured(preset.config, settings)
        board = boards.find(preset.board)
        counted = check_fit(config, board)
        boards.check(board, config)
        found |= {"dsp": sum(counted["dsp"].values()), "memory_bits": sum(counted["memory_bits"].values())}
        found |= (_of_language if preset.language else _of_images)(preset, config, point)
        if point["area"] == "synthesis":
            found |= _synthesised(preset, settings)
    except ValueError as error:
        return found | {"note": " ".join(str(error).split())}
    return found


def _of_images(preset: Preset, config: Config, point: Mapping[str, Any]) -> dict[str, Any]:
    from gradloom.sim.workloads import images as finetune
    from gradloom.sim.workloads.expectation import expectation

    expected = expectation(config, preset.workload, rank=point["rank"], wide=point["codes"] == "int8")
    if expected["forecast"] is None:
        raise ValueError(expected["reason"])
    cycles, units = expected["forecast"]["cycles"], expected["workload"]["samples"] * expected["workload"]["epochs"]
    found = {"cycles": cycles, "units": units, "cycles_a_unit": round(cycles / units, 1),
             "milliseconds": expected["forecast"]["milliseconds"],
             "memory_bytes": expected["memory_map"]["window_bytes"]}
    if point["accuracy_of"] != "":
        limit = None if point["accuracy_of"] == "all" else point["accuracy_of"]
        with tempfile.TemporaryDirectory() as folder:
            metrics = finetune.finetune(
                dataclasses.replace(preset, config=config), output=Path(folder), engine="reference", rank=point["rank"],
                cache=point["codes"], limit=limit, epochs=point["epochs"], seed=point["seed"])
        found["accuracy"] = round(metrics["accuracy_after"], 6)
        if metrics["diverged"]:
            found["note"] = f"the fine-tune diverged: {'; '.join(metrics['diverged'])}"
    return found


def _of_language(preset: Preset, config: LinearConfig, point: Mapping[str, Any]) -> dict[str, Any]:
    """Memory of fine-tuning SmolLM2-135M as ``plan`` counts it, and cycles by forecast.

    QLoRA: of the linears of a block, forward and back. InstantFT: of a step on a text that is in the cache.
    """
    from gradloom import boards
    from gradloom.sim.time.forecast import forecast_products
    from gradloom.sim.workloads.instant_forecast import later_step_cycles

    from ..models.checkpoint import find_model
    from ..plan.language.budget import Request
    from ..plan.language.fit import DoesNotFit, Misfit, planned
    from ..plan.language.operations import EDGE

    bits, tokens = int(point["codes"].removeprefix("nf")), min(_TOKENS, config.tokens)
    instant = preset.method == "instantft"
    if instant and config.edge != EDGE:
        raise ValueError(f"mesh={point['mesh']}: must have {EDGE} rows for {preset.name}; give --mesh "
                         f"{EDGE}x{config.columns}")
    request = Request(model=find_model("smollm2-135m"), rank=point["rank"], targets=_targets(), bits=bits,
                      seq=tokens if instant else _TOKENS)
    figures = planned(request, boards.find(preset.board), config if instant else None, method=preset.method)
    found: dict[str, Any] = {"memory_bytes": figures["total_bytes"]}
    if bits != 4:
        return found | {"note": f"codes={point['codes']}: the machine reads codes of 4 bits; memory alone is counted"}
    if instant:
        if not figures["fits"]:
            raise DoesNotFit([str(Misfit(**each)) for each in figures["misfits"]])
        cycles = later_step_cycles(config, request.model, rank=request.rank, tokens=tokens)
    else:
        cycles = sum(forecast_products(block_products(config, rank=point["rank"], tokens=tokens, backward=backward),
                                       config=config).total for backward in (False, True))
    return found | {"cycles": cycles, "units": tokens, "cycles_a_unit": round(cycles / tokens, 1),
                    "milliseconds": round(cycles / (1e3 * config.clock_mhz), 3)}


def block_products(config: LinearConfig, *, rank: int, tokens: int, backward: bool = False) -> list[Any]:
    """The products of the seven linears of a block of SmolLM2-135M, one behind the other; ``rank`` 0: no adapters."""
    from ..plan.language.linear import Exponents, LayerMap, LayerPlan, LayerShape

    # Cycles do not depend on values; these exponents are within all bounds.
    exponents = Exponents(x=16, w=18, a=16, b=16, h=16, y=16, dy=16, dh=16, dx=16, ga=16, gb=16)
    plans: list[LayerPlan] = []
    for outputs, inputs in _BLOCK:
        shape = LayerShape(outputs=outputs, inputs=inputs, rank=max(rank, 2), tokens=tokens)
        place = LayerMap.place(shape, config, plans[-1].place.end if plans else 1 << 18)
        plans.append(LayerPlan(shape=shape, exponents=exponents, place=place, config=config))
    jobs = [each.job(backward=backward) for each in plans]
    return jobs if rank else [dataclasses.replace(job, rank=0, lanes=()) for job in jobs]


def _targets() -> tuple[str, ...]:
    from ..plan.language.budget import parse_targets

    return parse_targets("all")


def _synthesised(preset: Preset, settings: Mapping[str, object]) -> dict[str, Any]:
    import gradloom

    with tempfile.TemporaryDirectory() as folder:
        gradloom.generate(preset.name, f"{folder}/design", settings=settings)
        result = gradloom.report(f"{folder}/design")
    # DSP slices as they are now, and no longer as they are counted.
    return {name: result["total"][name] for name in ("lut", "ff", "dsp", "bram36", "uram")} | {
        "levels": result["levels"]}
