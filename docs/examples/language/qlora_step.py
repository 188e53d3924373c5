"""A training step of SmolLM2-135M in simulated RTL.

``python docs/examples/language/qlora_step.py [--head] [--json]``

The machine of the preset edge-qlora-genesys2, or of ``--preset``, the model's own weights, the text and adapter of the
golden files. Without ``--head``, ``--layers`` decoder blocks forward and backward with all gradients, from the tokens'
embeddings and a random gradient; with it, the last norm, all 49,152 logits, the loss, and AdamW's update too.
``--from-layer K`` has adapters of rank 8 on all linears from layer K on instead, and with ``--kept`` what enters it is
in memory already. ``--forecast`` only plans and forecasts. Memory answers a read in ``--latency`` cycles, and its
port keeps at most ``--port-reads`` of them in flight; ``--dram BOARD`` is the DRAM behind it. *Busy*: share of all
cycles in which an operand of a product that the step wants enters the array; what is spent on turning tiles is not
among them.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.cli.output import progress_bar
from gradloom.models.adapters.lora import fresh_lora, layer_of, load_lora
from gradloom.models.files.language.checkpoint import find_weights, open_checkpoint
from gradloom.models.language import PROJECTIONS
from gradloom.preset import PRESETS
from gradloom.program.descent import AdamW
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.run.machine import MachineRunner
from gradloom.sim.run.memory import dram_of
from gradloom.sim.time.forecast import MemoryTime, forecast
from gradloom.systems.text.operations.blocks.attention import IDENTITY
from gradloom.systems.text.operations.products import Product
from gradloom.systems.text.program.layout import Layout
from gradloom.systems.text.program.step import lower
from gradloom.systems.text.quantized import Quantized
from gradloom.systems.text.run.frozen import Frozen
from gradloom.systems.text.run.step import StepMachine, memory_needed, place_frozen
from gradloom.systems.text.run.training import Training, largest

GOLDEN = Path(__file__).parents[3] / "tests" / "golden" / "qlora_smollm2"
PRESET = "edge-qlora-genesys2"


def prepared(tokens: int, layers: int, head: bool, first: int | None = None, kept: bool = False) -> Training:
    """The step, with the golden adapter or with new ones.

    The golden adapter is used as far as it is on those layers; new ones are on all linears from ``first`` on.
    """
    golden = json.loads((GOLDEN / "curve.json").read_text(encoding="utf-8"))
    checkpoint = Quantized(open_checkpoint(find_weights("smollm2-135m")))
    adapters = {
        name: each
        for name, each in load_lora(GOLDEN / "init", checkpoint.model, rank=golden["r"]).items()
        if layer_of(name) < layers
    }
    frozen = Frozen.of(checkpoint)
    if first is not None:
        adapters = fresh_lora(checkpoint.model, rank=golden["r"], targets=PROJECTIONS, layers=range(first, layers))
    gradient = np.random.default_rng(0).normal(0, 1e-3, (tokens, checkpoint.model.hidden))
    step = Training(
        frozen,
        golden["tokens"][:tokens],
        adapters,
        range(layers),
        head=head,
        inputs={} if head else {"gradient": gradient},
        rule=AdamW(lr=golden["lr"]) if head else None,
    )
    if first is None or not kept:
        return step
    entry = f"{first}.x"
    words = {entry: (step.exact(forward=True).values[entry], 0)}
    return replace(step, layers=range(first, layers), kept=words)


def wanted_cycles(training: Training, config: LanguageConfig) -> float:
    """Cycles of the array on products that the step wants."""
    return sum(
        each.x.count * each.y.count * config.edge * max(each.x.rows, config.columns) / config.columns
        for each in training.operations
        if isinstance(each, Product) and each.x.name != IDENTITY
    )


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--latency", type=int, default=40, help="cycles from a read's address to its first beat")
    parser.add_argument("--port-reads", type=int, default=0, help="reads that the memory's port keeps; 0: all")
    parser.add_argument("--dram", metavar="BOARD", help="the DRAM of this board behind the port")
    parser.add_argument("--preset", default=PRESET)
    parser.add_argument("--from-layer", type=int, help="the lowest layer with adapters")
    for flag in ("head", "kept", "forecast", "json"):
        parser.add_argument(f"--{flag}", action="store_true")
    asked = parser.parse_args()
    with progress_bar(asked.json) as progress:
        said = measured(asked, progress or (lambda done, total, text: None))
    if asked.json:
        print(json.dumps(said, indent=2))
        return
    for name, value in said.items():
        print(f"{name:18} {value:,}" if type(value) is int else f"{name:18} {value}")


def measured(asked: argparse.Namespace, progress: Callable[[int, int, str], object]) -> dict[str, Any]:
    """The step's figures.

    ``progress(done, total, text)`` is called with each stage, and as the simulation goes on.
    """

    def tell(text: str) -> None:
        progress(0, 0, text)

    tell("reading the model")
    config = PRESETS[asked.preset].config
    dram = dram_of(asked.dram, config)
    memory = MemoryTime(read_latency=asked.latency, port_reads=asked.port_reads, dram=dram)
    training = prepared(asked.tokens, asked.layers, asked.head, asked.from_layer, asked.kept)
    tell("step in floating point, for the exponents")
    frac = training.fracs(largest(training.exact()), headroom=1)
    layout = Layout()
    place_frozen(training, layout)
    tell("forecast")
    told = forecast(lower(training.operations, frac, layout, config).instructions, config=config, memory=memory)
    wanted = wanted_cycles(training, config)
    said = {
        "tokens": asked.tokens,
        "layers": asked.layers,
        "head": asked.head,
        "forecast": told.total,
        "busy": wanted / told.total,
        "read_beats": told.read_beats,
        "write_beats": told.write_beats,
    }
    if not asked.forecast:
        tell("step in the reference's integers")
        reference = training.integers(frac)
        simulated = MachineRunner.simulated(
            config,
            memory_bytes=memory_needed(training, frac, config),
            timing=vars(memory) | {"dram": dram.word if dram else 0},
            progress=progress,
            expected=told.total,
        )
        machine = StepMachine(config, device=simulated.device)
        tell("weights and program to the simulation's memory")
        run = machine.run(training, frac)
        machine.close()
        said |= {
            "cycles": run.counters.cycles,
            "busy": wanted / run.counters.cycles,
            "tensors": len(run.values),
            "words": sum(words.size for words in run.values.values()),
            "equal": all(np.array_equal(words, reference.values[name]) for name, words in run.values.items()),
            "loss": run.loss,
            "loss_of_reference": reference.mean_loss,
            "saturated": run.counters.saturated,
        }
    return said


if __name__ == "__main__":
    main()
