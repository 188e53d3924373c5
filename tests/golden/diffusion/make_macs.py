"""Counts multiplications and parameters of random UNets by torch, and writes ``macs.json``.

A maintainer's tool: nothing imports it. It needs torch 2.13.0 and diffusers 0.42.1::

    python make_macs.py > macs.json

Networks are on torch's device ``meta``, so no number is computed; ``FlopCounterMode`` counts two operations a
multiplication.
"""

import json
import random

import torch
from diffusers import UNet2DConditionModel
from torch.utils.flop_counter import FlopCounterMode


def draw(rng):
    """A configuration, tokens of a prompt, images."""
    levels = rng.randint(2, 4)
    cross = [rng.random() < 0.6 for _ in range(levels)]
    config = {
        "sample_size": 2 ** (levels - 1) * rng.randint(1, 5),
        "in_channels": rng.randint(1, 9),
        "out_channels": rng.randint(1, 9),
        "block_out_channels": [48 * rng.randint(1, 4) for _ in range(levels)],
        "down_block_types": ["CrossAttnDownBlock2D" if each else "DownBlock2D" for each in cross],
        "up_block_types": ["CrossAttnUpBlock2D" if each else "UpBlock2D" for each in reversed(cross)],
        "layers_per_block": rng.randint(1, 3),
        "attention_head_dim": rng.choice([1, 2, 3]),
        "cross_attention_dim": 8 * rng.randint(1, 9),
        "norm_num_groups": rng.choice([4, 8, 12]),
        "transformer_layers_per_block": rng.randint(1, 2),
        "use_linear_projection": rng.random() < 0.5,
    }
    return config, rng.randint(1, 77), rng.randint(1, 3)


def main():
    rows = []
    for seed in range(3):
        config, text, images = draw(random.Random(seed))
        with torch.device("meta"):
            net = UNet2DConditionModel(**config)
            side = config["sample_size"]
            inputs = (
                torch.zeros(images, config["in_channels"], side, side),
                torch.zeros(images),
                torch.zeros(images, text, config["cross_attention_dim"]),
            )
            with FlopCounterMode(display=False) as counter:
                net(*inputs)
        rows.append(
            {
                "config": config,
                "text": text,
                "images": images,
                "parameters": sum(p.numel() for p in net.parameters()),
                "macs": counter.get_total_flops() // 2,
            }
        )
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
