"""Cycles, memory and bytes of methods on a language preset.

``python docs/examples/quality/methods.py [--preset NAME] [--latency N] [--port-reads N] [--json]``

SmolLM2-135M on the preset edge-qlora-genesys2, or another, 64 tokens, AdamW, all layers and the head, by forecast of
the whole programs. Neither cycles nor memory depend on values, so no weights are needed.
"""

import argparse
from dataclasses import asdict

from gradloom.cli.output import progress_bar, table
from gradloom.models.adapters.language.methods import LORA_XS, METHODS
from gradloom.models.language import BUILT_IN
from gradloom.preset import PRESETS
from gradloom.program.descent import AdamW
from gradloom.sim.time.forecast import MemoryTime
from gradloom.systems.text.program.planned import planned_step
from gradloom.systems.text.run.costs import step_cost

#: LoRA whose B alone learns.
LORA_FA = "lora-fa"
#: Method, targets, lowest layer that learns, whether what enters it is in memory.
CASES = (
    ("lora", "all", 0, False),
    (LORA_FA, "all", 0, False),
    ("lora-xs", "all", 0, False),
    ("layernorm", "all", 0, False),
    ("ia3", "all", 0, False),
    ("lora", "q,v", 0, False),
    (LORA_FA, "q,v", 0, False),
    ("lora-xs", "q,v", 0, False),
    ("lora", "all", 26, False),
    ("lora", "all", 26, True),
    ("lora-xs", "all", 26, True),
    ("layernorm", "all", 26, True),
    ("ia3", "all", 26, True),
)
TOKENS, RANK = 64, 8


def _first(modules: list[str]) -> int:
    """Values of A of linears."""
    inputs = {each.name: each.inputs for each in BUILT_IN["smollm2-135m"].linears}
    return sum(RANK * inputs[name] for name in modules)


def main() -> None:
    """Prints a row a case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--preset", default="edge-qlora-genesys2")
    parser.add_argument("--latency", type=int, default=40, help="cycles from a read's address to its first beat")
    parser.add_argument("--port-reads", type=int, default=0, help="reads that the memory's port keeps; 0: all")
    asked = parser.parse_args()
    model, config, rows = BUILT_IN["smollm2-135m"], PRESETS[asked.preset].config, []
    memory = MemoryTime(read_latency=asked.latency, port_reads=asked.port_reads)
    with progress_bar(asked.json) as progress:
        for number, (name, targets, first, kept) in enumerate(CASES):
            if progress:
                progress(number, len(CASES), f"{name} from layer {first}")
            held = name == LORA_FA
            method, layers = METHODS["lora" if held else name], range(first, model.layers)
            modules = method.modules(model, method.parse(targets), layers)
            program, layout = planned_step(
                model,
                dict.fromkeys(modules, RANK) if method.ranked else {},
                range(model.layers),
                config,
                tokens=TOKENS,
                rule=AdamW(lr=1e-3),
                kept=kept,
                vectors=() if method.ranked else modules,
                made=modules if method is LORA_XS else (),
                held=held,
            )
            rows.append(
                {
                    "method": name,
                    "targets": targets,
                    "from layer": first,
                    "trunk kept": kept,
                    "parameters": method.parameters(model, method.parse(targets), layers, RANK)
                    - (_first(modules) if held else 0),
                    "update bytes": method.update_bytes(model, method.parse(targets), layers, RANK),
                    **asdict(step_cost(program, layout, config, memory=memory)),
                }
            )
    table(rows, tuple(rows[0]), asked.json)


if __name__ == "__main__":
    main()
