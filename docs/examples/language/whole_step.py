"""Forecasts the program of a model's whole training step.

``python docs/examples/language/whole_step.py [MODEL] [--preset P] [--tokens N] [--layers N] [--latency N]
[--port-reads N] [--whole] [--json]``

The machine of edge-qlora-kv260, or of ``--preset``; all layers and the head, adapters of rank 8 on q and v, AdamW.
Commands do not depend on values, so that no weights are needed. Layers are equal, and parts of the vocabulary. So
programs of ``--layers`` layers and of one more are forecast, with a part of the vocabulary and with twice as much, and
each other layer and word is taken to cost as much as the last; ``--whole`` forecasts the program of the whole model.
The window is that of the whole program. *Useful*: multiply-accumulates of products with
frozen matrices and between activations, without those of adapters and those that turn tiles.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace

from gradloom.models.language import BUILT_IN, LanguageModel
from gradloom.preset import PRESETS
from gradloom.program.assembler import Assembler
from gradloom.program.descent import AdamW
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.time.forecast import MemoryTime, forecast
from gradloom.systems.text.costs.request import TARGETS
from gradloom.systems.text.operations.base import Operation
from gradloom.systems.text.operations.blocks.attention import IDENTITY
from gradloom.systems.text.operations.learnt.training import training_operations
from gradloom.systems.text.operations.products import Product
from gradloom.systems.text.operations.tensors import EDGE
from gradloom.systems.text.operations.transformer import StepOperations
from gradloom.systems.text.program.layout import Layout
from gradloom.systems.text.program.planned import planned_step

RULE = AdamW(lr=1e-3)
#: Parts of the head in the shorter programs.
_PARTS = 4


def ranks_of(model: LanguageModel, config: LanguageConfig) -> dict[str, int]:
    """Adapters on q and v, as far as the machine's rank reaches, which is at most 8."""
    return {each.name: min(config.rank, 8) for each in model.linears if each.projection in TARGETS["q,v"]}


def planned(model: LanguageModel, config: LanguageConfig, tokens: int) -> tuple[Assembler, Layout]:
    """The program, and its memory."""
    ranks = ranks_of(model, config)
    return planned_step(model, ranks, range(model.layers), config, tokens=tokens, rule=RULE)


def useful(operations: Sequence[Operation]) -> int:
    """Multiply-accumulates that a step wants."""
    return sum(
        each.x.rows * each.x.count * each.y.count * EDGE**2
        for each in operations
        if isinstance(each, Product) and each.x.name != IDENTITY
    )


def extrapolated(
    model: LanguageModel, config: LanguageConfig, tokens: int, layers: int, memory: MemoryTime
) -> dict[str, int]:
    """Cycles of the whole step, of a layer and of 64 words more, by the forecast of three programs."""
    part = _PARTS * config.head_part * EDGE
    words = min(part, model.vocab)

    def told(layers: int, vocab: int) -> int:
        program, _ = planned(replace(model, layers=layers, vocab=vocab), config, tokens)
        return forecast(program, config=config, memory=memory).total

    least = told(layers, words)
    layer = told(layers + 1, words) - least
    head = told(layers, words + part) - least if model.vocab > words else 0
    whole = least + (model.layers - layers) * layer + head * (model.vocab - words) // part
    return {"cycles": whole, "cycles_a_layer": layer, "cycles_of_64_words": head * EDGE // part}


def main() -> None:
    """Prints cycles, time and memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", choices=sorted(BUILT_IN), default="smollm2-135m")
    parser.add_argument("--preset", choices=("edge-qlora-genesys2", "edge-qlora-kv260"), default="edge-qlora-kv260")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--layers", type=int, default=1, help="layers of the shortest program")
    parser.add_argument("--latency", type=int, default=100, help="cycles from a read's address to its first beat")
    parser.add_argument("--port-reads", type=int, default=8, help="reads that a port of memory keeps; 0: all")
    parser.add_argument("--whole", action="store_true", help="forecast the program of the whole model")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    model, config = BUILT_IN[asked.model], PRESETS[asked.preset].config
    if not 1 <= asked.layers < model.layers:
        parser.error(f"layers={asked.layers}: must be 1 to {model.layers - 1}, fewer than the model has")
    try:
        memory = MemoryTime(read_latency=asked.latency, port_reads=asked.port_reads)
        program, layout = planned(model, config, asked.tokens)
        if asked.whole:
            cycles = {"cycles": forecast(program, config=config, memory=memory).total}
        else:
            cycles = extrapolated(model, config, asked.tokens, asked.layers, memory)
    except ValueError as error:
        parser.error(str(error))
    seconds = cycles["cycles"] / (config.clock_mhz * 1e6)
    ranks = ranks_of(model, config)
    step = StepOperations(model, asked.tokens, ranks, range(model.layers), head_part=config.head_part)
    macs = useful(training_operations(step, dict.fromkeys(ranks, 2.0), RULE))
    said = {
        **cycles,
        "milliseconds": round(1e3 * seconds, 1),
        "useful_gmac": round(macs / 1e9, 2),
        "useful_gmac_a_second": round(macs / 1e9 / seconds, 1),
        "window_bytes": layout.end + len(program.code),
    }
    print(json.dumps(said, indent=2) if asked.json else "\n".join(f"{name:20} {each:,}" for name, each in said.items()))


if __name__ == "__main__":
    main()
