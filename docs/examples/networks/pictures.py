"""A small CNN and a compact transformer learn turned, noisy or new pictures, by each method of the tile machine.

``python docs/examples/networks/pictures.py base`` trains ``cnn.onnx`` and ``cct.onnx`` on Fashion-MNIST; it needs the
extra ``train``. ``python docs/examples/networks/pictures.py cnn|cct [--task turned|noisy|new] [--seeds 3] [--json
FILE]`` then fine-tunes one by each method, as the preset ``tile-kv260`` does, in the machine's integers and in float.
``python docs/examples/networks/pictures.py draw FILE ... -o PICTURE.svg`` draws accuracy over cycles.

The images are those of Debian's package ``dataset-fashion-mnist``. The networks learn from the 60,000; of the other
10,000, which they have not seen, the first 2,000 in drawn order choose rate and epochs of each method, in float, and of
the rest a seed draws what is learnt from and what judges. ``new``: the networks have not seen bags and boots.
"""

import argparse
import gzip
import json
import tempfile
from pathlib import Path

import numpy as np

import gradloom
from gradloom.cli.output import progress_bar, table

IMAGES, PRESET = Path("/usr/share/datasets/fashion-mnist"), "tile-kv260"
#: Images to learn from, to choose by, to judge by.
LEARN, CHOOSE, JUDGE, CHOOSING = 256, 256, 400, 2000
RATES, EPOCHS, BATCH, RANK = (1e-3, 3e-3, 1e-2, 3e-2), 5, 16, 4
#: Classes that a network for the task ``new`` has not seen.
NEW = (8, 9)
#: By network, options of each row.
METHODS = {
    "cnn": {
        "lora, last 2": {"targets": "last:2"},
        "instantft": {"method": "instantft"},
        "head": {"method": "head"},
        "lora, all": {"targets": "*"},
        "bias": {"method": "bias"},
        "full": {"method": "full"},
    },
    "cct": {
        "lora, last block": {"targets": "blocks.1.*,fc"},
        "instantft": {"method": "instantft"},
        "head": {"method": "head"},
        "lora, both blocks": {"targets": "blocks.*,fc"},
        "linear layers": {"method": "full", "targets": "linear"},
        "biases": {"method": "bias", "targets": "linear"},
    },
}


def images(folder, part):
    """Images ``[n, 1, 28, 28]`` and classes."""
    made = []
    for kind, dims in (("images", 3), ("labels", 1)):
        raw = gzip.decompress((folder / f"{part}-{kind}-idx{dims}-ubyte.gz").read_bytes())
        made.append(np.frombuffer(raw, np.uint8, offset=4 + 4 * dims))
    return made[0].reshape(-1, 1, 28, 28), made[1].astype(np.int64)


# ---------------------------------------------------------------- base


def block():
    """A block of a transformer, in PyTorch."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
            self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

        def forward(self, x):
            n = self.n1(x)
            q, k, v = (of(n).unflatten(-1, (self.heads, -1)).transpose(1, 2) for of in (self.q, self.k, self.v))
            shares = ((q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5).softmax(-1)
            x = x + self.o((shares @ v).transpose(1, 2).flatten(2))
            return x + self.down(nn.functional.gelu(self.up(self.n2(x))))

    return Block


def modules():
    """Networks by name, in PyTorch."""
    import torch
    from torch import nn

    class Cct(nn.Module):
        """CCT-2 of 64 features: 49 tokens by two convolutions, two blocks, pooled by shares of the tokens."""

        def __init__(self, width=64):
            super().__init__()
            conv = [
                part
                for i, o in ((1, 32), (32, width))
                for part in (nn.Conv2d(i, o, 3, padding=1, bias=False), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
            ]
            self.tok, self.pos = nn.Sequential(*conv), nn.Parameter(0.02 * torch.randn(1, 49, width))
            self.blocks = nn.ModuleList(block()(width, 2) for _ in range(2))
            self.norm, self.pool, self.fc = nn.LayerNorm(width), nn.Linear(width, 1), nn.Linear(width, 10)

        def forward(self, x):
            x = self.tok(x).flatten(2).transpose(1, 2) + self.pos
            for block in self.blocks:
                x = block(x)
            x = self.norm(x)
            return self.fc((self.pool(x).softmax(1).transpose(1, 2) @ x).flatten(1))

    def cnn():
        parts = [
            part
            for i, o in ((1, 16), (16, 32), (32, 64))
            for part in (nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2))
        ]
        return nn.Sequential(*parts, nn.Flatten(), nn.Linear(576, 10))

    return {"cnn": cnn, "cct": Cct}


def base(folder, unseen=(), epochs=4, batch=128, rate=3e-3):
    """Trains both networks, without some classes."""
    import torch

    torch.set_num_threads(1)
    x, y = images(folder, "train")
    there = ~np.isin(y, unseen)
    x, y = torch.from_numpy(x[there].astype(np.float32) / 255), torch.from_numpy(y[there])
    for name, made in modules().items():
        torch.manual_seed(0)
        model, steps = made(), len(x) // batch
        descent = torch.optim.AdamW(model.parameters(), lr=rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(descent, rate, total_steps=epochs * steps)
        for epoch in range(epochs):
            for index in torch.randperm(len(x))[: steps * batch].reshape(steps, batch):
                loss = torch.nn.functional.cross_entropy(model(x[index]), y[index])
                descent.zero_grad()
                loss.backward()
                descent.step()
                schedule.step()
            print(f"{name}: epoch {epoch + 1} of {epochs}, loss {loss.item():.3f}", flush=True)
        file = f"{name}{'-new' * bool(unseen)}.onnx"
        torch.onnx.export(model.eval(), (x[:1],), file, dynamo=False, dynamic_axes={"x": {0: "n"}}, input_names=["x"])


# ---------------------------------------------------------------- fine-tunes


def parts(task, folder, seed=None):
    """Images to learn from and to judge by; without a seed those that choose."""
    x, y = images(folder, "t10k")
    order = np.random.default_rng(0).permutation(len(x))
    if seed is None:
        order, count = order[:CHOOSING], CHOOSE
    else:
        order, count = np.random.default_rng([1, seed]).permutation(order[CHOOSING:]), JUDGE
    order = order[: LEARN + count]
    x, y = x[order], y[order]
    if task == "turned":
        x = np.rot90(x, axes=(2, 3))
    if task == "noisy":
        noise = np.random.default_rng(2).normal(0, 64, x.shape)
        x = np.clip(np.rint(x + noise), 0, 255).astype(np.uint8)
    return {"x_train": x[:LEARN], "y_train": y[:LEARN], "x_test": x[LEARN:], "y_test": y[LEARN:]}


def run(model, arrays, folder, engine, seed, **options):
    """Results of one fine-tune."""
    np.savez(folder / "data.npz", **arrays)
    rank = {} if options.get("method", "lora") not in ("lora", "instantft") else {"rank": RANK}
    given = {"model": model, "data": folder / "data.npz", "engine": engine, "batch": BATCH, "seed": seed, **rank}
    return gradloom.finetune(PRESET, gradloom.NetworkOptions(**given, **options), output=folder / "run")


def chosen(model, arrays, folder, options):
    """Rate and epochs with the least loss of the images that choose, in float."""
    found = []
    for rate in RATES:
        told = run(model, arrays, folder, "float", 0, lr=rate, epochs=EPOCHS, **options)
        steps = len(arrays["x_train"]) // BATCH
        found += [(each["loss"], rate, each["step"] // steps) for each in told["held_out_losses"] if each["step"]]
    return min(found)[1:]


def rows(name, task, seeds, source, tell):
    """A row a method, with accuracies in percent a seed."""
    model = Path(f"{name}{'-new' * (task == 'new')}.onnx")
    with tempfile.TemporaryDirectory() as there:
        folder = Path(there)
        for label, options in METHODS[name].items():
            rate, epochs = chosen(model, parts(task, source), folder, options)
            row = {"method": label, "rate": rate, "epochs": epochs}
            for engine in ("reference", "float"):
                for seed in range(seeds):
                    # Judged at the ends alone.
                    more = {"lr": rate, "epochs": epochs, "judge_steps": epochs * LEARN, **options}
                    told = run(model, parts(task, source, seed), folder, engine, seed, **more)
                    for when in ("before", "after"):
                        row.setdefault(f"{engine} {when}", []).append(round(100 * told[f"accuracy_{when}"], 1))
                    if engine == "reference":
                        row |= {"cycles": told["forecast"]["total"], "learnt": told["adapter_parameters"]}
                    tell(f"{label}, {engine}, seed {seed}")
            yield row


def shown(row):
    """A row with means."""
    return {name: round(float(np.mean(value)), 1) if isinstance(value, list) else value for name, value in row.items()}


def draw(files, output):
    """Accuracy over cycles."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "gradloom", "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(1, len(files), figsize=(4 * len(files), 3), sharex=True, sharey=True, squeeze=False)
    for ax, file in zip(axes[0], files):
        told = json.loads(file.read_text(encoding="utf-8"))
        for n, row in enumerate(sorted(told, key=lambda row: row["cycles"])):
            after = row["reference after"]
            low, mean, high = min(after), np.mean(after), max(after)
            ax.errorbar(row["cycles"] / 1e6, mean, [[mean - low], [high - mean]], fmt="o", capsize=3, color="#3f51b5")
            ax.plot(row["cycles"] / 1e6, np.mean(row["float after"]), "x", color="#888")
            ax.annotate(
                row["method"],
                (row["cycles"] / 1e6, mean),
                (5, 5 if n % 2 else -12),
                textcoords="offset points",
                fontsize=8,
            )
        ax.set(xscale="log", xlabel="million cycles", title=f"{file.stem}; x: in float")
        ax.margins(x=0.25, y=0.15)
    axes[0][0].set_ylabel("accuracy after, %")
    figure.tight_layout()
    figure.savefig(output, metadata={"Date": None})


def main():
    """Trains, fine-tunes or draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["base", *METHODS, "draw"])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--images", type=Path, default=IMAGES)
    parser.add_argument("--task", choices=["turned", "noisy", "new"], default="turned")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write all rows")
    parser.add_argument("-o", "--output", type=Path, default=Path("pictures.svg"))
    asked = parser.parse_args()
    if asked.what == "draw":
        draw(asked.files, asked.output)
        return
    if asked.what == "base":
        base(asked.images, NEW if asked.task == "new" else ())
        return
    made = []
    with progress_bar(False) as progress:
        for row in rows(
            asked.what, asked.task, asked.seeds, asked.images, lambda text: progress and progress(0, 0, text)
        ):
            made.append(row)
            if asked.json:
                asked.json.write_text(json.dumps(made), encoding="utf-8")
    told = [shown(row) for row in made]
    table(told, tuple(told[0]), False)


if __name__ == "__main__":
    main()
