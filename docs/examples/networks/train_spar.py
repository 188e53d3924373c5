"""Trains ``spar_lstm64_without_*.onnx``, quantisation-aware.

It needs the extra ``train``, and takes a quarter of an hour::

    pip install -e '.[train]'
    python docs/examples/networks/train_spar.py -o src/gradloom/models/data
    python docs/examples/networks/train_spar.py -o src/gradloom/models/data --hidden 32 --fold 0

Each network (convolution 6 to 16 of 5 samples, stride 2, ReLU; LSTM of 64 or 32; dense layer on its last state) never
sees the people of its fold. 60 epochs of Adam, batches of 128 windows one every second, the first third without
quantisers; the rate falls from 6e-3 along a cosine. Each window is turned about a random axis by up to 10 degrees,
scaled by up to 10 %, and begins up to half a second later. No choice is made on the people of the fold: the last
weights are written.

Formats: input 8 bits, weights 8 bits, activations and gates 6 bits, cell state 8 bits; all scales are powers of two, so
that products with the input and with the hidden state have one unit. The script ends with an error if a code of the
integer reference differs from that of the trained network.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import conv1d, cross_entropy, pad

from gradloom.models.recurrent.coding import Coding
from gradloom.models.recurrent.export import export_recurrent
from gradloom.models.recurrent.front import Conv
from gradloom.models.recurrent.lstm import GATES, Gate, LstmCell
from gradloom.models.recurrent.network import Dense, RecurrentNetwork
from gradloom.models.sequences import CLASSES, FOLDS, PERSONS, SPAR_STEPS, spar_model, spar_windows
from gradloom.sim.reference import cell as reference

CHANNELS, FRONT, KERNEL, STRIDE = 6, 16, 5, 2
EPOCHS, FLOAT_EPOCHS, BATCH, RATE, HOP, LATE = 60, 20, 128, 6e-3, 25, 12
#: Scale, least and greatest code.
INPUT, CONV_WEIGHT, FRONT_OUT = (2**-4, -128, 127), (2**-7, -127, 127), (2**-3, 0, 63)
W, U, SUM, SIGMOID, TANH = (2**-7, -127, 127), (2**-5, -127, 127), (2**-3, -32, 31), (2**-6, 0, 63), (2**-5, -32, 31)
STATE, STATES, HEAD = (2**-5, -128, 127), (2**-5, -32, 31), (2**-6, -127, 127)
#: Biases are multiples of the products' unit.
CONV_BIAS, BIAS, HEAD_BIAS = (2**-11, -(1 << 15), 1 << 15), (2**-10, -(1 << 15), 1 << 15), (2**-11, -(1 << 15), 1 << 15)


class Quantised(torch.nn.Module):
    """The network; ``rough``: with its quantisers."""

    def __init__(self, hidden):
        super().__init__()
        self.rough, self.hidden = False, hidden

        def drawn(*shape, inputs):
            return torch.nn.Parameter((torch.rand(*shape) * 2 - 1) / inputs**0.5)

        self.conv, self.conv_bias = drawn(FRONT, CHANNELS, KERNEL, inputs=CHANNELS * KERNEL), drawn(FRONT, inputs=30)
        self.w, self.u = drawn(4 * hidden, FRONT, inputs=hidden), drawn(4 * hidden, hidden, inputs=hidden)
        bias = torch.zeros(4 * hidden)
        bias[hidden : 2 * hidden] = 1  # the forget gate
        self.bias = torch.nn.Parameter(bias)
        self.head, self.head_bias = drawn(len(CLASSES), hidden, inputs=hidden), drawn(len(CLASSES), inputs=hidden)

    def at(self, x, form):
        """``x`` in a format; the gradient passes within its range."""
        scale, lo, hi = form
        if not self.rough:
            return x.clamp(lo * scale, hi * scale)
        return torch.fake_quantize_per_tensor_affine(x, scale, 0, lo, hi)  # rounds half to even

    def forward(self, x):
        x = self.at(x, INPUT).transpose(1, 2)
        x = conv1d(pad(x, (2, 2)), self.at(self.conv, CONV_WEIGHT), self.at(self.conv_bias, CONV_BIAS), stride=STRIDE)
        x = self.at(torch.relu(x), FRONT_OUT).permute(2, 0, 1)
        wx = x @ self.at(self.w, W).T + self.at(self.bias, BIAS)
        u = self.at(self.u, U).T
        h = c = torch.zeros(x.shape[1], self.hidden)
        for step in wx:
            sums = self.at(step + h @ u, SUM)
            enter, forget, cell, out = sums.split(self.hidden, dim=1)
            enter, forget, out = (self.at(torch.sigmoid(each), SIGMOID) for each in (enter, forget, out))
            added = self.at(enter * self.at(torch.tanh(cell), TANH), STATE)
            c = self.at(self.at(forget * c, STATE) + added, STATE)
            h = self.at(out * self.at(torch.tanh(c), TANH), STATES)
        return h, h @ self.at(self.head, HEAD).T + self.at(self.head_bias, HEAD_BIAS)


def network_of(model, name):
    """The trained network as an imported one."""

    def coding(form):
        return Coding(form[0], form[1], form[2])

    def codes(weight, form):
        return np.clip(np.rint(weight.detach().numpy() / form[0]), *form[1:]).astype(np.int64)

    def real(bias, form):
        return codes(bias, form) * form[0]

    def ones(count, form):
        return np.full(count, form[0])

    bias, hidden = real(model.bias, BIAS), model.hidden
    gates = {}
    for number, gate in enumerate(GATES):
        own = slice(number * hidden, (number + 1) * hidden)
        kind = "tanh" if gate == "cell" else "sigmoid"
        gates[gate] = Gate(
            codes(model.w[own], W),
            codes(model.u[own], U),
            ones(hidden, W),
            ones(hidden, U),
            bias[own],
            coding(SUM),
            kind,
            coding(TANH if kind == "tanh" else SIGMOID),
        )
    cell = LstmCell(gates, *(coding(STATE) for _ in range(3)), None, coding(TANH), coding(STATES))
    front = Conv(
        codes(model.conv, CONV_WEIGHT),
        ones(FRONT, CONV_WEIGHT),
        real(model.conv_bias, CONV_BIAS),
        STRIDE,
        (2, 2),
        coding(FRONT_OUT),
    )
    head = Dense(codes(model.head, HEAD), ones(len(CLASSES), HEAD), real(model.head_bias, HEAD_BIAS))
    return RecurrentNetwork(name, coding(INPUT), (front,), cell, head)


def varied(x, random):
    """Windows turned about a random axis, scaled, and later."""
    count = len(x)
    axis = random.normal(size=(count, 3))
    axis *= np.radians(random.uniform(0, 10, (count, 1))) / np.linalg.norm(axis, axis=1, keepdims=True)
    cross = np.zeros((count, 3, 3))
    for row, column, which, sign in ((0, 1, 2, -1), (0, 2, 1, 1), (1, 2, 0, -1)):
        cross[:, row, column], cross[:, column, row] = sign * axis[:, which], -sign * axis[:, which]
    turn = (np.eye(3) + cross + cross @ cross / 2) * random.uniform(0.9, 1.1, (count, 1, 1))
    late = random.integers(0, x.shape[1] - SPAR_STEPS + 1, count)
    cut = x[np.arange(count)[:, None], late[:, None] + np.arange(SPAR_STEPS)]
    return np.concatenate([cut[..., :3] @ turn, cut[..., 3:] @ turn], axis=2).astype(np.float32)


def trained(fold, seed, hidden):
    """A network that has never seen the people of a fold."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    seen = tuple(each for each in range(1, PERSONS + 1) if each not in FOLDS[fold])
    x, y = spar_windows(seen, HOP, steps=SPAR_STEPS + LATE)
    labels = torch.from_numpy(y)
    model = Quantised(hidden)
    descent = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(descent, EPOCHS)
    for epoch in range(EPOCHS):
        model.rough = epoch >= FLOAT_EPOCHS
        total = 0.0
        for index in np.array_split(random.permutation(len(x)), -(-len(x) // BATCH)):
            loss = cross_entropy(model(torch.from_numpy(varied(x[index], random)))[1], labels[index])
            descent.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            descent.step()
            total += loss.item() * len(index)
        schedule.step()
        print(f"fold {fold}: epoch {epoch + 1} of {EPOCHS}, loss {total / len(x):.4f}", flush=True)
    return model


def checked(model, network, persons):
    """Share of right labels by person.

    Ends the script where a code is not the reference's.
    """
    told = {}
    for person in persons:
        x, y = spar_windows((person,))
        trace = reference.run(network, network.codes(x))
        with torch.no_grad():
            h, z = model(torch.from_numpy(x))
        if not np.array_equal(np.rint(h.numpy() / STATES[0]), trace.state.h):
            raise SystemExit(f"person {person}: the integer reference has other codes than the trained network")
        told[person] = float((reference.logits(network, trace).argmax(axis=1) == y).mean())
    return told


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("."))
    parser.add_argument("--fold", type=int, choices=range(len(FOLDS)), help="one fold alone")
    parser.add_argument("--hidden", type=int, default=64, help="elements of the hidden state")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for fold in range(len(FOLDS)) if options.fold is None else (options.fold,):
        path = options.output / spar_model(fold, options.hidden).name
        model = trained(fold, options.seed, options.hidden)
        model.rough = True
        network = network_of(model, path.stem)
        told = checked(model, network, FOLDS[fold])
        export_recurrent(network, path)
        print(f"{path.name}: " + ", ".join(f"person {each} {100 * share:.1f} %" for each, share in told.items()))


if __name__ == "__main__":
    main()
