"""Held-out loss of adapters on the grid that they are stored in.

``python docs/examples/quality/deploy_losses.py [--json]``

Fine-tunes of SmolLM2-135M: rank 8 on all linears of the last four layers, 24 windows of 64 tokens of
``texts/judged.txt``, each learnt once, AdamW at finetune's rate. One is trained plainly, the others towards a grid.
Each is judged as trained and on every grid, on 12 held-out windows of that text. Floating point on NF4 weights, one
seed. Needs the weights (``make llm``).
"""

import argparse
import json

import numpy as np
from quality_text import MODEL, TEXTS, parts

from gradloom.cli.output import progress_bar
from gradloom.models.adapters.lora import fresh_lora
from gradloom.models.files.language.checkpoint import find_weights, open_checkpoint
from gradloom.models.files.language.tokenizer import open_tokenizer
from gradloom.systems.text.card.deployed import MergedLinears, rounded
from gradloom.systems.text.costs.request import TARGETS
from gradloom.systems.text.quantized import Quantized
from gradloom.systems.text.reference.descent import build, fine_tune
from gradloom.systems.text.reference.optimizers import FloatAdamW

GRIDS, FIRST, LEARNT, JUDGED = ("none", "int8", "nf4", "q8_0"), 26, 24, 12


def main() -> None:
    """Prints a row for each fine-tune."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    weights = find_weights(MODEL)
    checkpoint = Quantized(open_checkpoint(weights))
    model, rows = checkpoint.model, []
    learnt, held = parts(open_tokenizer(weights).encode((TEXTS / "judged.txt").read_text(encoding="utf-8")))
    with progress_bar(as_json) as tell:
        llama = build(checkpoint, progress=tell)
        plain, merged = llama.linears, MergedLinears(llama.linears.weights)
        entries = [llama.entering(FIRST, window) for window in held[:JUDGED]]
        for grid in GRIDS:
            layers = range(FIRST, model.layers)
            adapters = dict(fresh_lora(model, rank=8, targets=TARGETS["all"], layers=layers))
            llama.linears = merged if grid == "q8_0" else plain
            fine_tune(
                llama,
                learnt[:LEARNT],
                adapters,
                FloatAdamW(lr=1e-3),
                LEARNT,
                tell,
                seen=lambda each, grid=grid: rounded(each, grid),
            )
            row: dict[str, str | float] = {"trained towards": grid}
            for stored in GRIDS:
                llama.linears = merged if stored == "q8_0" else plain
                judged = rounded(adapters, stored)
                losses = [llama.loss(window, judged, entry) for window, entry in zip(held, entries)]
                row[stored] = float(np.mean(losses))
            rows.append(row)
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(f"{row['trained towards']:6}" + "".join(f"{stored:>8} {row[stored]:.5f}" for stored in GRIDS))


if __name__ == "__main__":
    main()
