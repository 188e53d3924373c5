"""Baselines of the diffusion model's fine-tune, in float.

``python docs/examples/diffusion_baselines.py [--steps 200] [--seeds 1] [--style rot90] [--rates R,R,...] [--json]``

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
from gradloom.models.digits_unet import shipped_prompts, shipped_unet
from gradloom.preset import PRESETS
from gradloom.systems.diffusion.baselines import FullUNet, TensorUNet
from gradloom.systems.diffusion.mathematics import FloatDescent, FloatUNet
from gradloom.systems.diffusion.task import fresh_adapters, held_out_loss, samples_of, step_inputs, with_rank
from gradloom.systems.diffusion.unet import operations
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
        self.learn, held = samples_of(DiffusionOptions(seed=seed), more, style)
        self.judged, self.choosing = held.of(np.arange(WORKLOAD.judged)), held.of(np.arange(-CHOOSING, 0))
        self.listed = with_rank(self.shapes, WORKLOAD.rank, "cross-attention")
        self.adapters = fresh_adapters(self.listed, seed)

    def inputs(self, text: str):
        batches = step_inputs(self.shapes, self.learn, batch=WORKLOAD.batch, steps=self.steps, seed=self.seed)
        for number, each in enumerate(batches):
            if self.tell:
                self.tell(number + 1, self.steps, f"seed {self.seed}, {text}")
            yield each

    def lora(self, kind, text: str) -> tuple[float, float]:
        """Loss in float, and by the network's own arithmetic."""
        net, rule, adapters = kind(self.listed, self.weights), FloatDescent(WORKLOAD.lr), self.adapters
        for data, noise in self.inputs(text):
            _, gradients = net.loss_and_gradients(data, noise, adapters)
            adapters = rule(adapters, gradients)
        exact = FloatUNet(self.listed, self.weights)
        return tuple(held_out_loss(each, self.shapes, self.judged, adapters) for each in (exact, net))

    def full(self, rate: float) -> tuple[float, float]:
        """Loss of images that choose the rate, and of those that judge."""
        listed = operations(self.shapes, text=len(shipped_prompts().places))
        net, rule = FullUNet(listed, self.weights), FloatDescent(rate)
        for data, noise in self.inputs(f"all weights, rate {rate:g}"):
            _, gradients = net.loss_and_weight_gradients(data, noise)
            net.held = rule.matrices(net.held, gradients)
        return tuple(held_out_loss(net, self.shapes, each, {}) for each in (self.choosing, self.judged))

    def row(self, rates: list[float]) -> dict:
        before = held_out_loss(FloatUNet(self.listed, self.weights), self.shapes, self.judged, self.adapters)
        real, _ = self.lora(FloatUNet, "LoRA")
        codes, own = self.lora(TensorUNet, "LoRA, a scale a tensor")
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
