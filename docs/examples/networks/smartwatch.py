"""A temporal convolution network and a transformer learn people whom they have never seen, on the tile machine.

``python docs/examples/networks/smartwatch.py base`` trains three of each, as ``train_spar.py`` does, each without the
people of its fold; it needs the extra ``train``. ``python docs/examples/networks/smartwatch.py tcn|transformer [--json
FILE]`` then fine-tunes one for each person on the preset ``tile-kv260``, by each method, in the machine's integers and
in float. The windows are those of the shipped recordings by which the LSTM is judged. The people 7 to 10 choose each
method's rate, in float.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

import gradloom
from gradloom.cli.output import progress_bar, table
from gradloom.models.sequences import CLASSES, FOLDS, PERSONS, SPAR_STEPS, fold_of, spar_person, spar_windows

PRESET, BATCH, EPOCHS, RANK = "tile-kv260", 20, 10, 4
RATES = (1e-3, 3e-3, 1e-2, 3e-2)
METHODS = {
    "instantft": {"method": "instantft", "rank": RANK},
    "head": {"method": "head"},
    "lora, all linear": {"targets": "linear", "rank": RANK},
    "full": {"method": "full", "targets": "*"},
}


def modules():
    """Networks by name, in PyTorch; each takes windows ``[n, 100, 6]``."""
    import torch
    from pictures import block
    from torch import nn

    class Tcn(nn.Module):
        """Four convolutions of 5 samples, three of them 1, 2 and 4 steps apart with a shortcut, and the mean."""

        def __init__(self, width=32):
            super().__init__()
            self.first = nn.Sequential(nn.Conv1d(6, width, 5, 2, 2, bias=False), nn.BatchNorm1d(width), nn.ReLU())
            self.rest = nn.ModuleList(
                nn.Sequential(nn.Conv1d(width, width, 5, 1, 2 * n, n, bias=False), nn.BatchNorm1d(width), nn.ReLU())
                for n in (1, 2, 4)
            )
            self.fc = nn.Linear(width, len(CLASSES))

        def forward(self, x):
            x = self.first(x.transpose(1, 2))
            for part in self.rest:
                x = x + part(x)
            return self.fc(x.mean(2))

    class Transformer(nn.Module):
        """25 tokens by a convolution, two blocks, and the mean."""

        def __init__(self, width=32):
            super().__init__()
            self.first, self.pos = nn.Conv1d(6, width, 5, 4, 2), nn.Parameter(0.02 * torch.randn(1, 25, width))
            self.blocks = nn.ModuleList(block()(width, 2) for _ in range(2))
            self.norm, self.fc = nn.LayerNorm(width), nn.Linear(width, len(CLASSES))

        def forward(self, x):
            x = self.first(x.transpose(1, 2)).transpose(1, 2) + self.pos
            for each in self.blocks:
                x = each(x)
            return self.fc(self.norm(x).mean(1))

    return {"tcn": Tcn, "transformer": Transformer}


def file_of(name, fold):
    """A network that has not seen the people of a fold."""
    return Path(f"{name}_without_{'_'.join(map(str, FOLDS[fold]))}.onnx")


def base(epochs=40, batch=128, rate=4e-3):
    """Trains all networks."""
    import torch
    from train_spar import HOP, LATE, varied

    torch.set_num_threads(1)
    for name, made in modules().items():
        for fold, unseen in enumerate(FOLDS):
            torch.manual_seed(0)
            random, model = np.random.default_rng(0), made()
            seen = tuple(each for each in range(1, PERSONS + 1) if each not in unseen)
            x, y = spar_windows(seen, HOP, steps=SPAR_STEPS + LATE)
            labels = torch.from_numpy(y)
            steps = -(-len(x) // batch)
            descent = torch.optim.AdamW(model.parameters(), lr=rate)
            schedule = torch.optim.lr_scheduler.OneCycleLR(descent, rate, total_steps=epochs * steps)
            for _ in range(epochs):
                for index in np.array_split(random.permutation(len(x)), steps):
                    loss = torch.nn.functional.cross_entropy(
                        model(torch.from_numpy(varied(x[index], random))), labels[index]
                    )
                    descent.zero_grad()
                    loss.backward()
                    descent.step()
                    schedule.step()
            print(f"{file_of(name, fold)}: loss {loss.item():.4f}", flush=True)
            given = {"dynamo": False, "dynamic_axes": {"x": {0: "n"}}, "input_names": ["x"]}
            torch.onnx.export(model.eval(), (torch.zeros(1, SPAR_STEPS, 6),), file_of(name, fold), **given)


def run(name, person, folder, engine, **options):
    """Results of one fine-tune."""
    data = spar_person(person)
    np.savez(folder / "d.npz", **{each: getattr(data, each) for each in ("x_train", "y_train", "x_test", "y_test")})
    given = {"model": file_of(name, fold_of(person)), "data": folder / "d.npz", "engine": engine, "batch": BATCH}
    # Judged at the ends alone.
    given |= {"epochs": EPOCHS, "judge_steps": EPOCHS * len(data.x_train)}
    return gradloom.finetune(PRESET, gradloom.NetworkOptions(**given, **options), output=folder / "run")


def rows(name, folder, tell):
    """A row a method, with accuracies in percent a person."""
    for label, options in METHODS.items():
        losses = {
            rate: sum(run(name, each, folder, "float", lr=rate, **options)["loss_after"] for each in FOLDS[2])
            for rate in RATES
        }
        rate = min(losses, key=lambda each: losses[each])
        row = {"method": label, "rate": rate}
        for engine in ("reference", "float"):
            for person in range(1, PERSONS + 1):
                told = run(name, person, folder, engine, lr=rate, **options)
                for when in ("before", "after"):
                    row.setdefault(f"{engine} {when}", []).append(round(100 * told[f"accuracy_{when}"], 1))
                if engine == "reference":
                    row |= {"cycles": told["forecast"]["total"], "learnt": told["adapter_parameters"]}
                tell(f"{label}, {engine}, person {person}")
        yield row


def main():
    """Trains or fine-tunes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["base", "tcn", "transformer"])
    parser.add_argument("--json", type=Path, help="write all rows")
    asked = parser.parse_args()
    if asked.what == "base":
        base()
        return
    made = []
    with tempfile.TemporaryDirectory() as there, progress_bar(False) as progress:
        for row in rows(asked.what, Path(there), lambda text: progress and progress(0, 0, text)):
            made.append(row)
            if asked.json:
                asked.json.write_text(json.dumps(made), encoding="utf-8")
    told = [{k: round(float(np.mean(v)), 1) if isinstance(v, list) else v for k, v in row.items()} for row in made]
    table(told, tuple(told[0]), False)


if __name__ == "__main__":
    main()
