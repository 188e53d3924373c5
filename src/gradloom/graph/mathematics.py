"""A network in floating point, forward and backward.

Values are ``[samples, *sides, features]``; a tensor of weights has one sample for all. The backward pass goes through
the same list against its order, and makes no gradient that no learner needs.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from .base import Operation, Tensor
from .dependence import dependent
from .functions import FUNCTIONS
from .network import Network
from .operations import (
    Activation,
    Add,
    Attention,
    Concat,
    Gated,
    Larger,
    Linear,
    MatMul,
    Multiply,
    Norm,
    Pad,
    Parameter,
    Prelu,
    Rearrange,
    Reduce,
    Rest,
    Slice,
    Softmax,
    Upsample,
)
from .rewriting.resampling import sampling
from .windowed import Windowed

__all__ = ["FloatReading", "Gradients"]

Gradients = dict[str, np.ndarray]
_Back = tuple[Sequence[np.ndarray | None], Gradients]


class FloatReading(Windowed):
    """The mathematics of a network.

    Parameters
    ----------
    network : Network
    dtype : type
        Of all values.

    Attributes
    ----------
    values : dict
        Weights by name; what learns is changed here.
    """

    def __init__(self, network: Network, *, dtype: type = np.float64) -> None:
        self.network, self.dtype = network, dtype
        self.values = {name: np.asarray(value, dtype) for name, value in network.values.items()}

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Matrix product of the last two axes."""
        made: np.ndarray = a @ b
        return made

    def operand(self, x: np.ndarray, *, over_rows: bool = False) -> np.ndarray:
        """What a product takes of a tensor, here itself; ``over_rows``: to sum over its rows."""
        return x

    def held(self, each: Operation, x: np.ndarray) -> np.ndarray:
        """What is kept of a result; here all."""
        return x

    def weight(self, name: str, *, back: bool = False) -> np.ndarray:
        """A layer's weights, for products; ``back``: of gradients."""
        return self.values[name]

    def run(self, inputs: Mapping[str, np.ndarray] | np.ndarray) -> list[np.ndarray]:
        """The file's results, of its inputs by name, or of the one that it has."""
        found = self.forward(inputs)
        return [port.given(found[port.tensor.name]) for port in self.network.outputs]

    def forward(self, inputs: Mapping[str, np.ndarray] | np.ndarray) -> dict[str, np.ndarray]:
        """Every tensor by name."""
        found = self.taken(inputs)
        for each in self.network.operations:
            self.step(each, found)
        return found

    def taken(self, inputs: Mapping[str, np.ndarray] | np.ndarray) -> dict[str, np.ndarray]:
        """Tensors of the network's inputs."""
        if isinstance(inputs, np.ndarray):
            if len(self.network.inputs) != 1:
                names = ", ".join(repr(each.name) for each in self.network.inputs)
                raise ValueError(f"inputs={names}: the network has several, each must be given by name")
            inputs = {self.network.inputs[0].name: inputs}
        return {port.tensor.name: port.taken(np.asarray(inputs[port.name], self.dtype)) for port in self.network.inputs}

    def step(self, each: Operation, found: dict[str, np.ndarray]) -> None:
        """One operation."""
        made = self._rule(each)(each, *(found[t.name] for t in each.i))
        found[each.o.name] = self.held(each, np.maximum(made, 0) if each.positive else made)

    def _rule(self, each: Operation, back: str = "") -> Any:
        return getattr(self, f"_{type(each).__name__.lower()}{back}")

    def backward(
        self, found: Mapping[str, np.ndarray], last: Mapping[str, np.ndarray], learners: Collection[str]
    ) -> Gradients:
        """Gradients of weights.

        Parameters
        ----------
        found : mapping
            All tensors of the forward pass.
        last : mapping
            Gradients of tensors, by name.
        learners : collection of str
            Weights whose gradients are wanted.
        """
        needed = dependent(self.network.operations, learners)
        gradients = {name: each for name, each in last.items() if name in needed}
        learnt: Gradients = {}
        for each in reversed(self.network.operations):
            dy = gradients.pop(each.o.name, None)
            if dy is None:
                continue
            if each.positive:
                dy = np.where(found[each.o.name] > 0, dy, 0)
            wanted = [t.name in needed for t in each.i]
            own = {weight.name for weight in each.weights} & set(learners)
            parts = [found[t.name] for t in each.i]
            dxs, dws = self._rule(each, "_back")(each, dy, parts, found[each.o.name], wanted, own)
            for name, dw in dws.items():
                learnt[name] = learnt[name] + dw if name in learnt else dw
            for t, want, dx in zip(each.i, wanted, dxs):
                if want:
                    dx = self.returned(each, t, dx)
                    gradients[t.name] = self.met(gradients[t.name], dx) if t.name in gradients else dx
        return learnt

    def returned(self, each: Operation, t: Tensor, dx: np.ndarray) -> np.ndarray:
        """What is kept of a tensor's gradient; here all."""
        return dx

    def met(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """The sum of two gradients of a tensor that two operations read."""
        return one + other

    def _parameter(self, each: Parameter) -> np.ndarray:
        return self.values[each.name].reshape(1, *each.o.shape)

    def _parameter_back(
        self, each: Parameter, dy: np.ndarray, parts: list, y: np.ndarray, wanted: list, own: set
    ) -> _Back:
        return [], {each.name: dy.sum(0).reshape(self.values[each.name].shape)} if own else {}

    def _rest(self, each: Rest, x: np.ndarray) -> np.ndarray:
        made: np.ndarray = x - self.operand(x)
        return made

    def _linear(self, each: Linear, *parts: np.ndarray) -> np.ndarray:
        x = sum(map(self.operand, parts[1:]), self.operand(parts[0]))
        y = self.product(x, self.weight(f"{each.layer}.weight").T)
        if each.rank:
            a, b = (self.weight(weight.name) for weight in each.adapter)
            hidden = self.operand(self.held(each, self.product(x, a.T)))
            y = y + self.dtype(each.scale) * self.product(hidden, b.T)
        return y + self.values[f"{each.layer}.bias"] if each.bias else y

    def _linear_back(self, each: Linear, dy: np.ndarray, parts: list, y: np.ndarray, wanted: list, own: set) -> _Back:
        x, learnt = parts[0], {}
        name = f"{each.layer}.weight"
        back = self.operand(dy)
        dx = self.product(back, self.weight(name, back=True)) if wanted[0] else None
        if f"{each.layer}.bias" in own:
            learnt[f"{each.layer}.bias"] = dy.reshape(-1, dy.shape[-1]).sum(0)
        if name in own:
            learnt[name] = self._over_rows(dy, x)
        if each.rank:
            a, b = (self.weight(weight.name, back=True) for weight in each.adapter)
            scale = self.dtype(each.scale)
            through = self.held(each, scale * self.product(back, b))
            if each.adapter[0].name in own:
                hidden = self.held(each, self.product(self.operand(x), self.weight(each.adapter[0].name).T))
                learnt[each.adapter[0].name] = self._over_rows(through, x)
                learnt[each.adapter[1].name] = scale * self._over_rows(dy, hidden)
            if dx is not None:
                dx = dx + self.product(self.operand(through), a)
        return [dx], learnt

    def _over_rows(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """``one' other``, over all rows of all samples."""
        a, b = (self.operand(x, over_rows=True).reshape(-1, x.shape[-1]) for x in (one, other))
        return self.product(a.T, b)

    def _norm_parts(self, each: Norm, x: np.ndarray) -> np.ndarray:
        return x.reshape(len(x) * each.o.rows // each.span, each.span, each.groups, -1)

    def _normed(self, each: Norm, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
        """Normalised values, deviations, and the axes of a group."""
        axes = (1, 3)
        seen = self._norm_parts(each, x)
        if each.centred:
            seen = seen - seen.mean(axes, keepdims=True)
        deviation = np.sqrt(np.square(seen).mean(axes, keepdims=True) + self.dtype(each.eps))
        return seen / deviation, deviation, axes

    def _kept_part(self, each: Norm, n: np.ndarray) -> np.ndarray:
        """Of normalised values those of the result."""
        return n.reshape(-1, *each.i[0].shape)[..., : each.o.features]

    def _norm(self, each: Norm, x: np.ndarray) -> np.ndarray:
        y = self._kept_part(each, self._normed(each, x)[0])
        if each.gain:
            y = y * self.values[f"{each.layer}.weight"]
        return y + self.values[f"{each.layer}.bias"] if each.bias else y

    def _norm_back(self, each: Norm, dy: np.ndarray, parts: list, y: np.ndarray, wanted: list, own: set) -> _Back:
        n, deviation, axes = self._normed(each, parts[0])
        learnt, over = {}, tuple(range(dy.ndim - 1))
        if f"{each.layer}.weight" in own:
            learnt[f"{each.layer}.weight"] = (dy * self._kept_part(each, n)).sum(over)
        if f"{each.layer}.bias" in own:
            learnt[f"{each.layer}.bias"] = dy.sum(over)
        if not wanted[0]:
            return [None], learnt
        dn = dy * self.values[f"{each.layer}.weight"] if each.gain else dy
        beyond = each.i[0].features - each.o.features
        dn = self._norm_parts(each, np.pad(dn, [*((0, 0) for _ in dn.shape[1:]), (0, beyond)]))
        share = n * (dn * n).mean(axes, keepdims=True)
        if each.centred:
            share = share + dn.mean(axes, keepdims=True)
        return [((dn - share) / deviation).reshape(parts[0].shape)], learnt

    def _activation(self, each: Activation, x: np.ndarray) -> np.ndarray:
        made: np.ndarray = FUNCTIONS[each.kind].of(x, *map(self.dtype, each.parameters))
        return made

    def _activation_back(
        self, each: Activation, dy: np.ndarray, parts: list, y: np.ndarray, wanted: list, own: set
    ) -> _Back:
        return [dy * FUNCTIONS[each.kind].slope(parts[0], *map(self.dtype, each.parameters))], {}

    def _gated(self, each: Gated, x: np.ndarray) -> np.ndarray:
        value, gate = np.split(x, 2, axis=-1)
        made: np.ndarray = value * FUNCTIONS[each.kind].of(gate)
        return made

    def _gated_back(self, each: Gated, dy: np.ndarray, parts: list, y: np.ndarray, wanted: list, own: set) -> _Back:
        value, gate = np.split(parts[0], 2, axis=-1)
        function = FUNCTIONS[each.kind]
        return [np.concatenate([dy * function.of(gate), dy * value * function.slope(gate)], axis=-1)], {}

    def _prelu(self, each: Prelu, x: np.ndarray) -> np.ndarray:
        return np.where(x < 0, x * self.values[f"{each.layer}.weight"], x)

    def _prelu_back(self, each: Prelu, dy: np.ndarray, parts: list, y: np.ndarray, wanted: list, own: set) -> _Back:
        (x,), name = parts, f"{each.layer}.weight"
        learnt = {}
        if own:
            below = (dy * np.minimum(x, 0)).reshape(-1, x.shape[-1])
            learnt[name] = below.sum(0) if each.slopes > 1 else below.sum().reshape(1)
        return [np.where(x > 0, dy, dy * self.values[name])], learnt

    def _softmax(self, each: Softmax, x: np.ndarray) -> np.ndarray:
        x = x - x.max(-1, keepdims=True)
        powers = np.exp(x)
        total = powers.sum(-1, keepdims=True)
        return x - np.log(total) if each.log else powers / total

    def _softmax_back(self, each: Softmax, dy: np.ndarray, parts: list, y: np.ndarray, wanted: list, own: set) -> _Back:
        if each.log:
            return [dy - np.exp(y) * dy.sum(-1, keepdims=True)], {}
        return [y * (dy - (dy * y).sum(-1, keepdims=True))], {}

    def _matmul(self, each: MatMul, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a, b = self.operand(a), self.operand(b, over_rows=not each.turned)
        return self.product(a, b.swapaxes(-1, -2) if each.turned else b)

    def _matmul_back(self, each: MatMul, dy: np.ndarray, parts: list, y: np.ndarray, wanted: list, own: set) -> _Back:
        a, b = parts
        da = db = None
        if wanted[0]:
            held = self.operand(b, over_rows=each.turned)
            da = self.product(self.operand(dy), held if each.turned else held.swapaxes(-1, -2))
        if wanted[1]:
            one, other = (self.operand(x, over_rows=True) for x in ((dy, a) if each.turned else (a, dy)))
            db = self.product(one.swapaxes(-1, -2), other)
        return [shrunk(da, a), shrunk(db, b)], {}

    def _heads(self, each: Attention, x: np.ndarray) -> np.ndarray:
        """``[samples, heads, rows, features]``."""
        return x.reshape(len(x), -1, each.heads, x.shape[-1] // each.heads).swapaxes(1, 2)

    def _shares(self, each: Attention, q: np.ndarray, k: np.ndarray, bias: Sequence[np.ndarray]) -> np.ndarray:
        q, k = (self._heads(each, self.operand(x)) for x in (q, k))
        scores = self.held(each, self.product(q, k.swapaxes(2, 3))) * self.dtype(each.scale)
        for more in bias:
            scores = scores + more.reshape(len(more), -1, *scores.shape[-2:])
        powers = np.exp(scores - scores.max(3, keepdims=True))
        return self.held(each, powers / powers.sum(3, keepdims=True))

    def _joined(self, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        return x.swapaxes(1, 2).reshape(len(x), *shape)

    def _attention(self, each: Attention, q: np.ndarray, k: np.ndarray, v: np.ndarray, *bias: np.ndarray) -> np.ndarray:
        shares = self._shares(each, q, k, bias)
        values = self._heads(each, self.operand(v, over_rows=True))
        return self._joined(self.product(self.operand(shares), values), each.o.shape)

    def _attention_back(
        self, each: Attention, dy: np.ndarray, parts: list, y: np.ndarray, wanted: list, own: set
    ) -> _Back:
        q, k, v, *bias = parts
        shares = self._shares(each, q, k, bias)
        dp = self.product(self._heads(each, self.operand(dy)), self._heads(each, self.operand(v)).swapaxes(2, 3))
        dp = self.held(each, dp)
        scores = self.held(each, shares * (dp - (dp * shares).sum(3, keepdims=True)))
        # The factor comes behind the scores, before the bias.
        scaled = scores * self.dtype(each.scale)
        over, turned = self.operand(scaled), self.operand(scaled, over_rows=True).swapaxes(2, 3)
        d, one, other = (self._heads(each, self.operand(x, over_rows=True)) for x in (dy, q, k))
        found: list[np.ndarray | None] = [
            self._joined(self.product(over, other), each.i[0].shape),
            self._joined(self.product(turned, one), each.i[1].shape),
            self._joined(self.product(self.operand(shares, over_rows=True).swapaxes(2, 3), d), each.i[2].shape),
        ]
        for more in bias:
            seen = scores if len(each.i[3].sides) == 2 and each.i[3].sides[0] > 1 else scores.sum(1, keepdims=True)
            found.append(shrunk(seen.reshape(len(seen), *more.shape[1:]), more))
        return found, {}

    def _add(self, each: Add, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a - b if each.subtract else a + b

    def _add_back(self, each: Add, dy: np.ndarray, parts: list, y: np.ndarray, wanted: list, own: set) -> _Back:
        return [shrunk(dy, parts[0]), shrunk(-dy if each.subtract else dy, parts[1])], {}

    def _multiply(self, each: Multiply, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a * b

    def _multiply_back(
        self, each: Multiply, dy: np.ndarray, parts: list, y: np.ndarray, wanted: list, own: set
    ) -> _Back:
        a, b = parts
        return [shrunk(dy * b, a) if wanted[0] else None, shrunk(dy * a, b) if wanted[1] else None], {}

    def _larger(self, each: Larger, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        made: np.ndarray = np.maximum(a, b)
        return made

    def _larger_back(self, each: Larger, dy: np.ndarray, parts: list, y: np.ndarray, wanted: list, own: set) -> _Back:
        first = np.where(parts[0] >= parts[1], dy, 0)
        return [first, dy - first], {}

    def _rows(self, each: Reduce, x: np.ndarray) -> tuple[int, ...]:
        return tuple(range(1, x.ndim - 1)) if each.over_rows else (x.ndim - 1,)

    def _reduce(self, each: Reduce, x: np.ndarray) -> np.ndarray:
        made: np.ndarray = getattr(np, each.kind)(x, axis=self._rows(each, x), keepdims=True)
        return made.reshape(len(x), *each.o.shape)

    def _reduce_back(self, each: Reduce, dy: np.ndarray, parts: list, y: np.ndarray, wanted: list, own: set) -> _Back:
        (x,) = parts
        axes = self._rows(each, x)
        kept = [1 if n in axes else size for n, size in enumerate(x.shape)]
        dy = dy.reshape(kept)
        if each.kind == "max":
            first = x == y.reshape(kept)
            return [dy * first / first.sum(axes, keepdims=True)], {}
        count = int(np.prod([x.shape[n] for n in axes])) if each.kind == "mean" else 1
        return [np.broadcast_to(dy / self.dtype(count), x.shape)], {}

    def _concat(self, each: Concat, *parts: np.ndarray) -> np.ndarray:
        count = max(len(each) for each in parts)
        return np.concatenate([np.broadcast_to(p, (count, *p.shape[1:])) for p in parts], axis=1 + each.axis)

    def _concat_back(self, each: Concat, dy: np.ndarray, parts: list, y: np.ndarray, wanted: list, own: set) -> _Back:
        ends = np.cumsum([part.shape[1 + each.axis] for part in parts])[:-1]
        return [shrunk(dx, part) for dx, part in zip(np.split(dy, ends, axis=1 + each.axis), parts)], {}

    def _span(self, each: Slice) -> tuple[slice, ...]:
        count = each.o.shape[each.axis]
        stop = each.start + (count - 1) * each.step + 1
        return (*(slice(None) for _ in range(1 + each.axis)), slice(each.start, stop, each.step))

    def _slice(self, each: Slice, x: np.ndarray) -> np.ndarray:
        return x[self._span(each)]

    def _slice_back(self, each: Slice, dy: np.ndarray, parts: list, y: np.ndarray, wanted: list, own: set) -> _Back:
        dx = np.zeros((len(dy), *each.i[0].shape), dy.dtype)
        dx[self._span(each)] = dy
        return [dx], {}

    def _pad(self, each: Pad, x: np.ndarray) -> np.ndarray:
        given = {"constant_values": each.value} if each.mode == "constant" else {}
        return np.pad(x, [(0, 0), *each.pads, (0, 0)], mode=each.mode, **given)  # type: ignore[call-overload]

    def _pad_back(self, each: Pad, dy: np.ndarray, parts: list, y: np.ndarray, wanted: list, own: set) -> _Back:
        if each.mode == "constant":
            inner = (slice(low, low + size) for (low, _), size in zip(each.pads, each.i[0].sides))
            return [dy[(slice(None), *inner)]], {}
        numbers = np.arange(each.i[0].rows).reshape(each.i[0].sides)
        source = np.pad(numbers, each.pads, mode=each.mode).ravel()  # type: ignore[call-overload]
        dx = np.zeros((len(dy), each.i[0].rows, dy.shape[-1]), dy.dtype)
        for place, part in zip(source, dy.reshape(len(dy), -1, dy.shape[-1]).swapaxes(0, 1)):
            dx[:, place] += part
        return [dx.reshape(len(dy), *each.i[0].shape)], {}

    def _upsample(self, each: Upsample, x: np.ndarray) -> np.ndarray:
        for axis, matrix in enumerate(sampling(each)):
            x = np.moveaxis(np.tensordot(x, matrix.astype(x.dtype), (1 + axis, 1)), -1, 1 + axis)
        return x

    def _upsample_back(
        self, each: Upsample, dy: np.ndarray, parts: list, y: np.ndarray, wanted: list, own: set
    ) -> _Back:
        for axis, matrix in enumerate(sampling(each)):
            dy = np.moveaxis(np.tensordot(dy, matrix.astype(dy.dtype), (1 + axis, 0)), -1, 1 + axis)
        return [dy], {}

    def _rearrange(self, each: Rearrange, x: np.ndarray) -> np.ndarray:
        seen = x.reshape(len(x), *each.sizes).transpose(0, *(1 + n for n in each.order))
        return seen.reshape(len(x), *each.o.shape)

    def _rearrange_back(
        self, each: Rearrange, dy: np.ndarray, parts: list, y: np.ndarray, wanted: list, own: set
    ) -> _Back:
        seen = dy.reshape(len(dy), *(each.sizes[n] for n in each.order))
        back = seen.transpose(0, *(1 + int(n) for n in np.argsort(each.order)))
        return [back.reshape(len(dy), *each.i[0].shape)], {}


def shrunk(dx: Any, like: np.ndarray) -> Any:
    """A gradient summed over what was repeated of its tensor."""
    if dx is None or dx.shape == like.shape:
        return dx
    axes = tuple(n for n, (mine, full) in enumerate(zip(like.shape, dx.shape)) if mine == 1 and full > 1)
    return dx.sum(axes, keepdims=True)
