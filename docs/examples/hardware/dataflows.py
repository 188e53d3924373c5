"""Dataflows of an INT8 array on a diffusion model's LoRA step.

``python docs/examples/hardware/dataflows.py [--json] [--scale-sim] [-o PICTURE]``

The products are those of the 16 cross-attention layers of Stable Diffusion v1.5, rank 8, one image of 512×512. All
cycles are a model's. ``--scale-sim`` runs SCALE-Sim on the same products at an eighth of all sizes, on an eighth of the
array, and ends with code 1 if its cycles are not those of the model; it takes minutes.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from scale_sim import simulate

from gradloom.compiler.estimate.products import ShapedProduct, backward, forward
from gradloom.models.files.unet import SD_V1_5
from gradloom.systems.diffusion.dataflows import (
    DATAFLOWS,
    DataflowArray,
    Riding,
    exposed_weight,
    of_prompt,
    output_without_drain,
    riding,
)
from gradloom.systems.diffusion.unet import operations

#: 64×32 on two ports of 16 bytes; 64×64 on twice as many, with a second shadow column: five columns of tiles.
ARRAYS = (DataflowArray(), DataflowArray(columns=64, shadow=2, port_bytes=64))
#: Of the small array and the small products that SCALE-Sim runs.
SMALL = 8


def products(*, every: bool = False) -> list[ShapedProduct]:
    """Products of the cross-attention layers.

    ``every``: with the gradients of inputs that nothing needs, the prompt's and the first block's.
    """
    ops = operations(SD_V1_5, rank=8)
    made = [each for each in (*forward(ops), *backward(ops)) if ".attn2.to_" in each.layer]
    if every:
        there = {each.layer for each in made if each.part == "dX"}
        for base in [each for each in made if each.part == "base" and each.layer not in there]:
            made.append(replace(base, part="dX", n=base.k, k=base.n))
            made.append(replace(base, part="PA", n=base.k, k=8, frozen=False))
    return made


def compared(made: list[ShapedProduct], array: DataflowArray, *, cached: bool = False) -> dict[str, Any]:
    """Cycles of each dataflow, and speed-ups over each.

    ``speedup``: of the last, ``hidden``: of loads under compute, which is what the RTL does.
    ``cached``: nothing multiplies a prompt with the frozen weights, in any dataflow.
    """
    if cached:
        made = [each for each in made if not (each.part == "base" and of_prompt(each.layer))]
    macs = sum(each.macs for each in made)
    best: Riding = riding(made, array)
    rows = [
        {"dataflow": name, "cycles": cycles, "busy": macs / (cycles * array.rows * array.columns)}
        for name, law in DATAFLOWS.items()
        for cycles in [sum(law(each, array) for each in made)]
    ]
    rows.append({"dataflow": "adapters ride along", "cycles": best.cycles, "busy": best.utilisation(array)})
    (hidden,) = (row["cycles"] for row in rows if row["dataflow"] == "loads hidden")
    return {
        "macs": macs,
        "array": [array.rows, array.columns],
        "multipliers": array.multipliers,
        "port_bytes": array.port_bytes,
        "bytes": best.bytes,
        "without_memory": best.array,
        "dataflows": [row | {"hidden": row["cycles"] / hidden, "speedup": row["cycles"] / best.cycles} for row in rows],
    }


def held() -> list[dict[str, Any]]:
    """Cycles of SCALE-Sim and of the model, a line a distinct product."""
    array = DataflowArray(rows=64 // SMALL, columns=32 // SMALL)
    sizes = sorted({(each.m, each.k, each.n) for each in products()})
    shapes = [tuple(-(-size // SMALL) for size in shape) for shape in sizes]
    found = []
    for dataflow, law in (("ws", exposed_weight), ("os", output_without_drain)):
        for (m, k, n), cycles in zip(shapes, simulate(shapes, array.rows, array.columns, dataflow), strict=True):
            own = law(ShapedProduct("", "", m=m, k=k, n=n), array)
            found.append({"dataflow": dataflow, "mkn": [m, k, n], "scale_sim": cycles, "model": own})
    return found


def drawn(found: dict[str, Any], path: Path) -> None:
    """Cycles of each dataflow, a bar each, on both arrays."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update(
        {"svg.hashsalt": "gradloom", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    )
    figure, axes = plt.subplots(1, len(ARRAYS), figsize=(8.5, 2.8), sharey=True)
    for place, one in zip(axes, found["needed"]):
        rows = one["dataflows"][::-1]
        bars = place.barh(
            [row["dataflow"] for row in rows],
            [row["cycles"] / 1e6 for row in rows],
            color=["#3f51b5" if row["dataflow"] == "loads hidden" else "#9fa8da" for row in rows],
        )
        place.bar_label(bars, [f"{100 * row['busy']:.0f} %" for row in rows], padding=3)
        high, wide = one["array"]
        place.set(xlabel="million cycles, and multipliers in use", title=f"{high}×{wide}")
        place.margins(x=0.15)
    figure.tight_layout()
    figure.savefig(path, **({"metadata": {"Date": None}} if path.suffix == ".svg" else {"dpi": 120}))


def main() -> None:
    """Prints tables; with ``--scale-sim`` exit code 1 if a law differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--scale-sim", action="store_true", help="run SCALE-Sim beside the model")
    parser.add_argument("-o", "--output", type=Path, help="draw a picture")
    asked = parser.parse_args()
    if asked.scale_sim:
        lines = held()
        for line in lines:
            print(f"{line['dataflow']} {line['mkn']}: SCALE-Sim {line['scale_sim']:,}, model {line['model']:,}")
        sys.exit(any(line["scale_sim"] != line["model"] for line in lines))
    found = {
        "needed": [compared(products(), array) for array in ARRAYS],
        "cached": [compared(products(), array, cached=True) for array in ARRAYS],
        "every": [compared(products(every=True), array) for array in ARRAYS],
    }
    if asked.output:
        drawn(found, asked.output)
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    titles = {
        "needed": "products that an adapter needs",
        "cached": "the same, the prompt's products with frozen weights kept",
        "every": "every layer's dX, whether or not it is needed",
    }
    for name, made in found.items():
        for one in made:
            print(
                f"\n{titles[name]}: {one['macs'] / 1e9:.2f} GMAC on {one['array'][0]}×{one['array'][1]}, "
                f"{one['multipliers']} multipliers with adapters beside, {one['port_bytes']} bytes a cycle"
            )
            for row in one["dataflows"]:
                print(
                    f"  {row['dataflow']:26} {row['cycles'] / 1e6:7.2f} M cycles, {100 * row['busy']:5.1f} % busy, "
                    f"{row['hidden']:.2f} of loads hidden, {row['speedup']:.2f} of the last"
                )


if __name__ == "__main__":
    main()
