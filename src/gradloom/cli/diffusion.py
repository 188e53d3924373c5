"""Diffusion models in ``plan``, and the verb ``generate-images``."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from gradloom.preset import find_preset
from gradloom.words import some

from .app import app
from .arguments import Json, PresetName
from .output import print_json, progress_bar, say, table

__all__ = ["generate_images", "plan_unet", "say_unet"]

#: The preset that fine-tunes diffusion models.
_OWN = "cdm-qta-kv260"


def plan_unet(
    model: Path | str,
    *,
    preset: str | None = None,
    only: str = "all",
    rank: int | None = None,
    targets: str | None = None,
    seq: int | None = None,
    batch: int = 1,
    array: str | None = None,
    known_prompt: bool = False,
) -> dict[str, Any]:
    """Products, memory and cycles of a LoRA step of a UNet.

    ``rank``: 8 unless given; ``seq``: tokens of the prompt, 77 unless given. ``targets``: cross-attention unless given.
    ``array``: rows and columns as ``64x64``; else the preset's own.

    ``step`` of the result has sums over all operations of a step: see :mod:`gradloom.systems.diffusion.estimate.step`.
    """
    from gradloom.models.files.unet import find_unet
    from gradloom.systems.diffusion.estimate.plan import ARRAY, planned
    from gradloom.systems.diffusion.estimate.step import step_bounds, summed
    from gradloom.systems.diffusion.unet import TARGETS, operations

    if preset not in (None, _OWN):
        raise ValueError(f"preset={preset}: does not fine-tune diffusion models; leave it out, or give {_OWN}")
    net, config = find_unet(model), find_preset(_OWN).config
    text, rank = 77 if seq is None else seq, 8 if rank is None else rank
    targets, size = targets or "cross-attention", ARRAY if array is None else _array(array)
    result = planned(
        net, only=only, rank=rank, targets=targets, text=text, batch=batch, array=size, known_prompt=known_prompt
    )
    learnt = operations(net, text=text, rank=rank, targets=TARGETS[targets])
    return result | {"step": summed(step_bounds(learnt, config, batch, array=size, known_prompt=known_prompt))}


def _array(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,4})[x×](\d{1,4})", text)
    if not found:
        raise ValueError(f"array={text}: must be rows and columns from 1 to 256, as 64x32")
    return int(found[1]), int(found[2])


def say_unet(result: dict[str, Any]) -> None:
    """Prints products by kind, memory and sums."""
    kinds: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in result["products"]:
        shape = tuple(row[key] for key in ("way", "part", "m", "k", "n", "times"))
        kind = kinds.setdefault(
            shape,
            {
                "product": f"{row['way']} {row['part']}",
                "M": row["m"],
                "K": row["k"],
                "N": row["n"],
                "count": 0,
                "M MAC": 0.0,
                "cycles": 0,
                "kB": 0.0,
                "busy %": round(100 * row["utilisation"], 1),
            },
        )
        kind["count"] += row["times"]
        kind["M MAC"] = round(kind["M MAC"] + row["macs"] / 1e6, 1)
        kind["cycles"] += row["cycles"]
        kind["kB"] = round(kind["kB"] + row["bytes"] / 1e3, 1)
    rows = list(kinds.values())
    high, wide = result["array"]
    table(
        rows, tuple(rows[0]), False, title=f"{result['model']}: products by shape on {high}×{wide}, of {result['only']}"
    )
    memory = [{"memory": name.replace("_", " "), "bytes": size} for name, size in result["memory"].items()]
    total = sum(result["memory"].values())
    table([*memory, {"memory": "together", "bytes": total}], ("memory", "bytes"), False)
    say(
        f"{result['parameters']:,} parameters; forward {result['forward_macs'] / 1e9:,.2f} GMAC an image, "
        f"without adapters; "
        f"these products of a LoRA step, rank {result['rank']}: {result['step_macs'] / 1e9:,.2f} GMAC, "
        f"{result['bytes'] / 1e6:,.0f} MB, {result['cycles'] / 1e6:,.2f} M cycles, "
        f"{result['bytes_a_cycle']} bytes a cycle, "
        f"array {100 * result['utilisation']:.1f} % busy"
    )
    say("- cycles are of the products, by shape, loads under compute: no other engine and no memory port is counted")
    step = result["step"]
    say(
        f"- the whole step, every record through memory: bound {step['cycles'] / 1e6:,.2f} M cycles, if operations "
        f"follow one another; alone, array {step['array'] / 1e6:,.2f} M, elements {step['element'] / 1e6:,.2f} M, "
        f"norms {step['norm'] / 1e6:,.2f} M, reading {step['read'] / 1e6:,.2f} M, writing {step['write'] / 1e6:,.2f} M"
    )


def generate_images(
    preset: str,
    *,
    prompt: str,
    output: Path | str,
    adapter: Path | str | None = None,
    alpha: float | None = None,
    count: int = 20,
    steps: int = 25,
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Pictures of a prompt by a diffusion model and an adapter.

    They are made in floating point by DDIM, and written as a grid.

    Parameters
    ----------
    preset : str
        Name of a preset.
    prompt : str
        ``*`` in it stands for the digits 0 to 9 in turn.
    output : path
        .png of the grid.
    adapter : path, optional
        Folder of a fine-tune, or a file of diffusers; else no adapter.
    alpha : float, optional
        Alpha of the adapter; else the file's, or its rank.
    count, steps, seed : int
        Pictures, steps of the sampler, seed of the noise.
    progress : callable, optional
        ``progress(done, total, text)``.

    Returns
    -------
    dict
        What was asked.
    """
    found = find_preset(preset, verb="generate_images")
    result: dict[str, Any] = found.workload.function("generate_images")(
        found,
        prompt=prompt,
        output=Path(output),
        adapter=None if adapter is None else Path(adapter),
        alpha=alpha,
        count=count,
        steps=steps,
        seed=seed,
        progress=progress,
    )
    return result


@app.command(
    "generate-images",
    epilog="Example: gradloom generate-images cdm-qta-kv260 --prompt 'a plain * .' -o grid.png\n\n"
    "Example: gradloom generate-images cdm-qta-kv260 --adapter run --prompt 'a sks 3 .' -o grid.png",
)
def _generate_images_verb(
    preset: PresetName,
    prompt: Annotated[str, typer.Option(help="Prompt; * stands for the digits 0 to 9 in turn.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="GRID.png", help="Picture to write.")],
    adapter: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of a fine-tune, or a file of diffusers. Default: none.")
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Alpha of the adapter.", show_default="the file's, else the rank")
    ] = None,
    count: Annotated[int, typer.Option(help="Number of pictures.")] = 20,
    steps: Annotated[int, typer.Option(help="Steps of the sampler.")] = 25,
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    as_json: Json = False,
) -> None:
    """Make pictures of a prompt by a diffusion model.

    It does so before or after a fine-tune. In floating point, not in RTL.
    """
    with progress_bar(as_json) as progress:
        result = generate_images(
            preset,
            prompt=prompt,
            output=output,
            adapter=adapter,
            alpha=alpha,
            count=count,
            steps=steps,
            seed=seed,
            progress=progress,
        )
    if as_json:
        print_json(result)
    else:
        say(f"{output} has {some(count, 'picture')}")
