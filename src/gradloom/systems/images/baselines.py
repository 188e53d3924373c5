"""Baselines of InstantFT: full fine-tuning and other LoRAs.

==============  =======================================================================================
``full``        every weight and bias
``lora-all``    ordinary LoRA on every layer, ``y = W x + B A x``: the gradient passes through the base
``lora-last``   ordinary LoRA on the last layer alone
``instantft``   direct-to-output adapters on every layer, taps from the forward cache
==============  =======================================================================================

``python -m gradloom.systems.images.baselines`` prints the table; ``--help`` says what it takes.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from gradloom.models.datasets import Dataset, default_split
from gradloom.models.network import ConvLayer, DenseLayer, LayerNetwork
from gradloom.models.onnx_import import load_onnx, load_pretrained
from gradloom.systems.held_out import accuracy, cross_entropy

from .mathematics import finetune_float, windows
from .program.schedule import batches, epoch_order, initial_adapters

__all__ = ["METHODS", "Work", "BaselineRow", "work", "compare", "table"]

METHODS = ("full", "lora-all", "lora-last", "instantft")


@dataclass(frozen=True, kw_only=True)
class Work:
    """Multiply-accumulates of one sample, and trained parameters.

    Members
    -------
    trainable : parameters that change
    forward_first, forward : a sample in the first epoch, and in every later one
    backward : a sample in any epoch
    """

    trainable: int
    forward_first: int
    forward: int
    backward: int


@dataclass(frozen=True, kw_only=True)
class BaselineRow:
    """One line of the comparison.

    MACs are of a whole epoch; accuracies are fractions of the test images.
    """

    method: str
    trainable: int
    forward_macs_first: int
    forward_macs: int
    backward_macs: int
    accuracy_before: float
    accuracy_after: float


def _method(method: str) -> str:
    if method not in METHODS:
        raise ValueError(f"method={method!r}: must be one of {', '.join(METHODS)}")
    return method


def _sides(network: LayerNetwork) -> list[tuple[int, int, int]]:
    """``(positions, inputs, outputs)`` of every layer as a matrix product."""
    sides = []
    for layer, shape in zip(network.layers, network.shapes):
        positions = int(np.prod(layer.convolved(shape)[1:])) if isinstance(layer, ConvLayer) else 1
        sides.append((positions, layer.weight[0].size, layer.outputs))
    return sides


def work(network: LayerNetwork, method: str, rank: int = 4) -> Work:
    """Cost of ``method``, counted from the shapes alone."""
    _method(method)
    base, layers = network.macs, list(zip(network.layer_macs, _sides(network)))
    if method == "full":
        # A weight's gradient costs what its product does; so does an input's, but for the first layer.
        return Work(
            trainable=network.parameters, forward_first=base, forward=base, backward=2 * base - network.layer_macs[0]
        )
    if method == "instantft":
        adapters = network.adapter_parameters(rank)
        backward = sum(rank * (n + 2 * network.classes) for n in network.taps)  # dA, dB, dh
        return Work(trainable=adapters, forward_first=base + adapters, forward=adapters, backward=backward)
    start = 0 if method == "lora-all" else len(layers) - 1
    trainable = forward = backward = 0
    for index, (macs, (p, k, o)) in enumerate(layers[start:], start):
        trainable += rank * (k + o)
        forward += p * rank * (k + o)
        backward += p * rank * (2 * o + k)  # dB, dh, dA
        if index > start:
            backward += macs + p * rank * k  # the input's gradient, through W and through A
    return Work(trainable=trainable, forward_first=base + forward, forward=base + forward, backward=backward)


def _summed(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    """``sum_n dy[n] x[n]^T`` of ``[n, o, p]`` and ``[n, k, p]``."""
    return (dy @ x.swapaxes(1, 2)).sum(axis=0)


class _Layer:
    """A layer that learns: weights, a LoRA beside them, or nothing.

    The weights are ``full``, the LoRA is ``a`` and ``b``.
    """

    def __init__(self, layer: ConvLayer | DenseLayer, full: bool, lora: tuple[np.ndarray, np.ndarray] | None, dtype):
        self.layer = layer
        self.weight = layer.weight.reshape(layer.outputs, -1).astype(dtype)
        self.bias = layer.bias.astype(dtype)
        self.full, self.lora = full, lora
        self.parameters = [self.weight, self.bias] if full else list(lora or ())
        self.gradients: list[np.ndarray] = []

    def forward(self, x: np.ndarray) -> np.ndarray:
        layer = self.layer
        self.shape = x.shape
        # A dense layer is the product of one window a sample.
        self.columns = windows(layer, x) if isinstance(layer, ConvLayer) else x.reshape(1, len(x), -1).swapaxes(1, 2)
        y = self.weight @ self.columns
        if self.lora:
            self.hidden = self.lora[0] @ self.columns
            y += self.lora[1] @ self.hidden
        y += self.bias[:, None]
        if isinstance(layer, ConvLayer):
            y = self._pool(layer, y.reshape(len(x), *layer.convolved(x.shape[1:])))
        else:
            y = y[0].T
        if layer.relu:
            self.live = y > 0
            y = y * self.live
        return y

    def backward(self, dy: np.ndarray, further: bool) -> np.ndarray | None:
        """Gradients of the parameters and, where needed, of the input.

        The gradient of the input is made where ``further`` layers need it.
        """
        layer = self.layer
        if layer.relu:
            dy = dy.reshape(self.live.shape) * self.live
        if isinstance(layer, ConvLayer):
            dy = self._unpool(layer, dy.reshape(len(dy), *layer.output_shape(self.shape[1:])))
            dy = dy.reshape(len(dy), layer.outputs, -1)
        else:
            dy = dy.T[None]
        if self.lora:
            dh = self.lora[1].T @ dy
            self.gradients = [_summed(dh, self.columns), _summed(dy, self.hidden)]
        elif self.full:
            self.gradients = [_summed(dy, self.columns), dy.sum(axis=(0, 2))]
        if not further:
            return None
        dx = self.weight.T @ dy
        if self.lora:
            dx += self.lora[0].T @ dh
        return self._images(layer, dx) if isinstance(layer, ConvLayer) else dx[0].T.reshape(self.shape)

    def _pool(self, layer: ConvLayer, y: np.ndarray) -> np.ndarray:
        """Max-pool that remembers which of the ``k * k`` was the first largest."""
        k, h, w = layer.pool, y.shape[2], y.shape[3]
        if k == 1:
            return y
        self.before = y.shape
        best = y[:, :, : h // k * k : k, : w // k * k : k]
        self.chosen = np.zeros(best.shape, np.int32)
        for at in range(1, k * k):
            other = y[:, :, at // k : h // k * k : k, at % k : w // k * k : k]
            self.chosen[other > best] = at
            best = np.maximum(best, other)
        return best

    def _unpool(self, layer: ConvLayer, dy: np.ndarray) -> np.ndarray:
        k = layer.pool
        if k == 1:
            return dy
        spread = np.zeros(self.before, dy.dtype)
        h, w = self.before[2] // k * k, self.before[3] // k * k
        for at in range(k * k):
            spread[:, :, at // k : h : k, at % k : w : k] = dy * (self.chosen == at)
        return spread

    def _images(self, layer: ConvLayer, columns: np.ndarray) -> np.ndarray:
        """col2im: what :func:`windows` took apart, added up."""
        n, c, h, w = self.shape
        (kh, kw), (sh, sw), (top, left, bottom, right) = layer.kernel, layer.stride, layer.pads
        _, oh, ow = layer.convolved((c, h, w))
        columns = columns.reshape(n, c, kh, kw, oh, ow)
        padded = np.zeros((n, c, h + top + bottom, w + left + right), columns.dtype)
        for i in range(kh):
            for j in range(kw):
                padded[:, :, i : i + oh * sh : sh, j : j + ow * sw : sw] += columns[:, :, i, j]
        return padded[:, :, top : top + h, left : left + w]


class BaselineTrainer:
    """Trainer of one of ``full``, ``lora-all`` and ``lora-last``.

    It trains a network by SGD on the mean loss of each batch.
    """

    def __init__(self, network: LayerNetwork, method: str, *, rank: int = 4, seed: int = 0, dtype=np.float32):
        if _method(method) == "instantft":
            raise ValueError("method='instantft': it has no backward pass; use finetune_float")
        self.dtype, self.pixel_map = dtype, network.pixel_map
        sides = _sides(network)
        starts = initial_adapters([k for _, k, _ in sides], network.classes, rank, seed)
        last = len(sides) - 1
        self.layers = []
        for index, (layer, (_, _, outputs), (a, _)) in enumerate(zip(network.layers, sides, starts)):
            has = method == "lora-all" or (method == "lora-last" and index == last)
            lora = (a.astype(dtype), np.zeros((outputs, rank), dtype)) if has else None
            self.layers.append(_Layer(layer, method == "full", lora, dtype))

    def forward(self, x: np.ndarray) -> np.ndarray:
        """Logits of activations ``x``."""
        x = x.astype(self.dtype)
        for layer in self.layers:
            x = layer.forward(x)
        return x

    def gradients(self, x: np.ndarray, labels: np.ndarray) -> float:
        """Mean loss of a batch; every layer then holds its gradients."""
        loss, d = cross_entropy(self.forward(x), labels)
        first = min(i for i, layer in enumerate(self.layers) if layer.parameters)
        passed: np.ndarray | None = d / len(labels)
        for index in range(len(self.layers) - 1, first - 1, -1):
            assert passed is not None
            passed = self.layers[index].backward(passed, index > first)
        return float(loss.mean())

    def train(self, x: np.ndarray, labels: np.ndarray, *, lr: float, batch: int, epochs: int, seed: int) -> list[float]:
        """Loss of every step."""
        losses = []
        for epoch in range(epochs):
            for index in batches(epoch_order(len(labels), epoch, seed), batch):
                losses.append(self.gradients(x[index], labels[index]))
                for layer in self.layers:
                    for w, g in zip(layer.parameters, layer.gradients):
                        w -= (lr * g).astype(self.dtype)
        return losses

    def accuracy(self, images: np.ndarray, labels: np.ndarray, chunk: int = 100) -> float:
        """Fraction of uint8 ``images`` that are labelled right."""
        logits = [self.forward(self.pixel_map.activations(images[i : i + chunk])) for i in range(0, len(images), chunk)]
        return accuracy(np.concatenate(logits), labels)


def compare(
    network: LayerNetwork,
    data: Dataset,
    *,
    methods: Sequence[str] = METHODS,
    rank: int = 4,
    lr: float = 0.05,
    batch: int = 20,
    epochs: int = 10,
    seed: int = 0,
    cache: str = "nf4",
    dtype=np.float32,
) -> list[BaselineRow]:
    """A row a method, each trained on ``data`` alike."""
    rows = []
    n = len(data.x_train)
    base = None
    for method in methods:
        cost = work(network, method, rank)
        if method == "instantft":
            result = finetune_float(
                network, data, rank=rank, lr=lr, batch=batch, epochs=epochs, seed=seed, cache=cache, dtype=dtype
            )
            before, after = result.accuracy_before, result.accuracy_after
        else:
            trainer = BaselineTrainer(network, method, rank=rank, seed=seed, dtype=dtype)
            if base is None:  # Nothing is trained yet: all start alike.
                base = trainer.accuracy(data.x_test, data.y_test)
            before = base
            trainer.train(
                network.pixel_map.activations(data.x_train).astype(dtype),
                data.y_train,
                lr=lr,
                batch=batch,
                epochs=epochs,
                seed=seed,
            )
            after = trainer.accuracy(data.x_test, data.y_test)
        rows.append(
            BaselineRow(
                method=method,
                trainable=cost.trainable,
                forward_macs_first=n * cost.forward_first,
                forward_macs=n * cost.forward,
                backward_macs=n * cost.backward,
                accuracy_before=before,
                accuracy_after=after,
            )
        )
    return rows


def table(rows: Sequence[BaselineRow]) -> str:
    """The rows as text, MACs in millions an epoch."""
    lines = [
        f"{'method':<10} {'trainable':>9} {'forward, epoch 1':>16} {'later epochs':>12} {'backward':>9} "
        f"{'before':>7} {'after':>7}"
    ]
    lines += [
        f"{r.method:<10} {r.trainable:>9,} {r.forward_macs_first / 1e6:>14.1f} M "
        f"{r.forward_macs / 1e6:>10.1f} M {r.backward_macs / 1e6:>7.1f} M "
        f"{r.accuracy_before:>7.1%} {r.accuracy_after:>7.1%}"
        for r in rows
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Compares InstantFT with the baselines, averaged over seeds.

    ``python -m gradloom.systems.images.baselines``.
    """
    parser = argparse.ArgumentParser(description="InstantFT beside other ways of fine-tuning, in floating point.")
    parser.add_argument("--model", help="ONNX file (default: the LeNet-5 in the package)")
    parser.add_argument("--angle", type=float, default=90)
    parser.add_argument("--limit", type=int, help="train on the first N images")
    parser.add_argument("--test", type=int, help="judge by the first N of the other images")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=1, help="average over seeds 0..N-1")
    parser.add_argument("--cache", default="nf4", choices=("nf4", "int8", "none"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    network = load_onnx(args.model) if args.model else load_pretrained()
    data = default_split(0, degrees=args.angle).limited(train=args.limit, test=args.test)
    runs = [
        compare(
            network,
            data,
            methods=args.methods,
            rank=args.rank,
            lr=args.lr,
            batch=args.batch,
            epochs=args.epochs,
            seed=seed,
            cache=args.cache,
        )
        for seed in range(args.seeds)
    ]
    rows = [
        BaselineRow(**{**asdict(same[0]), "accuracy_after": float(np.mean([r.accuracy_after for r in same]))})
        for same in zip(*runs)
    ]
    if args.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        print(table(rows))


if __name__ == "__main__":
    main()
