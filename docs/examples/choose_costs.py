"""Costs that gradloom choose composes beside those of whole programs.

``python docs/examples/choose_costs.py [--json]``

Three fine-tunes of SmolLM2-135M on the preset edge-qlora-genesys2, 64 tokens: cycles of an update by the sum of small
programs and by the forecast of the whole program, and bytes of the places that its tensors share. Needs no weights.
"""

import argparse

from gradloom.rtl.cli.output import progress_bar, table
from gradloom.rtl.machines.presets import PRESETS
from gradloom.rtl.models.language import BUILT_IN
from gradloom.rtl.plan.language.budget import TARGETS
from gradloom.rtl.plan.language.descent import AdamW
from gradloom.rtl.plan.language.planned import planned_step
from gradloom.sim.choose.candidates import Candidate
from gradloom.sim.choose.costs import Costs
from gradloom.sim.workloads.costs import step_cost

CASES = (
    Candidate(targets=TARGETS["q,v"], rank=8),
    Candidate(targets=TARGETS["q,v"], rank=2, from_layer=15),
    Candidate(targets=TARGETS["all"], rank=8, from_layer=26),
)


def main() -> None:
    """Prints a row a fine-tune."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    model, config = BUILT_IN["smollm2-135m"], PRESETS["edge-qlora-genesys2"].config
    rows = []
    with progress_bar(asked.json) as progress:
        costs = Costs(model, config, CASES, progress=progress)
        for number, each in enumerate(CASES):
            if progress:
                progress(number, len(CASES), "whole programs")
            program, layout = planned_step(
                model,
                each.ranks(model),
                range(model.layers),
                config,
                tokens=each.seq,
                rule=AdamW(lr=1e-3),
                kept=bool(each.from_layer),
            )
            whole, found = step_cost(program, layout, config), costs.of(each)
            rows.append(
                {
                    "fine-tune": str(each),
                    "composed": found.update_cycles,
                    "whole": whole.cycles,
                    "off %": round(100 * (found.update_cycles / whole.cycles - 1), 3),
                    "shared bytes": found.memory["step_tensors"],
                    "of the whole": whole.shared_bytes,
                }
            )
    table(rows, tuple(rows[0]), asked.json)


if __name__ == "__main__":
    main()
