"""Fine-tunes on images in floating point.

Direct-to-output adapters (InstantFT): every layer's input ``x_t``, the *tap*, has an adapter of its own
that ends at the logits, ``z = z_base + sum_t B_t (A_t x_t)``. No gradient passes through the base
network, so its forward pass is needed once a sample.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gradloom.models.adapters.peft_files import representable
from gradloom.models.datasets import Dataset
from gradloom.models.network import ConvLayer, DenseLayer, LayerNetwork
from gradloom.program.operations import Reading
from gradloom.systems.held_out import accuracy, cross_entropy
from gradloom.systems.rates import Schedule

from .operations import Convolve, Descent, Encode, Loss, Product, Record, descents, frozen, judged
from .program.schedule import batches, epoch_order, initial_adapters

__all__ = [
    "NF4_LEVELS",
    "NF4_THRESHOLDS",
    "nf4_roundtrip",
    "int8_roundtrip",
    "cached_value",
    "layer_forward",
    "forward",
    "FloatCache",
    "adapter_logits",
    "loss_and_gradients",
    "FloatResult",
    "train_adapters",
    "finetune_float",
    "evaluate_float",
]

Adapters = Sequence[tuple[np.ndarray, np.ndarray]]

NF4_LEVELS = np.array(
    [
        -1.0,
        -0.6961928009986877,
        -0.5250730514526367,
        -0.39491748809814453,
        -0.28444138169288635,
        -0.18477343022823334,
        -0.09105003625154495,
        0.0,
        0.07958029955625534,
        0.16093020141124725,
        0.24611230194568634,
        0.33791524171829224,
        0.44070982933044434,
        0.5626170039176941,
        0.7229568362236023,
        1.0,
    ]
)
"""NF4's levels as bitsandbytes has them."""

NF4_THRESHOLDS = np.array(
    [
        -0.8480964004993439,
        -0.6106329262256622,
        -0.4599952697753906,
        -0.33967943489551544,
        -0.23460740596055984,
        -0.13791173323988914,
        -0.045525018125772476,
        0.03979014977812767,
        0.1202552504837513,
        0.2035212516784668,
        0.2920137718319893,
        0.3893125355243683,
        0.5016634166240692,
        0.6427869200706482,
        0.8614784181118011,
    ]
)
"""A value's code is the number of thresholds strictly below it."""


def _blocks(x: np.ndarray, block: int) -> np.ndarray:
    """``[..., n]`` as ``[..., ceil(n / block), block]``, zeros behind."""
    if block < 1:
        raise ValueError(f"block={block}: must be at least 1")
    short = -x.shape[-1] % block
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, short)])
    return padded.reshape(*x.shape[:-1], -1, block)


def nf4_roundtrip(x: np.ndarray, block: int = 64) -> np.ndarray:
    """``x`` after NF4 and back, in blocks along the last axis.

    Each block is scaled by its absmax.
    """
    x = np.asarray(x)
    cut = _blocks(x, block)
    absmax = np.abs(cut).max(axis=-1, keepdims=True)
    codes = np.searchsorted(NF4_THRESHOLDS.astype(x.dtype), cut / np.where(absmax == 0, 1, absmax), side="left")
    decoded = NF4_LEVELS.astype(x.dtype)[codes] * absmax
    return decoded.reshape(*x.shape[:-1], -1)[..., : x.shape[-1]]


def int8_roundtrip(x: np.ndarray, block: int = 64) -> np.ndarray:
    """``x`` after signed 8-bit codes (-127..127) and back.

    Blocks are along the last axis.
    """
    x = np.asarray(x)
    cut = _blocks(x, block)
    absmax = np.abs(cut).max(axis=-1, keepdims=True)
    decoded = np.rint(cut / np.where(absmax == 0, 1, absmax) * 127) * (absmax / 127)
    return decoded.reshape(*x.shape[:-1], -1)[..., : x.shape[-1]]


def cached_value(x: np.ndarray, cache: str) -> np.ndarray:
    """A tap ``x`` as the adapters see it.

    The forward cache is ``nf4``, ``int8`` or ``none``.
    """
    known: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "nf4": nf4_roundtrip,
        "int8": int8_roundtrip,
        "none": np.asarray,
    }
    if cache not in known:
        raise ValueError(f"cache={cache!r}: must be one of {', '.join(known)}")
    return known[cache](x)


# ---------------------------------------------------------------- the base network


def windows(layer: ConvLayer, x: np.ndarray) -> np.ndarray:
    """im2col: ``[n, i * kh * kw, oh * ow]`` of images ``[n, i, h, w]``."""
    top, left, bottom, right = layer.pads
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    (kh, kw), (sh, sw) = layer.kernel, layer.stride
    view = sliding_window_view(padded, (kh, kw), axis=(2, 3))[:, :, ::sh, ::sw]
    n, _, oh, ow = view.shape[:4]
    return view.transpose(0, 1, 4, 5, 2, 3).reshape(n, layer.inputs * kh * kw, oh * ow)


def max_pool(x: np.ndarray, k: int) -> np.ndarray:
    """``k x k`` maximum with stride ``k`` of ``[n, c, h, w]``.

    Rows and columns left over are dropped.
    """
    if k == 1:
        return x
    h, w = x.shape[2] // k * k, x.shape[3] // k * k
    best = x[:, :, :h:k, :w:k]
    for at in range(1, k * k):
        best = np.maximum(best, x[:, :, at // k : h : k, at % k : w : k])
    return best


def layer_forward(layer: ConvLayer | DenseLayer, x: np.ndarray) -> np.ndarray:
    """A layer's output for a batch, in ``x``'s precision.

    Bias, ReLU and pooling are included.
    """
    weight, bias = layer.weight.astype(x.dtype, copy=False), layer.bias.astype(x.dtype, copy=False)
    if isinstance(layer, DenseLayer):
        y = x.reshape(len(x), -1) @ weight.T + bias
        return np.maximum(y, 0) if layer.relu else y
    _, oh, ow = layer.convolved(x.shape[1:])
    y = weight.reshape(layer.outputs, -1) @ windows(layer, x)
    y = max_pool(y.reshape(len(x), layer.outputs, oh, ow), layer.pool)
    y = y + bias[:, None, None]  # maximum, bias and ReLU commute; fewer elements after it
    return np.maximum(y, 0) if layer.relu else y


class _Frozen(Reading):
    """The frozen network on activations.

    It gives taps ``[n, size]`` as a cache keeps them, and logits.
    """

    def __init__(self, network: LayerNetwork, x: np.ndarray, cache: str) -> None:
        self.network, self.x, self.cache = network, x, cache
        self.taps: list[np.ndarray] = []
        self.logits = x

    def _encode(self, operation: Encode) -> None:
        self.taps.append(cached_value(self.x.reshape(len(self.x), -1), self.cache))

    def _convolve(self, operation: Convolve) -> None:
        self.x = layer_forward(self.network.layers[operation.layer], self.x)

    _dense = _convolve  # a layer knows itself what it computes

    def _record(self, operation: Record) -> None:
        self.logits = self.x


def forward(network: LayerNetwork, x: np.ndarray, cache: str = "none") -> tuple[list[np.ndarray], np.ndarray]:
    """``(taps, logits)`` of activations ``x`` ``[n, c, h, w]``.

    There is a tap a layer, ``[n, size]``, NCHW order.
    """
    x = np.asarray(x)
    if x.shape[1:] != network.input_shape:
        raise ValueError(f"x has shape {x.shape}: expected (n, {', '.join(map(str, network.input_shape))})")
    made = _Frozen(network, x, cache)
    made.run(frozen(network))
    return made.taps, made.logits


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatCache:
    """Taps and base logits of some samples, for the adapters.

    Taps are decoded, ``[n, size]``; logits are ``[n, classes]``.
    """

    taps: list[np.ndarray]
    logits: np.ndarray

    @classmethod
    def of(
        cls, network: LayerNetwork, images: np.ndarray, *, cache: str = "nf4", dtype=np.float64, chunk: int = 100
    ) -> "FloatCache":
        """The cache of uint8 ``images``.

        ``dtype`` is the precision of everything.
        """
        parts, logits = [], []
        for start in range(0, len(images), chunk):  # im2col of all images at once takes gigabytes
            x = network.pixel_map.activations(images[start : start + chunk]).astype(dtype)
            taps, z = forward(network, x, cache)
            parts.append(taps)
            logits.append(z)
        return cls(taps=[np.concatenate(tap) for tap in zip(*parts)], logits=np.concatenate(logits))

    def batch(self, index: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """``(taps, logits)`` of the samples at ``index``."""
        return [tap[index] for tap in self.taps], self.logits[index]


# ---------------------------------------------------------------- the adapters


def adapter_logits(adapters: Adapters, taps: Sequence[np.ndarray], base: np.ndarray) -> np.ndarray:
    """``base + sum_t (x_t A_t^T) B_t^T``."""
    return sum(((x @ a.T) @ b.T for (a, b), x in zip(adapters, taps)), start=base)


class _Learning(Reading):
    """Batches of a fine-tune.

    ``a`` and ``b`` learn in place, a matrix a tap.
    """

    def __init__(self, adapters: Adapters, lr: float = 1.0, momentum: float = 0.0) -> None:
        self.a, self.b = ([pair[which].copy() for pair in adapters] for which in (0, 1))
        self.velocity = {id(w): np.zeros_like(w) for w in (*self.a, *self.b)}
        self.lr, self.momentum = lr, momentum

    def judge(
        self, taps: Sequence[np.ndarray], base: np.ndarray, labels: np.ndarray, weights: np.ndarray | float = 1.0
    ) -> float:
        """The mean loss of a batch; ``weights``: factors of its samples' gradients."""
        self.x, self.base, self.labels, self.weights = taps, base, labels, weights
        self.h: list[np.ndarray] = []
        self.run(judged(len(taps)))
        return float(self.loss.mean())

    def learn(self) -> None:
        """Applies the updates of the batch that was judged last."""
        self.run(descents(len(self.a)))

    def gradient_a(self, tap: int) -> np.ndarray:
        """Of a tap's A."""
        return self.dh[tap].T @ self.x[tap]

    def gradient_b(self, tap: int) -> np.ndarray:
        """Of a tap's B."""
        return self.d.T @ self.h[tap]

    def _product(self, operation: Product) -> None:
        self.h.append(self.x[operation.tap] @ self.a[operation.tap].T)

    def _loss(self, operation: Loss) -> None:
        logits = sum((h @ b.T for b, h in zip(self.b, self.h)), start=self.base)
        self.loss, d = cross_entropy(logits, self.labels)
        self.d = np.multiply(d.T, self.weights, dtype=d.dtype).T / len(self.labels)
        self.dh = [self.d @ b for b in self.b]

    def _descent(self, operation: Descent) -> None:
        if operation.tap is None:
            for tap, b in enumerate(self.b):
                self._descend(b, self.gradient_b(tap))
        else:
            self._descend(self.a[operation.tap], self.gradient_a(operation.tap))

    def _descend(self, w: np.ndarray, g: np.ndarray) -> None:
        v = self.velocity[id(w)]
        v *= self.momentum
        v += self.lr * g
        w -= v


def loss_and_gradients(
    adapters: Adapters, taps: Sequence[np.ndarray], base: np.ndarray, labels: np.ndarray
) -> tuple[float, list[tuple[np.ndarray, np.ndarray]]]:
    """Mean loss of a batch and its gradients ``(dA, dB)``, a pair a tap."""
    made = _Learning(adapters)
    loss = made.judge(taps, base, labels)
    return loss, [(made.gradient_a(tap), made.gradient_b(tap)) for tap in range(len(taps))]


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatResult:
    """Results of a fine-tune in floating point.

    Members
    -------
    loss : one number a step, the mean over its batch
    adapters : ``(A, B)`` of every tap
    accuracy_before, accuracy_after : fraction of the test images, base network and adapted network
    """

    loss: list[float]
    adapters: list[tuple[np.ndarray, np.ndarray]]
    accuracy_before: float
    accuracy_after: float


def train_adapters(
    train: FloatCache,
    labels: np.ndarray,
    adapters: Adapters,
    *,
    lr: float = 0.05,
    batch: int = 20,
    epochs: int = 10,
    momentum: float = 0.0,
    schedule: str = "constant",
    seed: int = 0,
    shuffled: bool = True,
    weights: np.ndarray | None = None,
    progress: Callable[[int, float], None] | None = None,
    after: Callable[[int, float, Adapters], bool] = lambda step, loss, adapters: False,
) -> tuple[list[float], list[tuple[np.ndarray, np.ndarray]]]:
    """Trains adapters by SGD on the mean loss of each batch; ``weights``: a factor of each sample's gradient.

    Returns ``(loss of every step, trained adapters)``.

    A loss that is not finite, or an adapter that float32 does not hold, ends it without the update that led there: then
    there are fewer losses than steps.

    With momentum, ``v = momentum * v + lr * gradient`` and ``w = w - v``; ``schedule`` changes lr from step to step.
    ``progress`` is called after each step with its number and loss, ``after`` with its adapters, too; it says whether
    the step was the last.
    """
    if not (np.isfinite(lr) and lr > 0):
        raise ValueError(f"lr={lr}: must be positive")
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum={momentum}: must be at least 0 and below 1")
    if epochs < 1:
        raise ValueError(f"epochs={epochs}: must be at least 1")
    learning = _Learning(adapters, lr, momentum)
    learnt = [w for pair in zip(learning.a, learning.b) for w in pair]
    kept = [w.copy() for w in learnt]
    losses: list[float] = []
    order = [
        index
        for epoch in range(epochs)
        for index in batches(epoch_order(len(labels), epoch, seed, shuffled=shuffled), batch)
    ]
    rates = Schedule(shape=schedule, steps=len(order))
    # What overflows is seen below.
    with np.errstate(over="ignore", invalid="ignore"):
        for index in order:
            loss = learning.judge(*train.batch(index), labels[index], 1.0 if weights is None else weights[index])
            if not np.isfinite(loss):
                learnt = kept
                break
            kept = [w.copy() for w in learnt]
            learning.lr = lr * rates.factor(len(losses) + 1)
            learning.learn()
            if not all(map(representable, learnt)):
                learnt = kept
                break
            losses.append(loss)
            if progress:
                progress(len(losses), loss)
            if after(len(losses), float(loss), list(zip(learnt[::2], learnt[1::2]))):
                break
    return losses, list(zip(learnt[::2], learnt[1::2]))


def evaluate_float(
    network: LayerNetwork,
    images: np.ndarray,
    labels: np.ndarray,
    adapters: Adapters | None = None,
    *,
    cache: str = "nf4",
    dtype=np.float64,
) -> float:
    """Accuracy of the base network, or with ``adapters``.

    The adapters see taps as ``cache`` decodes them.
    """
    seen = FloatCache.of(network, images, cache=cache if adapters else "none", dtype=dtype)
    return accuracy(adapter_logits(adapters or [], seen.taps, seen.logits), labels)


def finetune_float(
    network: LayerNetwork,
    data: Dataset,
    *,
    rank: int = 4,
    lr: float = 0.05,
    batch: int = 20,
    epochs: int = 10,
    momentum: float = 0.0,
    seed: int = 0,
    shuffled: bool = True,
    cache: str = "nf4",
    dtype=np.float64,
    progress: Callable[[int, float], None] | None = None,
) -> FloatResult:
    """A whole fine-tune of direct-to-output adapters in floating point.

    ``seed`` fixes the adapters' first values and the order of samples, which is their own without ``shuffled``;
    ``cache`` is how taps are kept.
    """
    if network.classes != data.classes:
        raise ValueError(f"data has {data.classes} classes: {network.name} has {network.classes} logits")
    start = [(a.astype(dtype), b.astype(dtype)) for a, b in initial_adapters(network.taps, network.classes, rank, seed)]
    train = FloatCache.of(network, data.x_train, cache=cache, dtype=dtype)
    loss, adapters = train_adapters(
        train,
        data.y_train,
        start,
        lr=lr,
        batch=batch,
        epochs=epochs,
        momentum=momentum,
        seed=seed,
        shuffled=shuffled,
        progress=progress,
    )
    test = FloatCache.of(network, data.x_test, cache=cache, dtype=dtype)
    return FloatResult(
        loss=loss,
        adapters=adapters,
        accuracy_before=accuracy(test.logits, data.y_test),
        accuracy_after=accuracy(adapter_logits(adapters, test.taps, test.logits), data.y_test),
    )
