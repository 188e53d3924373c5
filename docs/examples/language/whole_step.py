"""Forecasts the program of a model's whole training step.

``python docs/examples/language/whole_step.py [MODEL] [--preset P] [--rank N] [--tokens N] [--layers N] [--latency N]
[--port-reads N] [--whole] [--json]``

The machine of edge-qlora-kv260, or of ``--preset``, with what the model and the rank need; all layers and the head,
adapters of rank 8 on q and v, AdamW. MODEL: a name, or a folder of Hugging Face. Commands do not depend on values, so
that no weights are needed. Layers are equal, and parts of the vocabulary. So programs of ``--layers`` layers and of one
more are forecast, with a part of the vocabulary and with twice as much, and each other layer and word is taken to cost
as much as the last, in time and in memory; ``--whole`` forecasts the program of the whole model. *Useful*: the
multiply-accumulates of ``gradloom plan``, which counts no masked pair.
"""

import argparse
import json
from dataclasses import replace

from gradloom import boards
from gradloom.cli.output import progress_bar
from gradloom.models.files.language.checkpoint import find_model
from gradloom.models.language import LanguageModel
from gradloom.preset import PRESETS
from gradloom.program.descent import AdamW
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.time.forecast import MemoryTime, forecast
from gradloom.systems.text.costs.budget import plan
from gradloom.systems.text.costs.request import TARGETS, BudgetRequest
from gradloom.systems.text.operations.shapes import suited
from gradloom.systems.text.operations.tensors import EDGE
from gradloom.systems.text.program.planned import planned_step

#: Parts of the head in the shorter programs.
_PARTS = 4
_FIGURES = ("cycles", "window_bytes")


def told(model: LanguageModel, config: LanguageConfig, tokens: int, memory: MemoryTime, rank: int) -> list[int]:
    """Cycles of a step, and bytes of its memory."""
    # As far as the machine's rank reaches.
    ranks = {each.name: min(config.rank, rank) for each in model.linears if each.projection in TARGETS["q,v"]}
    program, layout = planned_step(model, ranks, range(model.layers), config, tokens=tokens, rule=AdamW(lr=1e-3))
    return [forecast(program, config=config, memory=memory).total, layout.end + len(program.code)]


def main() -> None:
    """Prints cycles, time and memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--preset", choices=("edge-qlora-genesys2", "edge-qlora-kv260"), default="edge-qlora-kv260")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--layers", type=int, default=1, help="layers of the shortest program")
    parser.add_argument("--latency", type=int, default=100, help="cycles from a read's address to its first beat")
    parser.add_argument("--port-reads", type=int, default=8, help="reads that a port of memory keeps; 0: all")
    parser.add_argument("--whole", action="store_true", help="forecast the program of the whole model")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    model, preset = find_model(asked.model), PRESETS[asked.preset]
    config = suited(preset.config, model, rank=asked.rank, targets=TARGETS["q,v"])
    if not 1 <= asked.layers < model.layers:
        parser.error(f"layers={asked.layers}: must be 1 to {model.layers - 1}, fewer than the model has")
    part = _PARTS * config.head_part * EDGE
    words = min(part, model.vocab)
    shapes = {"least": (asked.layers, words), "a_layer": (asked.layers + 1, words)}
    if model.vocab > words:
        shapes["a_part_of_the_head"] = (asked.layers, words + part)
    if asked.whole:
        shapes = {"whole": (model.layers, model.vocab)}
    found: dict[str, list[int]] = {}
    try:
        memory = MemoryTime(read_latency=asked.latency, port_reads=asked.port_reads)
        request = BudgetRequest(model=model, seq=asked.tokens, rank=asked.rank)
        with progress_bar(asked.json) as progress:
            for number, (name, (layers, vocab)) in enumerate(shapes.items()):
                if progress:
                    progress(number, len(shapes), f"{layers} layers, {vocab} words")
                found[name] = told(replace(model, layers=layers, vocab=vocab), config, asked.tokens, memory, asked.rank)
    except ValueError as error:
        parser.error(str(error))
    said: dict[str, float] = {}
    if asked.whole:
        said |= zip(_FIGURES, found["whole"])
    else:
        more = {name: [each - least for each, least in zip(found[name], found["least"])] for name in list(found)[1:]}
        times = {"a_layer": model.layers - asked.layers, "a_part_of_the_head": (model.vocab - words) / part}
        for number, name in enumerate(_FIGURES):
            added = sum(round(times[each] * figures[number]) for each, figures in more.items())
            said[name] = found["least"][number] + added
        said |= {f"cycles_of_{name}": figures[0] for name, figures in more.items()}
    seconds = said["cycles"] / (config.clock_mhz * 1e6)
    array = config.edge * config.columns
    macs = plan(request, boards.find(preset.board), port_bits=config.data_bits, array=array)["step"]["macs"]
    said |= {
        "milliseconds": round(1e3 * seconds, 1),
        "useful_gmac": round(macs / 1e9, 2),
        "useful_gmac_a_second": round(macs / 1e9 / seconds, 2),
    }
    width = max(map(len, said))
    print(json.dumps(said, indent=2) if asked.json else "\n".join(f"{n:{width}} {each:,}" for n, each in said.items()))


if __name__ == "__main__":
    main()
