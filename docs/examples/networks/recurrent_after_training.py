"""Accuracy of LSTM, GRU and RNN, quantised after training.

``python docs/examples/networks/recurrent_after_training.py [--vowels aeon-1.6.0-py3-none-any.whl] [--kinds
LSTM,GRU,RNN] [--json]``

It needs the extra ``train``. Networks of 64 hidden units learn in float: the shipped recordings of a smartwatch without
the people 1 to 3, who judge, behind a convolution; and, where the file of the package aeon is given (``pip download
--no-deps aeon==1.6.0``), its JapaneseVowels, zeros in front of shorter ones. PyTorch's exporter writes them to ONNX. Of
the sequences that they learnt from, 256 calibrate.
"""

import argparse
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch

from gradloom.cli.output import progress_bar, table
from gradloom.models.recurrent.calibrate import Bits, float_logits, quantized
from gradloom.models.recurrent.readers.native import load_native
from gradloom.models.sequences import FOLDS, PERSONS, spar_windows
from gradloom.sim.reference import cell

KINDS, HIDDEN, BATCH, STEPS, BITS = ("LSTM", "GRU", "RNN"), 64, 64, 29, "W8A6C8"


def vowels(wheel):
    """Sequences and classes to learn from and to judge by."""
    found = []
    with zipfile.ZipFile(wheel) as file:
        for part in ("TRAIN", "TEST"):
            text = file.read(f"aeon/datasets/data/JapaneseVowels/JapaneseVowels_{part}.ts").decode()
            lines = [line.split(":") for line in text.splitlines() if line and line[0] not in "#@"]
            x = np.zeros((len(lines), STEPS, 12), np.float32)
            for row, (*channels, _) in zip(x, lines):
                held = np.array([[float(v) for v in each.split(",") if v not in ("?", "NaN")] for each in channels])
                row[STEPS - held.shape[1] :] = held.T
            found += [x, np.array([int(line[-1]) - 1 for line in lines])]
    return found


def watch():
    """The same of the smartwatch."""
    seen = tuple(each for each in range(1, PERSONS + 1) if each not in FOLDS[0])
    return [*spar_windows(seen, 25), *spar_windows(FOLDS[0])]


class Network(torch.nn.Module):
    """A convolution, where there is one, a recurrent node and a dense layer.

    ``drop``: share of the values in front of the latter two that count for nothing while the network learns.
    """

    def __init__(self, kind, channels, classes, convolved, drop=0.0):
        super().__init__()
        self.drop = torch.nn.Dropout(drop)
        self.conv = torch.nn.Conv1d(channels, 16, 5, stride=2, padding=2) if convolved else None
        self.rnn = getattr(torch.nn, kind)(16 if convolved else channels, HIDDEN, batch_first=True)
        self.dense = torch.nn.Linear(HIDDEN, classes)

    def forward(self, x):
        if self.conv is not None:
            x = torch.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        return self.dense(self.drop(self.rnn(self.drop(x))[0][:, -1]))


def trained(kind, x, y, convolved):
    """A network in float."""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    model, epochs = Network(kind, x.shape[2], int(y.max()) + 1, convolved), 15 if convolved else 60
    descent = torch.optim.Adam(model.parameters(), lr=1e-3 if kind == "RNN" else 3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(descent, epochs)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    for _ in range(epochs):
        for index in np.array_split(random.permutation(len(x)), -(-len(x) // BATCH)):
            loss = torch.nn.functional.cross_entropy(model(x[index]), y[index])
            descent.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            descent.step()
        schedule.step()
    return model.eval()


def main() -> None:
    """Prints a row a network."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vowels", type=Path)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    sets = {"SPAR": watch()} | ({"JapaneseVowels": vowels(asked.vowels)} if asked.vowels else {})
    rows = []
    with progress_bar(asked.json) as progress, tempfile.TemporaryDirectory() as folder:
        for name, (x, y, x_test, y_test) in sets.items():
            for kind in asked.kinds.split(","):
                if progress:
                    progress(0, 0, f"{kind}, {name}")
                model, path = trained(kind, x, y, name == "SPAR"), Path(folder) / "m.onnx"
                torch.onnx.export(model, (torch.from_numpy(x[:2]),), path, dynamo=False)
                source = load_native(path)
                network = quantized(source, x, Bits.of(BITS))
                z = cell.logits(network, cell.run(network, network.codes(x_test)))
                before, after = (100 * (each.argmax(1) == y_test).mean() for each in (float_logits(source, x_test), z))
                rows.append({"data": name, "network": kind, "float": round(before, 1), BITS: round(after, 1)})
    table(rows, tuple(rows[0]), asked.json)


if __name__ == "__main__":
    main()
