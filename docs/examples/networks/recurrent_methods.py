"""Methods of learning a person whom a recurrent network has not seen.

``python docs/examples/networks/recurrent_methods.py [--methods adapter,head,lora,full] [--json]``

``adapter`` is ``gradloom finetune lstm-kv260 --person N --engine reference``, in the machine's integers with
an NF4 cache. The others are in float, on the same windows, weights as the network's codes have them, and need the extra
``train``: the dense layer alone (``head``); LoRA of rank 4 on all products of cell and dense layer (``lora``), and all
parameters (``full``), both by a backward pass through time. All: SGD, momentum 0.9, batches of 20, 30 epochs. Each
method's rate is the best of :data:`RATES` for the people 7 to 10; the others judge it.
"""

import argparse
import json
import tempfile

import numpy as np

from gradloom.cli.output import progress_bar, table
from gradloom.models.recurrent.lstm import GATES
from gradloom.models.recurrent.stored import load_network
from gradloom.models.sequences import FOLDS, PERSONS, fold_of, spar_model, spar_person
from gradloom.systems.images.program.schedule import batches, epoch_order
from gradloom.systems.request import finetune

PRESET, RANK, MOMENTUM, BATCH, EPOCHS = "lstm-kv260", 4, 0.9, 20, 30
RATES = {"head": (0.03, 0.1, 0.3), "lora": (0.01, 0.03, 0.1), "full": (0.003, 0.01, 0.03)}
CHOSEN_ON = FOLDS[2]


def adapter(person):
    """A person's share of right labels, before and after."""
    with tempfile.TemporaryDirectory() as folder:
        told = finetune(PRESET, person=person, engine="reference", output=f"{folder}/run")
    return told["accuracy_before"], told["accuracy_after"]


class Network:
    """A shipped network in float, with what learns."""

    def __init__(self, network, method, seed):
        import torch

        self.torch, self.method = torch, method
        torch.manual_seed(seed)

        def real(array):
            return torch.tensor(np.asarray(array, np.float32))

        cell, (conv,), head = network.cell, network.front, network.head
        self.stride, self.pads = conv.stride, conv.pads
        gates = [cell.gates[name] for name in GATES]
        self.p = {
            "conv": real(conv.weight * conv.scale[:, None, None]),
            "conv bias": real(conv.bias),
            "w": real(np.concatenate([each.w * each.w_scale[:, None] for each in gates])),
            "u": real(np.concatenate([each.u * each.u_scale[:, None] for each in gates])),
            "bias": real(np.concatenate([each.bias for each in gates])),
            "head": real(head.weight * head.scale[:, None]),
            "head bias": real(head.bias),
        }
        self.added = {}
        if method == "lora":
            for name in ("w", "u", "head"):
                rows, columns = self.p[name].shape
                self.added[name] = torch.randn(RANK, columns) / columns**0.5, torch.zeros(rows, RANK)
        learns = {"head": ("head", "head bias"), "lora": (), "full": tuple(self.p)}[method]
        self.learning = [self.p[name] for name in learns] + [each for pair in self.added.values() for each in pair]
        for each in self.learning:
            each.requires_grad_(True)

    def weight(self, name):
        """A product's weights, with LoRA."""
        if name not in self.added:
            return self.p[name]
        a, b = self.added[name]
        return self.p[name] + b @ a

    def logits(self, x):
        """Of windows ``[n, steps, channels]``."""
        functional, p = self.torch.nn.functional, self.p
        x = functional.pad(x.transpose(1, 2), self.pads)
        x = self.torch.relu(functional.conv1d(x, p["conv"], p["conv bias"], stride=self.stride))
        sums = x.permute(2, 0, 1) @ self.weight("w").T + p["bias"]
        u, h, c = self.weight("u").T, 0.0, 0.0
        for number, step in enumerate(sums):
            enter, forget, new, out = (step + h @ u if number else step).chunk(4, dim=1)
            c = self.torch.sigmoid(forget) * c + self.torch.sigmoid(enter) * self.torch.tanh(new)
            h = self.torch.sigmoid(out) * self.torch.tanh(c)
        return h @ self.weight("head").T + p["head bias"]

    def share(self, x, y):
        """Labelled right."""
        with self.torch.no_grad():
            return float((self.logits(self.torch.from_numpy(x)).argmax(1).numpy() == y).mean())


def in_float(person, method, rate, seed=0):
    """As :func:`adapter`."""
    import torch

    data = spar_person(person)
    model = Network(load_network(spar_model(fold_of(person))), method, seed)
    before = model.share(data.x_test, data.y_test)
    descent = torch.optim.SGD(model.learning, lr=rate, momentum=MOMENTUM)
    x, y = torch.from_numpy(data.x_train), torch.from_numpy(data.y_train)
    for epoch in range(EPOCHS):
        for index in batches(epoch_order(len(y), epoch, seed), BATCH):
            descent.zero_grad()
            torch.nn.functional.cross_entropy(model.logits(x[index]), y[index]).backward()
            descent.step()
    return before, model.share(data.x_test, data.y_test)


def of_method(method, tell):
    """Shares by person, and the rate."""
    people = range(1, PERSONS + 1)
    if method == "adapter":
        found = {}
        for person in people:
            tell(f"adapter, person {person}")
            found[person] = adapter(person)
        return found, None
    tried = {}
    for rate in RATES[method]:
        tell(f"{method}, rate {rate}")
        tried[rate] = {person: in_float(person, method, rate) for person in CHOSEN_ON}
    best = max(tried, key=lambda rate: np.mean([after for _, after in tried[rate].values()]))
    tell(f"{method}, all people")
    return {p: tried[best].get(p) or in_float(p, method, best) for p in people}, best


def main() -> None:
    """Prints a row a method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", default="adapter,head,lora,full")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = []
    with progress_bar(asked.json) as progress:
        for method in asked.methods.split(","):
            found, rate = of_method(method, lambda text: progress(0, 0, text) if progress else None)
            both = 100 * np.array([found[person] for person in sorted(found)])
            judged = [person - 1 for person in found if person not in CHOSEN_ON]
            rows.append(
                {
                    "method": method,
                    "rate": rate,
                    "before": round(both[:, 0].mean(), 1),
                    "after": round(both[:, 1].mean(), 1),
                    "after, people 1 to 6": round(both[judged, 1].mean(), 1),
                    "least gain": round((both[:, 1] - both[:, 0]).min(), 1),
                    "people": {person: [round(100 * each, 1) for each in pair] for person, pair in found.items()},
                }
            )
    if asked.json:
        print(json.dumps(rows, indent=2))
    else:
        table(rows, ("method", "rate", "before", "after", "after, people 1 to 6", "least gain"), False)


if __name__ == "__main__":
    main()
