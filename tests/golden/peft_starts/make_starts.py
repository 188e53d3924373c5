"""Asks PEFT about starts and recipes of LoRA, and writes ``starts.npz``.

A maintainer's tool: nothing imports it. It needs torch 2.13.0 and peft 0.21.2::

    python make_starts.py

One linear ``w [24, 40]`` without a bias, rank 4, alpha 8. ``pissa`` and ``pissa_rs`` (rsLoRA): ``a``, ``b``, the frozen
``base`` and the ``scale``. ``loftq``: PEFT's decomposition of ``residual``. ``plus``: A and B after each of three steps
of LoRA+ (AdamW, decay 0.1, lr 0.01, ratio 16) on the mean square of ``x w' - y``, and ``plus_rs`` the same with rsLoRA.
"""

from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from peft.optimizers import create_loraplus_optimizer
from peft.utils.loftq_utils import _low_rank_decomposition

RANK, ALPHA = 4, 8


def model(weight, **more):
    net = torch.nn.Sequential(torch.nn.Linear(40, 24, bias=False))
    net[0].weight.data = torch.from_numpy(weight.copy())
    return get_peft_model(net, LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=["0"], **more))


def main():
    random = np.random.default_rng(11)
    w = random.normal(0, 0.1, (24, 40)).astype(np.float32)
    residual = (w * 0.1 * random.normal(0, 1, w.shape)).astype(np.float32)
    x, y = (random.normal(0, 1, (10, size)).astype(np.float32) for size in (40, 24))
    held = {"w": w, "residual": residual, "x": x, "y": y}
    for name, rs in (("pissa", False), ("pissa_rs", True)):
        layer = model(w, init_lora_weights="pissa", use_rslora=rs).base_model.model[0]
        for which, value in (("a", layer.lora_A), ("b", layer.lora_B), ("base", {"default": layer.base_layer})):
            held[f"{name}_{which}"] = value["default"].weight.detach().numpy().copy()
        held[f"{name}_scale"] = layer.scaling["default"]
    found = _low_rank_decomposition(torch.from_numpy(residual), RANK)
    held["loftq_a"], held["loftq_b"] = found["R"].numpy(), found["L"].numpy()
    start = random.uniform(-(40**-0.5), 40**-0.5, (RANK, 40)).astype(np.float32)
    held["plus_start"] = start
    for name, rs in (("plus", False), ("plus_rs", True)):
        net = model(w, use_rslora=rs)
        layer = net.base_model.model[0]
        layer.lora_A["default"].weight.data = torch.from_numpy(start.copy())
        rule = create_loraplus_optimizer(
            net, torch.optim.AdamW, lr=0.01, loraplus_lr_ratio=16, loraplus_weight_decay=0.1
        )
        steps = []
        for _ in range(3):
            loss = ((net(torch.from_numpy(x)) - torch.from_numpy(y)) ** 2).mean()
            rule.zero_grad()
            loss.backward()
            rule.step()
            steps.append([each["default"].weight.detach().numpy().copy() for each in (layer.lora_A, layer.lora_B)])
        held[f"{name}_a"], held[f"{name}_b"] = (np.stack(each) for each in zip(*steps))
    np.savez_compressed(Path(__file__).with_name("starts.npz"), **held)


if __name__ == "__main__":
    main()
