"""Costs that gradloom choose composes beside those of whole programs.

``python docs/examples/programs/choose_costs.py [--json]``

Three fine-tunes of SmolLM2-135M on the preset edge-qlora-genesys2, 100 updates of 33 texts of 64 tokens: cycles of an
update by the sum of small programs and by the forecast of the whole program; bytes of the board's memory by the sum of
small programs, as choose tells them of all candidates, and by the job, as choose tells them of finalists and plan
prints them. Needs no weights.
"""

import argparse

from gradloom.choosing.candidates import Candidate
from gradloom.choosing.costs import Costs
from gradloom.cli.output import progress_bar, table
from gradloom.models.language import BUILT_IN
from gradloom.preset import PRESETS
from gradloom.program.descent import AdamW
from gradloom.sim.time.forecast import forecast
from gradloom.systems.text.card.layout import laid_out
from gradloom.systems.text.costs.request import TARGETS
from gradloom.systems.text.program.planned import planned_step

CASES = (
    Candidate(targets=TARGETS["q,v"], rank=8),
    Candidate(targets=TARGETS["q,v"], rank=2, from_layer=15),
    Candidate(targets=TARGETS["all"], rank=8, from_layer=26),
)
#: Of the job.
STEPS, TEXTS = 100, 33


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
            program, _ = planned_step(
                model,
                each.ranks(model),
                range(model.layers),
                config,
                tokens=each.seq,
                rule=AdamW(lr=1e-3),
                kept=bool(each.from_layer),
            )
            whole, found = forecast(program, config=config).total, costs.of(each)
            composed = found.classes(STEPS, each.accumulate, TEXTS)
            job = laid_out(each.shape(model, steps=STEPS, texts=TEXTS), costs.config)
            differs = [name for name in job if job[name] != composed[name]]
            rows.append(
                {
                    "fine-tune": str(each),
                    "composed": found.update_cycles,
                    "whole": whole,
                    "off %": round(100 * (found.update_cycles / whole - 1), 3),
                    "composed bytes": sum(composed.values()),
                    "of the job": sum(job.values()),
                    "classes that differ": ", ".join(differs),
                }
            )
    table(rows, tuple(rows[0]), asked.json)


if __name__ == "__main__":
    main()
