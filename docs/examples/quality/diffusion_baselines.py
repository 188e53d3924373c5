"""Baselines of the diffusion model's fine-tune, in float.

``python docs/examples/quality/diffusion_baselines.py [--steps 200] [--seeds 1] [--style rot90] [--rates R,R,...]
[--json]``

Three fine-tunes of the shipped model on the same images, noise and timesteps:

- LoRA in floating point, as ``gradloom finetune cdm-qta-kv260 --engine float``;
- LoRA whose products take 8-bit codes with a scale a tensor, as CDM-QTA (ISCAS 2025) has them;
- full training: every weight learns, at the rate of ``--rates`` that is best on 256 images which are neither learnt nor
  judged.

It prints the held-out loss of each, judged in float, and that of the second network's own arithmetic.
"""

import argparse
from dataclasses import replace

import numpy as np

from gradloom.cli.output import print_json, progress_bar, table
from gradloom.graph.descent import FloatDescent
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.methods import full
from gradloom.models.digits_unet import shipped_unet
from gradloom.preset import PRESETS
from gradloom.systems.diffusion.baselines import TensorReading
from gradloom.systems.diffusion.task import (
    fresh_adapters,
    held_out_loss,
    loss_and_gradients,
    samples_of,
    step_inputs,
    with_rank,
)
from gradloom.systems.diffusion.unet import network
from gradloom.systems.diffusion.workload import DiffusionOptions

WORKLOAD = PRESETS["cdm-qta-kv260"].workload
#: Images that choose a rate.
CHOOSING = 256


class Case:
    """A seed's images, and its fine-tunes."""

    def __init__(self, seed: int, steps: int, style: str, tell) -> None:
        self.seed, self.steps, self.tell = seed, steps, tell
        self.shapes, self.weights = shipped_unet()
        more = replace(WORKLOAD, judged=WORKLOAD.judged + CHOOSING)
        self.images, held = samples_of(DiffusionOptions(seed=seed), more, style)
        self.judged, self.choosing = held.of(np.arange(WORKLOAD.judged)), held.of(np.arange(-CHOOSING, 0))
        listed = with_rank(self.shapes, WORKLOAD.rank, "cross-attention")
        self.adapters = fresh_adapters(listed, seed)
        self.network = network(listed, self.weights | self.adapters)

    def inputs(self, text: str):
        batches = step_inputs(self.shapes, self.images, batch=WORKLOAD.batch, steps=self.steps, seed=self.seed)
        for number, each in enumerate(batches):
            if self.tell:
                self.tell(number + 1, self.steps, f"seed {self.seed}, {text}")
            yield each

    def judge(self, net, samples, learnt) -> float:
        return held_out_loss(net, self.shapes, samples, learnt)

    def learnt(self, net, learners, rate: float, text: str) -> dict:
        """What learns after all steps."""
        rule = FloatDescent(rate)
        for data, noise in self.inputs(text):
            _, gradients = loss_and_gradients(net, data, noise, learners)
            rule(net.values, gradients)
        return {name: net.values[name] for name in learners}

    def lora(self, kind, text: str) -> tuple[float, float]:
        """Loss in float, and by the network's own arithmetic."""
        net, exact = (each(self.network, dtype=np.float32) for each in (kind, FloatReading))
        learnt = self.learnt(net, set(self.adapters), WORKLOAD.lr, text)
        return tuple(self.judge(each, self.judged, learnt) for each in (exact, net))

    def full(self, rate: float) -> tuple[float, float]:
        """Loss of images that choose the rate, and of those that judge."""
        learning = full(network(with_rank(self.shapes, 0, "cross-attention"), self.weights))
        net = FloatReading(learning.network, dtype=np.float32)
        learnt = self.learnt(net, set(learning.learners), rate, f"all weights, rate {rate:g}")
        return tuple(self.judge(net, each, learnt) for each in (self.choosing, self.judged))

    def row(self, rates: list[float]) -> dict:
        before = self.judge(FloatReading(self.network, dtype=np.float32), self.judged, self.adapters)
        real, _ = self.lora(FloatReading, "LoRA")
        codes, own = self.lora(TensorReading, "LoRA, a scale a tensor")
        tried = {rate: self.full(rate) for rate in rates}
        rate = min(tried, key=lambda each: tried[each][0])
        return {
            "seed": self.seed,
            "before": before,
            "LoRA": real,
            "scale a tensor, adapter": codes,
            "scale a tensor, network": own,
            "share of fall %": 100 * (before - codes) / (before - real),
            "above float %": 100 * (own / real - 1),
            "full rate": rate,
            "full": tried[rate][1],
        }


def main() -> None:
    """Prints a row a seed, and their means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--style", default="rot90")
    parser.add_argument("--rates", default="1e-4,3e-4,1e-3")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rates = [float(each) for each in asked.rates.split(",")]
    with progress_bar(asked.json) as progress:
        rows = [Case(seed, asked.steps, asked.style, progress).row(rates) for seed in range(asked.seeds)]
    mean = {key: sum(row[key] for row in rows) / len(rows) for key in rows[0] if key not in ("seed", "full rate")}
    shown = [*rows, {"seed": "mean", "full rate": "", **mean}] if len(rows) > 1 else rows
    if asked.json:
        print_json(shown)
    else:
        text = [{k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in shown]
        table(text, tuple(rows[0]), False)


if __name__ == "__main__":
    main()
