"""A UNet's list of operations in floating point, forward and backward.

Values are matrices ``[images · rows, features]``. The backward pass goes through the same list against its order, and
makes no gradient that no adapter needs.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from gradloom.models.adapters.lora import Adapter
from gradloom.models.files.unet import UNet
from gradloom.program.operations import Reading, with_gradients

from .operations import (
    Activation,
    Add,
    Attention,
    Concat,
    Convolution,
    GroupNorm,
    LayerNorm,
    Linear,
    Operation,
    Shift,
    Upsample,
)
from .unet import RESULT

__all__ = ["FloatDescent", "FloatUNet", "normed", "patches", "timesteps"]

Factors = Mapping[str, Adapter]
Gradients = dict[str, tuple[np.ndarray, np.ndarray]]
_Ways = tuple[Callable, Callable]


def timesteps(net: UNet, steps: np.ndarray) -> np.ndarray:
    """Sines and cosines of timesteps ``[images]``, ``[images, channels]``.

    They are those of diffusers' ``Timesteps``, cosines first where the configuration says so.
    """
    half = net.channels[0] // 2
    angles = steps[:, None] * np.exp(-np.log(10000.0) * np.arange(half) / (half - net.shift))
    pair = (np.cos(angles), np.sin(angles)) if net.flip else (np.sin(angles), np.cos(angles))
    return np.concatenate(pair, axis=1)


#: Ends and places of the table of the normal distribution; first-order steps from a place are within 2e-8.
_END, _PLACES = 6.0, 1 << 14
_AT = np.linspace(-_END, _END, _PLACES + 1)
_DENSITY = np.exp(-np.square(_AT) / 2) / np.sqrt(2 * np.pi)
_NORMAL = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in _AT])


class FloatUNet(Reading):
    """The mathematics of a list of operations, with LoRA.

    Parameters
    ----------
    operations : sequence of Operation
        What :func:`~gradloom.systems.diffusion.unet.operations` lists.
    weights : mapping
        Frozen weights by diffusers' name.
    dtype : type
        Type of all values.
    """

    def __init__(
        self, operations: Sequence[Operation], weights: Mapping[str, np.ndarray], *, dtype: type = np.float32
    ) -> None:
        self.operations, self.dtype = operations, dtype
        self.needed = with_gradients(operations)
        self.held = {}
        for each in operations:
            for weight in each.weights:
                value: np.ndarray = np.asarray(weights[weight.name], dtype)
                if value.shape != weight.shape:
                    raise ValueError(f"{weight.name}: shape {value.shape}, must be {weight.shape}")
                if isinstance(each, Convolution) and value.ndim == 4:
                    # Nine places, of all channels each.
                    value = value.transpose(2, 3, 1, 0).reshape(-1, value.shape[0])
                elif isinstance(each, Linear) and value.ndim > 1:
                    value = value.reshape(value.shape[0], -1).T
                self.held[weight.name] = value

    def operand(self, x: np.ndarray) -> np.ndarray:
        """What a product takes of ``x``: here itself."""
        return x

    def product(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Matrix product of two operands."""
        made: np.ndarray = self.operand(x) @ self.operand(y)
        return made

    def loss_and_gradients(
        self, inputs: Mapping[str, np.ndarray], noise: np.ndarray, adapters: Factors
    ) -> tuple[float, Gradients]:
        """Mean squared error of the predicted noise, and gradients of A and B.

        ``inputs``: ``latents``, ``timestep``, ``prompt`` as ``[images, rows, features]``; ``noise`` ``[images, rows,
        features]``.
        """
        found = self.forward(inputs, adapters)
        error = self.error(found[RESULT], noise)
        loss = float(np.mean(np.square(error, dtype=np.float64)))
        return loss, self.backward(found, self.loss_gradient(error), adapters)

    def error(self, made: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """The predicted noise less the noise."""
        return made - noise.reshape(made.shape).astype(self.dtype)

    def loss_gradient(self, error: np.ndarray) -> np.ndarray:
        """Gradient of the mean of the error's squares."""
        return 2 * error / error.size

    def loss(self, inputs: Mapping[str, np.ndarray], noise: np.ndarray, adapters: Factors) -> float:
        """Mean squared error of the predicted noise."""
        return float(np.mean(np.square(self.error(self.predicted(inputs, adapters), noise), dtype=np.float64)))

    def predicted(self, inputs: Mapping[str, np.ndarray], adapters: Factors) -> np.ndarray:
        """The predicted noise, ``[images · rows, features]``."""
        return self.forward(inputs, adapters)[RESULT]

    def forward(self, inputs: Mapping[str, np.ndarray], adapters: Factors) -> dict[str, np.ndarray]:
        """Every tensor by name."""
        self.images = len(inputs["latents"])
        found: dict[str, np.ndarray] = {
            name: np.asarray(x, self.dtype).reshape(-1, x.shape[-1]) for name, x in inputs.items()
        }
        for each in self.operations:
            arguments = [found[t.name] for t in each.i]
            found[each.o.name] = self.do(each, adapters)[0](*arguments)
        return found

    def backward(self, found: Mapping[str, np.ndarray], last: np.ndarray, adapters: Factors) -> Gradients:
        """Gradients of every adapter's A and B from that of the result."""
        learnt: Gradients = {}

        def learn(each: Operation, x: np.ndarray, dy: np.ndarray) -> None:
            if isinstance(each, Linear) and each.rank:
                learnt[each.layer] = self.adapter_gradients(adapters[each.layer], x, dy)

        self.visit_gradients(found, last, adapters, learn)
        return learnt

    def visit_gradients(
        self,
        found: Mapping[str, np.ndarray],
        last: np.ndarray,
        adapters: Factors,
        learn: Callable[[Operation, np.ndarray, np.ndarray], None],
    ) -> None:
        """The backward pass.

        ``learn`` hears of every operation that has a gradient: its first tensor, and the gradient of its result.
        """
        gradients = {RESULT: last}
        for each in reversed(self.operations):
            if each.o.name not in self.needed:
                continue
            dy = gradients.pop(each.o.name)
            arguments = [found[t.name] for t in each.i]
            learn(each, arguments[0], dy)
            if any(t.name in self.needed for t in each.i):
                for t, dx in zip(each.i, self.do(each, adapters)[1](dy, *arguments)):
                    if t.name in self.needed:
                        gradients[t.name] = gradients[t.name] + dx if t.name in gradients else dx

    def adapter_gradients(self, adapter: Adapter, x: np.ndarray, dy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradients of A and B beside a linear layer of input ``x``."""
        scaled, product = dy * self.dtype(adapter.scale), self.product
        return product(product(scaled, adapter.b).T, x), product(scaled.T, product(x, adapter.a.T))

    # How an operation goes forward, and how back.

    def _linear(self, each: Linear, adapters: Factors) -> _Ways:
        w = self.held[f"{each.layer}.weight"]
        bias, product = self.held.get(f"{each.layer}.bias", 0), self.product
        if not each.rank:
            return (lambda x: product(x, w) + bias), (lambda dy, x: (product(dy, w.T),))
        a, b, scale = adapters[each.layer].a, adapters[each.layer].b, self.dtype(adapters[each.layer].scale)
        return (
            lambda x: product(x, w) + bias + scale * product(product(x, a.T), b.T),
            lambda dy, x: (product(dy, w.T) + scale * product(product(dy, b), a),),
        )

    def _convolution(self, each: Convolution, adapters: Factors) -> _Ways:
        w, bias = self.held[f"{each.layer}.weight"], self.held[f"{each.layer}.bias"]
        i, o = each.i[0], each.o

        def forward(x: np.ndarray) -> np.ndarray:
            return self.product(patches(each, x), w) + bias

        def backward(dy: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
            padded: np.ndarray = np.zeros((self.images, i.side + 2, i.side + 2, i.features), self.dtype)
            columns = self.product(dy, w.T)
            for number, (y, across) in enumerate(_places(each)):
                part = columns[:, number * i.features : (number + 1) * i.features]
                padded[:, y, across] += part.reshape(self.images, o.side, o.side, i.features)
            return (padded[:, 1:-1, 1:-1].reshape(-1, i.features),)

        return forward, backward

    def _groupnorm(self, each: GroupNorm | LayerNorm, adapters: Factors) -> _Ways:
        gain, bias = self.held[f"{each.layer}.weight"], self.held[f"{each.layer}.bias"]

        def forward(x: np.ndarray) -> np.ndarray:
            return normed(each, x)[0].reshape(x.shape) * gain + bias

        def backward(dy: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
            n, deviation = normed(each, x)
            dn = _grouped(each, dy * gain)
            share = dn.mean((1, 3), keepdims=True) + n * (dn * n).mean((1, 3), keepdims=True)
            return (((dn - share) / deviation).reshape(x.shape),)

        return forward, backward

    _layernorm = _groupnorm

    def _activation(self, each: Activation, adapters: Factors) -> _Ways:
        return (_silu, _silu_back) if each.kind == "silu" else (_geglu, _geglu_back)

    def _attention(self, each: Attention, adapters: Factors) -> _Ways:
        heads, images, product = each.heads, self.images, self.product
        root = self.dtype(np.sqrt(each.o.features // heads))

        def split(x: np.ndarray) -> np.ndarray:
            return x.reshape(images, -1, heads, x.shape[1] // heads).transpose(0, 2, 1, 3)

        def joined(x: np.ndarray) -> np.ndarray:
            return x.transpose(0, 2, 1, 3).reshape(-1, heads * x.shape[3])

        def probabilities(q: np.ndarray, k: np.ndarray) -> np.ndarray:
            scores = product(split(q), split(k).swapaxes(2, 3)) / root
            powers = np.exp(scores - scores.max(3, keepdims=True))
            return powers / powers.sum(3, keepdims=True)

        def forward(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
            return joined(product(probabilities(q, k), split(v)))

        def backward(dy: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, ...]:
            p, d = probabilities(q, k), split(dy)
            dp = product(d, split(v).swapaxes(2, 3))
            scores = p * (dp - (dp * p).sum(3, keepdims=True)) / root
            turned = joined(product(scores.swapaxes(2, 3), split(q))), joined(product(p.swapaxes(2, 3), d))
            return joined(product(scores, split(k))), *turned

        return forward, backward

    def _add(self, each: Add, adapters: Factors) -> _Ways:
        return (lambda x, y: x + y), (lambda dy, x, y: (dy, dy))

    def _concat(self, each: Concat, adapters: Factors) -> _Ways:
        cut = each.i[0].features
        return (lambda x, y: np.hstack([x, y])), (lambda dy, x, y: (dy[:, :cut], dy[:, cut:]))

    def _shift(self, each: Shift, adapters: Factors) -> _Ways:
        o = each.o

        def backward(dy: np.ndarray, x: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, ...]:
            return dy, dy.reshape(-1, o.rows, o.features).sum(1)

        return (lambda x, row: x + np.repeat(row, o.rows, axis=0)), backward

    def _upsample(self, each: Upsample, adapters: Factors) -> _Ways:
        side, features = each.i[0].side, each.i[0].features

        def forward(x: np.ndarray) -> np.ndarray:
            square = x.reshape(-1, side, side, features)
            return square.repeat(2, axis=1).repeat(2, axis=2).reshape(-1, features)

        def backward(dy: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
            return (dy.reshape(-1, side, 2, side, 2, features).sum((2, 4)).reshape(-1, features),)

        return forward, backward


def _places(each: Convolution) -> list[tuple[slice, slice]]:
    """Rows and columns of a padded image that each of nine taps reads."""
    span = [slice(d, d + each.stride * each.o.side, each.stride) for d in range(3)]
    return [(y, x) for y in span for x in span]


def patches(each: Convolution, x: np.ndarray) -> np.ndarray:
    """Rows of a convolution's product: nine pixels, of all channels each."""
    side, features = each.i[0].side, each.i[0].features
    padded = np.pad(x.reshape(-1, side, side, features), ((0, 0), (1, 1), (1, 1), (0, 0)))
    return np.hstack([padded[:, y, across].reshape(-1, features) for y, across in _places(each)])


def _grouped(each: GroupNorm | LayerNorm, x: np.ndarray) -> np.ndarray:
    groups, rows = (each.groups, each.o.rows) if isinstance(each, GroupNorm) else (1, 1)
    return x.reshape(-1, rows, groups, x.shape[1] // groups)


def normed(each: GroupNorm | LayerNorm, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values less their group's mean over its deviation, and deviations.

    ``[.., rows, groups, features]``.
    """
    shaped = _grouped(each, x)
    centred = shaped - shaped.mean((1, 3), keepdims=True)
    deviation = np.sqrt(np.square(centred).mean((1, 3), keepdims=True) + each.eps)
    return centred / deviation, deviation


class FloatDescent:
    """AdamW without decay on all adapters, as ``torch.optim.AdamW`` does.

    ``rate``: of a step; ``betas`` and ``epsilon`` are torch's own defaults.
    """

    def __init__(self, rate: float, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8) -> None:
        self.rate, self.betas, self.epsilon = rate, betas, epsilon
        self.steps = 0
        self.moments: dict[Hashable, tuple[np.ndarray, np.ndarray]] = {}

    def __call__(self, adapters: Factors, gradients: Gradients) -> dict[str, Adapter]:
        """The adapters after one more step."""
        self.steps += 1
        return {
            layer: each.taking({part: self._moved((layer, part), each.parts[part], g) for part, g in zip("ab", both)})
            for layer, each in adapters.items()
            for both in [gradients[layer]]
        }

    def matrices(self, held: Mapping[str, np.ndarray], gradients: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The same for matrices by name."""
        self.steps += 1
        return {name: self._moved(name, x, gradients[name]) for name, x in held.items()}

    def _moved(self, key: Hashable, x: np.ndarray, g: np.ndarray) -> np.ndarray:
        fast, slow = self.betas
        m, v = self.moments.get(key, (np.zeros_like(x), np.zeros_like(x)))
        m, v = fast * m + (1 - fast) * g, slow * v + (1 - slow) * g * g
        self.moments[key] = m, v
        size = np.sqrt(v / (1 - slow**self.steps)) + self.epsilon
        return (x - self.rate * (m / (1 - fast**self.steps)) / size).astype(x.dtype)


def _silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def _silu_back(dy: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
    s = 1 / (1 + np.exp(-x))
    return (dy * s * (1 + x * (1 - s)),)


def _normal(x: np.ndarray) -> np.ndarray:
    unit = x.dtype.type(2 * _END / _PLACES)
    clipped = np.clip(x, -_END, _END)
    place = np.rint((clipped + x.dtype.type(_END)) / unit).astype(np.int32)
    step = clipped + x.dtype.type(_END) - place * unit
    made: np.ndarray = _NORMAL.astype(x.dtype)[place] + step * _DENSITY.astype(x.dtype)[place]
    return made


def _geglu(x: np.ndarray) -> np.ndarray:
    value, gate = np.split(x, 2, axis=1)
    return value * gate * _normal(gate)


def _geglu_back(dy: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
    value, gate = np.split(x, 2, axis=1)
    normal = _normal(gate)
    slope = normal + gate * np.exp(-gate * gate / 2) / x.dtype.type(np.sqrt(2 * np.pi))
    return (np.hstack([dy * gate * normal, dy * value * slope]),)
