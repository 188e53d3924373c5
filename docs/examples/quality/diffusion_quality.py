"""Quality of the INT8 step of the diffusion model against float.

``python docs/examples/quality/diffusion_quality.py [--steps 200] [--seeds 3] [--style rot90] [--json]``

For each seed it fine-tunes the shipped model twice, by ``--engine float`` and by ``--engine reference``, on the same
images, noise and timesteps. It prints, of images that were not learnt:

- the loss before, and after each of both;
- the share of float's fall that the INT8 adapter has, judged by the network in float;
- the loss of the INT8 network with its own adapter, above float's with its own.
"""

import argparse
import tempfile
from pathlib import Path

import gradloom
from gradloom.cli.output import print_json, progress_bar, table

PRESET = "cdm-qta-kv260"


def seed_row(seed: int, steps: int, style: str, folder: Path, progress) -> dict:
    """Figures of a seed."""
    made = {
        engine: gradloom.finetune(
            PRESET,
            engine=engine,
            style=style,
            steps=steps,
            seed=seed,
            generate=0,
            output=folder / f"{engine}{seed}",
            progress=progress,
        )
        for engine in ("float", "reference")
    }
    real, codes = made["float"], made["reference"]
    return {
        "seed": seed,
        "before": real["loss_before"],
        "float": real["loss_after"],
        "INT8 adapter": codes["loss_after"],
        "INT8 network": codes["own_loss_after"],
        "share of fall %": 100
        * (real["loss_before"] - codes["loss_after"])
        / (real["loss_before"] - real["loss_after"]),
        "above float %": 100 * (codes["own_loss_after"] / real["loss_after"] - 1),
        "clipped": codes["saturated"],
        "zeroed %": 100 * codes["zeroed"] / codes["stored"],
    }


def main() -> None:
    """Prints a row a seed, and their means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--style", default="rot90")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows: list[dict] = []
    with tempfile.TemporaryDirectory() as folder, progress_bar(asked.json) as progress:
        for seed in range(asked.seeds):
            rows.append(seed_row(seed, asked.steps, asked.style, Path(folder), progress))
            if progress:
                progress(seed + 1, asked.seeds, f"{rows[-1]}")
    mean = {key: sum(row[key] for row in rows) / len(rows) for key in rows[0] if key != "seed"}
    shown = [*rows, {"seed": "mean", **mean}]
    if asked.json:
        print_json(shown)
    else:
        table([{k: _short(v) for k, v in row.items()} for row in shown], tuple(shown[0]), False)


def _short(value: object) -> object:
    return f"{value:.4f}" if isinstance(value, float) else value


if __name__ == "__main__":
    main()
