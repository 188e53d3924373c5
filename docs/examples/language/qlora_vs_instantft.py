"""Compares QLoRA and InstantFT of SmolLM2-135M on one text.

``python docs/examples/language/qlora_vs_instantft.py``

Base bytes that each step reads, cycles, loss and adapter parameters. Both on the machine of edge-qlora-genesys2, of the
same rank, from fresh adapters (QLoRA's on q and v), with the same AdamW. Losses in the machine's integers (``--engine
reference``), in floating point (``float``) or of simulated RTL (``rtl``), which also counts the cycles; without it they
are forecasts of the same programs. Needs the weights that ``make llm`` installs.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradloom.models.adapters.language.instant import fresh_instant
from gradloom.models.adapters.lora import fresh_lora
from gradloom.models.files.language.checkpoint import find_weights, open_checkpoint
from gradloom.preset import PRESETS
from gradloom.program.descent import AdamW
from gradloom.sim.time.forecast import MemoryTime, forecast
from gradloom.systems.text.program.layout import Layout
from gradloom.systems.text.program.step import lower
from gradloom.systems.text.program.traffic import base_bytes
from gradloom.systems.text.quantized import Quantized
from gradloom.systems.text.reference.descent import fine_tune
from gradloom.systems.text.reference.llama import Llama
from gradloom.systems.text.reference.optimizers import FloatAdamW as FloatAdamW
from gradloom.systems.text.run.frozen import Frozen
from gradloom.systems.text.run.instant import InstantTrainer, instant_machine
from gradloom.systems.text.run.step import StepMachine, memory_needed, place_frozen
from gradloom.systems.text.run.trainer import Trainer, foretold
from gradloom.systems.text.run.training import Training

GOLDEN = Path(__file__).parents[3] / "tests" / "golden" / "qlora_smollm2"
CONFIG = PRESETS["instantft-llm-genesys2"].config


def cycles_of(training: Training, frac: Mapping[str, int], latency: int) -> int:
    """Cycles of a program."""
    layout = Layout()
    place_frozen(training, layout)
    return forecast(
        lower(training.operations, frac, layout, CONFIG).instructions,
        config=CONFIG,
        memory=MemoryTime(read_latency=latency),
    ).total


def qlora(frozen: Frozen, tokens: list[int], asked: argparse.Namespace) -> dict[str, Any]:
    """Losses, base bytes and cycles of each step."""
    model = frozen.model
    adapters = fresh_lora(model, rank=asked.rank, layers=range(asked.layers))
    size = sum(each.a.size + each.b.size for each in adapters.values())
    trainer = Trainer(frozen, adapters, range(asked.layers), AdamW(lr=asked.lr))
    said: dict[str, Any] = {"adapter_parameters": size, "loss": [], "base_bytes": [], "cycles": []}
    training, frac = trainer.prepared(tokens)
    if asked.engine == "rtl":
        trainer.machine = StepMachine(CONFIG, memory_bytes=memory_needed(training, frac, CONFIG), tell=tell)
        trainer.machine.device.set("read_latency", asked.latency)
    else:
        said["cycles"] = [cycles_of(training, frac, asked.latency)] * asked.steps
    if asked.engine == "float":
        said["loss"] = in_float(frozen, tokens, trainer, asked)
        said["base_bytes"] = [base_bytes(training.operations)] * asked.steps
        return said
    return steps(trainer, tokens, asked, said)


def instant(frozen: Frozen, tokens: list[int], asked: argparse.Namespace) -> dict[str, Any]:
    """The same, and bytes of the cache."""
    blocks = fresh_instant(frozen.model, rank=asked.rank, layers=asked.layers)
    size = sum(each.a.size + each.b.size for each in blocks.values())
    rule = FloatAdamW(lr=asked.lr) if asked.engine == "float" else AdamW(lr=asked.lr)
    trainer = InstantTrainer(frozen, blocks, range(asked.layers), rule)
    said: dict[str, Any] = {
        "adapter_parameters": size,
        "cache_bytes": trainer.instant(tokens).cache_bytes,
        "loss": [],
        "base_bytes": [],
        "cycles": [],
    }
    if asked.engine == "rtl":
        machine = instant_machine(trainer, [tokens], CONFIG, tell)
        machine.device.set("read_latency", asked.latency)
    else:
        planned = InstantTrainer(frozen, dict(blocks), range(asked.layers), AdamW(lr=asked.lr))
        fill = planned.filling(tokens)
        frac = foretold(fill, planned.filled)
        exact = fill.exact().values
        learn = planned.learning(
            tokens,
            {each.name: (exact[each.name] * 2.0 ** frac[each.name], frac[each.name]) for each in fill.instant.cached},
        )
        cycles = cycles_of(learn, foretold(learn, planned.learnt), asked.latency)
        said["cycles"] = [cycles + cycles_of(fill, frac, asked.latency)] + [cycles] * (asked.steps - 1)
    return steps(trainer, tokens, asked, said)


def steps(
    trainer: Trainer | InstantTrainer, tokens: list[int], asked: argparse.Namespace, said: dict[str, Any]
) -> dict[str, Any]:
    """Fills in what steps say."""
    for number in range(asked.steps):
        tell(f"step {number}")
        made = trainer.step(tokens)
        said["loss"].append(made.loss)
        said["base_bytes"].append(made.base_bytes)
        if made.cycles:
            said["cycles"].append(made.cycles["total"])
    if trainer.machine is not None:
        trainer.machine.close()
    return said


def in_float(frozen: Frozen, tokens: list[int], trainer: Trainer, asked: argparse.Namespace) -> list[float]:
    """QLoRA's losses in floating point."""
    checkpoint = Quantized(open_checkpoint(find_weights("smollm2-135m")))
    return fine_tune(
        Llama(frozen.model, checkpoint.tensor, layers=asked.layers),
        [tokens],
        trainer.adapters,
        FloatAdamW(lr=asked.lr),
        asked.steps,
    )


def tell(text: str) -> None:
    """Prints progress on the error stream."""
    print(text, file=sys.stderr)


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, help="the first ones only")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--latency", type=int, default=40, help="cycles from a read's address to its first beat")
    parser.add_argument("--engine", default="reference", choices=("reference", "float", "rtl"))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    checkpoint = Quantized(open_checkpoint(find_weights("smollm2-135m")))
    asked.layers = asked.layers or checkpoint.model.layers
    tokens = json.loads((GOLDEN / "curve.json").read_text(encoding="utf-8"))["tokens"][: asked.tokens]
    frozen = Frozen.of(checkpoint)
    said = {
        "engine": asked.engine,
        "layers": asked.layers,
        "tokens": len(tokens),
        "qlora": qlora(frozen, tokens, asked),
        "instantft": instant(frozen, tokens, asked),
    }
    if asked.json:
        print(json.dumps(said, indent=2))
        return
    ways = said["qlora"], said["instantft"]
    counted = "RTL" if asked.engine == "rtl" else "forecast"
    print(f"{asked.layers} blocks and the head, {len(tokens)} tokens, rank {asked.rank}, loss by {asked.engine}")
    print(
        f"adapter parameters: QLoRA {ways[0]['adapter_parameters']:,}, InstantFT {ways[1]['adapter_parameters']:,}; "
        f"cache {ways[1]['cache_bytes']:,} bytes a text"
    )
    print(f"      base bytes                 cycles ({counted})             loss")
    print("step  QLoRA        InstantFT    QLoRA        InstantFT    QLoRA     InstantFT")
    for number in range(asked.steps):
        row = [f"{way[field][number]:<13,}" for field in ("base_bytes", "cycles") for way in ways]
        print(f"{number:<6}{''.join(row)}{ways[0]['loss'][number]:<10.5f}{ways[1]['loss'][number]:.5f}")


if __name__ == "__main__":
    main()
