"""A GRU learns people whom it has never seen, in the machine's integers.

``python docs/examples/networks/recurrent_person.py [--kind GRU] [--people 1,2] [--json]``

It needs the extra ``train``, and takes ten minutes. Three networks (convolution 6 to 16 of 5 samples, stride 2, ReLU;
recurrent node of 64; dense layer) learn in float as those of ``train_spar.py`` do, with dropout and smoothed labels,
each without the people of its fold, and are quantised by the people whom they have seen. A fine-tune is ``gradloom
finetune MODEL --board kv260`` with the person's windows of the shipped recordings. The people 7 to 10 chose among bits
W8A6C8 and W8A8C8T7; rates of 0.04, 0.06 and 0.08; dropout of 0.2 with smoothing of 0.1, and neither.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from recurrent_after_training import Network
from train_spar import BATCH, EPOCHS, HOP, LATE, RATE, varied

from gradloom.cli.output import progress_bar, table
from gradloom.models.recurrent.calibrate import Bits, quantized
from gradloom.models.recurrent.stored import save_network
from gradloom.models.sequences import CLASSES, FOLDS, PERSONS, SPAR_STEPS, fold_of, spar_person, spar_windows
from gradloom.systems.request import finetune

BITS, LEARNING_RATE, BOARD = "W8A8C8T7", 0.08, "kv260"
#: Of the network's training: share of values that are dropped, and of a label that is spread over all classes.
DROP, SMOOTH = 0.2, 0.1
#: Of the windows so many are skipped from one that calibrates to the next; what the input's codes hold.
SPARSE, LOW, HIGH = 9, -8.0, 7.9375


def seen(fold):
    """People whom the network of a fold may see."""
    return tuple(each for each in range(1, PERSONS + 1) if each not in FOLDS[fold])


def trained(kind, fold):
    """A network in float."""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    x, y = spar_windows(seen(fold), HOP, steps=SPAR_STEPS + LATE)
    labels, model = torch.from_numpy(y), Network(kind, 6, len(CLASSES), True, DROP)
    descent = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(descent, EPOCHS)
    for _ in range(EPOCHS):
        for index in np.array_split(random.permutation(len(x)), -(-len(x) // BATCH)):
            given = torch.from_numpy(varied(x[index], random)).clamp(LOW, HIGH)
            loss = torch.nn.functional.cross_entropy(model(given), labels[index], label_smoothing=SMOOTH)
            descent.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            descent.step()
        schedule.step()
    return model.eval()


def of_person(person, network, base, folder):
    """Shares of right labels before and after."""
    data = spar_person(person)
    arrays = {name: getattr(data, name) for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez(folder / "data.npz", **arrays)
    np.savez(folder / "base.npz", x=base)
    save_network(network, folder / "net")
    asked = {"data": folder / "data.npz", "base": folder / "base.npz", "output": folder / "run", "lr": LEARNING_RATE}
    told = finetune(str(folder / "net"), board=BOARD, engine="reference", **asked)
    return 100 * told["accuracy_before"], 100 * told["accuracy_after"]


def main() -> None:
    """Prints a row a person."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=["GRU", "RNN", "LSTM"], default="GRU")
    parser.add_argument("--people", default=",".join(map(str, range(1, PERSONS + 1))))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    networks, rows = {}, []
    with progress_bar(asked.json) as progress:
        for person in map(int, asked.people.split(",")):
            fold = fold_of(person)
            if progress:
                progress(0, 0, f"{asked.kind}, person {person}")
            base = spar_windows(seen(fold))[0][::SPARSE]
            with tempfile.TemporaryDirectory() as folder:
                if fold not in networks:
                    path = Path(folder) / "m.onnx"
                    torch.onnx.export(trained(asked.kind, fold), (torch.from_numpy(base[:2]),), path, dynamo=False)
                    networks[fold] = quantized(path, base, Bits.of(BITS))
                before, after = of_person(person, networks[fold], base, Path(folder))
            rows.append({"person": person, "before": round(before, 1), "after": round(after, 1)})
    mean = {name: round(float(np.mean([row[name] for row in rows])), 1) for name in ("before", "after")}
    table([*rows, {"person": "mean", **mean}], ("person", "before", "after"), asked.json)


if __name__ == "__main__":
    main()
