"""Small UNets with random weights."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradloom.graph.network import Network
from gradloom.models.files.unet import UNet, parsed

from .unet import TARGETS, Values, learners_of, network, operations

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
    """A LoRA step of a UNet with random weights.

    Both factors of an adapter are random, so that every gradient has a value. ``learnt``: of ``network``'s weights
    those of adapters.
    """

    network: Network
    learnt: Values

    @classmethod
    def drawn(cls, shapes: UNet, *, text: int, rank: int = 8, targets: str = "all", seed: int = 0) -> "SmallDiffusion":
        """With prompts of ``text`` tokens; ``targets`` as in a fine-tune."""
        rng = np.random.default_rng(seed)
        listed = operations(shapes, text=text, rank=rank, targets=TARGETS[targets])
        sizes = {weight.name: weight.shape for each in listed for weight in each.weights}
        learners = learners_of(listed)
        frozen = {
            name: rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) + 1)
            for name, shape in sizes.items()
            if name not in learners
        }
        learnt = {name: rng.standard_normal(sizes[name]) / 8 for name in learners}
        return cls(network(listed, frozen | learnt), learnt)

    def inputs(self, images: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Random inputs of a step, and its noise."""
        rng = np.random.default_rng(seed)
        given = {port.name: port.shape for port in self.network.inputs}
        data = {name: rng.standard_normal((images, *given[name])) for name in ("latents", "timestep", "prompt")}
        return data, rng.standard_normal((images, *self.network.outputs[0].shape))
