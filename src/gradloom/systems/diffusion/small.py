"""Small UNets with random weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gradloom.models.adapters.lora import Adapter
from gradloom.models.files.unet import UNet, parsed

from .operations import Operation, adapted
from .unet import TARGETS, inputs, operations

__all__ = ["SmallDiffusion", "small_unet"]


def small_unet(
    size: int = 16,
    channels: Sequence[int] = (16, 16),
    attends: Sequence[bool] = (False, True),
    text: int = 16,
    groups: int = 8,
    heads: int = 2,
) -> UNet:
    """A UNet with a level for each number of channels, and 4 in and out.

    ``size``: of its latents, ``attends``: whether a level has cross-attention, ``text``: features of a prompt.
    """
    return parsed(
        "small",
        {
            "sample_size": size,
            "in_channels": 4,
            "block_out_channels": list(channels),
            "down_block_types": ["CrossAttnDownBlock2D" if each else "DownBlock2D" for each in attends],
            "up_block_types": ["CrossAttnUpBlock2D" if each else "UpBlock2D" for each in reversed(attends)],
            "layers_per_block": 1,
            "attention_head_dim": heads,
            "cross_attention_dim": text,
            "norm_num_groups": groups,
        },
    )


@dataclass(frozen=True, eq=False)
class SmallDiffusion:
    """A LoRA step of a UNet: operations, and random weights and adapters.

    Both factors of an adapter are random, so that every gradient has a value.
    """

    shapes: UNet
    text: int
    listed: list[Operation]
    weights: Mapping[str, np.ndarray]
    adapters: dict[str, Adapter]

    @classmethod
    def drawn(cls, shapes: UNet, *, text: int, rank: int = 8, targets: str = "all", seed: int = 0) -> "SmallDiffusion":
        """With prompts of ``text`` tokens; ``targets`` as in a fine-tune."""
        rng = np.random.default_rng(seed)
        listed = operations(shapes, text=text, rank=rank, targets=TARGETS[targets])
        weights = {
            w.name: rng.standard_normal(w.shape) / np.sqrt(np.prod(w.shape[1:]) + 1)
            for each in listed
            for w in each.weights
        }
        adapters = {}
        for each in adapted(listed):
            a, b = ((rank, each.i[0].features), (each.o.features, rank))
            adapters[each.layer] = Adapter(rng.standard_normal(a) / 8, rng.standard_normal(b) / 8, 1.0)
        return cls(shapes, text, listed, weights, adapters)

    def inputs(self, images: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Random inputs of a step, and its noise."""
        rng = np.random.default_rng(seed)
        data = {t.name: rng.standard_normal((images, t.rows, t.features)) for t in inputs(self.shapes, self.text)}
        return data, rng.standard_normal((images, self.shapes.size**2, self.shapes.outputs))
