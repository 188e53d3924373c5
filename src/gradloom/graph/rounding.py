"""Weights on the machine's grid, such that a network loses little on samples.

The nearest code of each weight is not the best choice: errors add up where inputs go together. So the codes of a layer
are chosen one input after the other, and the weights that are left make up for the error so far (GPTQ, Frantar et al.
2022). The bias takes the mean of what remains. Before, a factor between layers, which a ReLU lets through, fills the
codes. The machine and its cycles stay what they are.
"""

from collections import Counter
from collections.abc import Collection

import numpy as np

from gradloom.rtl.formats.tiles.codes import NARROW

from .base import Operation
from .integers import IntegerReading
from .mathematics import FloatReading
from .network import Network
from .operations import Activation, Add, Concat, Convolution, Larger, Linear, Pool, Rearrange, Reduce, Slice
from .windows import Windows

__all__ = ["rounded"]

_MOST = (1 << NARROW - 1) - 1
#: Values that a layer reads of all samples, at most, and the fewest samples.
_VALUES, _FEWEST = 1 << 22, 4
#: Part of the inputs' mean square that each one gains, so that few samples do not decide alone.
_DAMPING = 0.01


def rounded(
    network: Network, x: np.ndarray, learners: Collection[str] = (), wide: Collection[str] = ()
) -> Network:
    """The same network with other weights, chosen by some of the samples ``x [n, ...]``, as the file has them.

    What learns stays as it is, and so does the scale of all that it reads and makes. ``wide``: layers of two codes,
    whose weights stay, too.
    """
    network = _filled(network, set(learners))
    layers = [each for each in network.operations if _is_matrix(each)]
    most = max((each.o.rows * each.i[0].features * _taps(each) for each in layers), default=1)
    x = x[: max(_VALUES // most, _FEWEST)]
    exact, codes = FloatReading(network), IntegerReading(network, wide=frozenset(wide))
    found, held = exact.taken(x), codes.taken(x)
    left = {f"{each.layer}.weight" for each in layers if each.layer not in wide} - set(learners)
    for each in network.operations:
        if _is_matrix(each) and f"{each.layer}.weight" in left:
            left.remove(f"{each.layer}.weight")
            name, bias = f"{each.layer}.weight", f"{each.layer}.bias"
            has_bias = each.bias and bias not in learners
            mean, _ = _seen(each, found[each.i[0].name])
            read, square = _seen(each, codes.operand(held[each.i[0].name]))
            old = _grouped(each, codes.values[name])
            if has_bias:
                square = square - read[..., None] * read[:, None]
            step = np.exp2(np.frexp(np.abs(old).max())[1] - (NARROW - 1.0))
            new = np.stack([_compensated(*pair, step) for pair in zip(old, square)])
            codes.values[name] = _together(each, new)
            if has_bias:
                error = np.einsum("gok,gk->go", old, mean) - np.einsum("gok,gk->go", new, read)
                codes.values[bias] = codes.values[bias] + error.reshape(-1)
        exact.step(each, found)
        codes.step(each, held)
    return network.with_operations(network.operations, codes.values)


def _is_matrix(each: Operation) -> bool:
    """Whether a layer's results are products of what it reads."""
    return isinstance(each, Linear) or (isinstance(each, Convolution) and not each.transposed)


def _taps(each: Linear | Convolution) -> int:
    return int(np.prod(each.kernel)) if isinstance(each, Convolution) else 1


def _groups(each: Linear | Convolution) -> int:
    return each.groups if isinstance(each, Convolution) else 1


def _grouped(each: Linear | Convolution, weight: np.ndarray) -> np.ndarray:
    """Weights ``[groups, outputs, taps * inputs]``."""
    groups = _groups(each)
    parts = weight.reshape(groups, len(weight) // groups, weight.shape[1], -1)
    return parts.swapaxes(2, 3).reshape(*parts.shape[:2], -1)


def _together(each: Linear | Convolution, made: np.ndarray) -> np.ndarray:
    """The weight back."""
    parts = made.reshape(*made.shape[:2], _taps(each), -1).swapaxes(2, 3)
    return parts.reshape(each.shape)


def _seen(each: Linear | Convolution, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean ``[groups, taps * inputs]`` of what makes a result, and mean products of each two."""
    if isinstance(each, Convolution):
        x = Windows(each.i[0].sides, each.o.sides, each.kernel, each.stride, each.pads, each.dilation).read(x)
    parts = x.reshape(-1, _taps(each), _groups(each), x.shape[-1] // _groups(each)).transpose(2, 0, 1, 3)
    flat = parts.reshape(*parts.shape[:2], -1)
    return flat.mean(1), flat.swapaxes(1, 2) @ flat / flat.shape[1]


def _compensated(weight: np.ndarray, square: np.ndarray, step: float) -> np.ndarray:
    """Weights ``[outputs, inputs]`` as multiples of ``step``, whose products with such inputs stay close."""
    count = len(square)
    damped = square + (_DAMPING * np.trace(square) / count or 1.0) * np.eye(count)
    order = np.argsort(-np.diag(square), kind="stable")
    factor = np.linalg.cholesky(np.linalg.inv(damped[np.ix_(order, order)])).T
    left, made = weight[:, order], np.empty_like(weight)
    for at, own in enumerate(order):
        code = np.clip(np.floor(left[:, at] / step + 0.5), -_MOST, _MOST)
        made[:, own] = code * step
        left[:, at + 1 :] -= np.outer((left[:, at] - made[:, own]) / factor[at, at], factor[at, at + 1 :])
    return made


def _filled(network: Network, learners: set[str]) -> Network:
    """The same with factors between layers, so that the largest weight of each has the largest code."""
    group: dict[str, str] = {}

    def root(name: str) -> str:
        while group.setdefault(name, name) != name:
            name = group[name]
        return name

    fixed = {port.tensor.name for port in (*network.inputs, *network.outputs)}
    layers = Counter(each.layer for each in network.operations if isinstance(each, Linear | Convolution))
    for each in network.operations:
        names = [t.name for t in (*each.i, each.o)]
        if _lets_through(each):
            for name in names:
                group[root(name)] = root(names[0])
        elif not isinstance(each, Linear | Convolution) or layers[each.layer] > 1:
            fixed.update(names)
        elif any(weight.name in learners for weight in each.weights):
            fixed.update(names)
    stay = set(map(root, fixed))
    factors: dict[str, float] = {}
    values = {name: np.asarray(value, np.float64) for name, value in network.values.items()}
    for each in network.operations:
        if not isinstance(each, Linear | Convolution) or layers[each.layer] > 1:
            continue
        before, own = (root(t.name) for t in (each.i[0], each.o))
        name, bias = f"{each.layer}.weight", f"{each.layer}.bias"
        values[name] = values[name] / factors.get(before, 1.0)
        largest = np.abs(values[name]).max()
        if own not in factors and own not in stay and largest:
            factors[own] = float(np.exp2(np.frexp(largest)[1]) * _MOST / (_MOST + 1) / largest)
        values[name] = values[name] * factors.get(own, 1.0)
        if each.bias:
            values[bias] = values[bias] * factors.get(own, 1.0)
    return network.with_operations(network.operations, values)


def _lets_through(each: Operation) -> bool:
    """Whether a result is twice as large if all that is read is."""
    if isinstance(each, Activation):
        return each.kind == "relu"
    return isinstance(each, Add | Concat | Larger | Pool | Rearrange | Reduce | Slice)
