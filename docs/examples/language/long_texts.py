"""A training step of SmolLM2-135M on a long text, by forecast.

``python docs/examples/language/long_texts.py [--tokens 512] [--preset edge-qlora-kv260] [--json]``

Rank 8 on q and v, AdamW, exponents of a plan. A whole program of 512 tokens has more than a million commands, so parts
have programs of their own: one layer and two, forward, backward and updates, and the head on two blocks of 64 tokens
and on three. The step is the first layer, as often as there are others what the second one adds, and the head with what
its third block adds for each further one. *Useful*: the multiply-accumulates of ``gradloom plan``, which counts no
masked pair, over the time at 200 MHz.
"""

import argparse
import json
from collections.abc import Sequence
from typing import Any

from gradloom import boards
from gradloom.cli.output import progress_bar
from gradloom.models.files.language.checkpoint import find_model
from gradloom.models.language import LanguageModel
from gradloom.preset import PRESETS
from gradloom.program.descent import AdamW
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.time.forecast import MemoryTime, forecast
from gradloom.systems.text.costs.budget import plan
from gradloom.systems.text.costs.request import BudgetRequest
from gradloom.systems.text.operations.base import Operation
from gradloom.systems.text.operations.blocks.head import HEAD_MATRIX
from gradloom.systems.text.operations.learnt.training import training_operations
from gradloom.systems.text.operations.tensors import EDGE
from gradloom.systems.text.operations.transformer import StepOperations
from gradloom.systems.text.program.layout import Layout
from gradloom.systems.text.program.planned import exponents
from gradloom.systems.text.program.step import lower

RANK, CLOCK_HZ = 8, 200_000_000


def cycles(operations: Sequence[Operation], model: LanguageModel, config: LanguageConfig, memory: MemoryTime) -> int:
    """Of a program of these operations."""
    layout = Layout()
    layout.place(HEAD_MATRIX, 2 * -(-model.vocab // EDGE) * EDGE * model.hidden)
    program = lower(operations, exponents(operations), layout, config, share=True)
    return forecast(program.instructions, config=config, memory=memory).total


def layers(model: LanguageModel, count: int, tokens: int, config: LanguageConfig) -> list[Operation]:
    """Operations of the first layers, with updates, between a stream and its gradient."""
    ranks = {f"model.layers.{layer}.self_attn.{name}": RANK for layer in range(count) for name in ("q_proj", "v_proj")}
    step = StepOperations(model, tokens, ranks, range(count), head=False, head_part=config.head_part)
    return training_operations(step, dict.fromkeys(ranks, 2.0), AdamW(lr=1e-3))


def head(model: LanguageModel, tokens: int, config: LanguageConfig) -> list[Operation]:
    """Operations of the last norm, the logits, the loss and their gradients."""
    return StepOperations(model, tokens, {}, [model.layers - 1], head_part=config.head_part).logits()


def main() -> None:
    """Plans and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--preset", default="edge-qlora-kv260")
    parser.add_argument("--latency", type=int, default=100, help="cycles from a read's address to its first beat")
    parser.add_argument("--port-reads", type=int, default=8, help="reads that the memory's port keeps; 0: all")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with progress_bar(asked.json) as progress:
        said = measured(asked, progress or (lambda done, total, text: None))
    if asked.json:
        print(json.dumps(said, indent=2))
        return
    for name, value in said.items():
        print(f"{name:14} {value:,}" if isinstance(value, int) else f"{name:14} {value:.2f}")


def measured(asked: argparse.Namespace, progress: Any) -> dict[str, Any]:
    """The step's figures; ``progress(done, total, text)`` is called with each part."""
    preset = PRESETS[asked.preset]
    config, model = preset.config, find_model("smollm2-135m")
    memory = MemoryTime(read_latency=asked.latency, port_reads=asked.port_reads)
    blocks = -(-asked.tokens // EDGE)
    parts = {
        "one layer": layers(model, 1, asked.tokens, config),
        "two layers": layers(model, 2, asked.tokens, config),
        "head, 2 blocks": head(model, 2 * EDGE, config),
        "head, 3 blocks": head(model, 3 * EDGE, config),
    }
    said: dict[str, Any] = {"tokens": asked.tokens}
    for number, (name, operations) in enumerate(parts.items()):
        progress(number, len(parts), name)
        said[name] = cycles(operations, model, config, memory)
    one, two, short, long = (said[name] for name in parts)
    said["a layer"] = two - one
    said["head"] = short + (blocks - 2) * (long - short)
    said["step"] = one + (model.layers - 1) * (two - one) + said["head"]
    request = BudgetRequest(model=model, rank=RANK, seq=asked.tokens)
    array = config.edge * config.columns
    macs = plan(request, boards.find(preset.board), port_bits=config.data_bits, array=array)["step"]["macs"]
    seconds = said["step"] / CLOCK_HZ
    return said | {"seconds": seconds, "GMAC": macs / 1e9, "GMAC/s": macs / seconds / 1e9}


if __name__ == "__main__":
    main()
