"""Cycles and memory of a step in which only the last layers learn.

``python docs/examples/last_layers.py [--json]``

SmolLM2-135M on the preset edge-qlora-genesys2, 64 tokens, rank 8, AdamW, all layers and the head, by forecast of the
whole programs. Neither cycles nor memory depend on values, so no weights are needed.
"""

import argparse
import json
from dataclasses import asdict

from gradloom.rtl.cli.output import progress_bar, table
from gradloom.rtl.machines.presets import PRESETS
from gradloom.rtl.models.language import BUILT_IN, PROJECTIONS
from gradloom.rtl.plan.language.descent import AdamW
from gradloom.rtl.plan.language.planned import planned_step
from gradloom.sim.workloads.costs import step_cost

#: Adapters on, in layers from, whether what enters that layer is in memory.
CASES = {
    "q, v of all 30 layers": (("q_proj", "v_proj"), 0, False),
    "all linears of the last 4, first step on a text": (tuple(PROJECTIONS), 26, False),
    "all linears of the last 4, later steps": (tuple(PROJECTIONS), 26, True),
}
TOKENS, RANK = 64, 8


def main() -> None:
    """Prints a row a case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    model, config, rows = BUILT_IN["smollm2-135m"], PRESETS["edge-qlora-genesys2"].config, []
    with progress_bar(asked.json) as progress:
        for number, (name, (targets, first, kept)) in enumerate(CASES.items()):
            if progress:
                progress(number, len(CASES), name)
            ranks = {
                each.name: RANK
                for each in model.linears
                if each.projection in targets and int(each.name.split(".")[2]) >= first
            }
            program, layout = planned_step(
                model, ranks, range(model.layers), config, tokens=TOKENS, rule=AdamW(lr=1e-3), kept=kept
            )
            rows.append({"adapters": name, **asdict(step_cost(program, layout, config))})
    if asked.json:
        print(json.dumps(rows, indent=2))
    else:
        table(rows, tuple(rows[0]), False)


if __name__ == "__main__":
    main()
