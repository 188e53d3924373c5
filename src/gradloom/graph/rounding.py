"""Weights on the machine's grid, such that a network loses little on samples.

The nearest code of each weight is not the best choice: errors add up where inputs go together. So the codes of a layer
are chosen one input after the other, and the weights that are left make up for the error so far (GPTQ, Frantar et al.
2022). The bias takes the mean of what remains. Before, :mod:`.scaling` fills the codes. The machine and its cycles
stay what they are.
"""

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

import numpy as np

from gradloom.rtl.formats.tiles.codes import NARROW, WIDE

from .integers import IntegerReading
from .mathematics import FloatReading
from .network import Network
from .operations import Convolution, Linear
from .scaling import filled
from .windows import PaddedWindows

__all__ = ["rounded"]

_MOST = (1 << NARROW - 1) - 1
#: Values that a layer reads of all samples, at most, and at once; the fewest samples.
_VALUES, _AT_ONCE, _FEWEST = 1 << 24, 1 << 21, 4
#: Part of the inputs' mean square that each one gains, so that few samples do not decide alone.
_DAMPING = 0.01
_NONE: Mapping[str, int] = MappingProxyType({})


def rounded(
    network: Network, x: np.ndarray, learners: Collection[str] = (), precise: Mapping[str, int] = _NONE
) -> Network:
    """The same network with other weights, chosen by some of the samples ``x [n, ...]``, as the file has them.

    What learns stays as it is, and so does the scale of all that it reads and makes. ``precise``: layers that read two
    codes, and how many their weights have, which stay with two.
    """
    listed = [each for each in network.operations if isinstance(each, Linear | Convolution)]
    layers = [each for each in listed if not (isinstance(each, Convolution) and each.transposed)]
    most = max((_Windows(each).size for each in layers), default=1)
    x = x[: max(_VALUES // most, _FEWEST)]
    network = filled(network, learners, x)
    exact, codes = FloatReading(network), IntegerReading(network, precise=precise)
    found, held = exact.taken(x), codes.taken(x)
    left = {f"{each.layer}.weight" for each in layers} - set(learners)
    for each in network.operations:
        if isinstance(each, Linear | Convolution) and (name := f"{each.layer}.weight") in left:
            left.remove(name)
            bias = f"{each.layer}.bias"
            has_bias = each.bias and bias not in learners
            windows = _Windows(each)
            codes.bits = WIDE if each.layer in precise else NARROW
            held_x = codes.operand(held[each.i[0].name])
            mean = windows.mean(held_x)
            new = old = windows.matrix(codes.values[name])
            if precise.get(each.layer, 1) == 1:
                square = windows.square(held_x)
                if has_bias:
                    square = square - mean[..., None] * mean[:, None]
                step = np.exp2(np.frexp(np.abs(old).max())[1] - (NARROW - 1.0))
                new = np.stack([_compensated(*pair, step) for pair in zip(old, square)])
                codes.values[name] = windows.weight(new)
            if has_bias:
                error = windows.product(old, windows.mean(found[each.i[0].name])) - windows.product(new, mean)
                codes.values[bias] = codes.values[bias] + error
        exact.step(each, found)
        codes.step(each, held)
    return network.with_operations(network.operations, codes.values)


class _Windows:
    """What makes the results of a layer: ``[groups, results, taps * inputs]`` of a tensor."""

    def __init__(self, each: Linear | Convolution) -> None:
        self.each = each
        self.taps = int(np.prod(each.kernel)) if isinstance(each, Convolution) else 1
        self.groups = each.groups if isinstance(each, Convolution) else 1
        self.size = each.o.rows * each.i[0].features * self.taps

    def _some(self, x: np.ndarray) -> Iterator[np.ndarray]:
        """Those of some samples after others."""
        each, count = self.each, max(_AT_ONCE // self.size, 1)
        for own in (x[at : at + count] for at in range(0, len(x), count)):
            if isinstance(each, Convolution):
                shape = each.kernel, each.stride, each.pads, each.dilation
                own = PaddedWindows(each.i[0].sides, each.o.sides, *shape).read(own)
            parts = own.reshape(-1, self.taps, self.groups, own.shape[-1] // self.groups).transpose(2, 0, 1, 3)
            yield parts.reshape(*parts.shape[:2], -1)

    def mean(self, x: np.ndarray) -> np.ndarray:
        """Mean ``[groups, taps * inputs]``."""
        made: np.ndarray = sum(some.sum(1) for some in self._some(x)) / (len(x) * self.each.o.rows)
        return made

    def square(self, x: np.ndarray) -> np.ndarray:
        """Mean products of each two."""
        made: np.ndarray = sum(some.swapaxes(1, 2) @ some for some in self._some(x)) / (len(x) * self.each.o.rows)
        return made

    def matrix(self, weight: np.ndarray) -> np.ndarray:
        """Weights ``[groups, outputs, taps * inputs]``."""
        parts = weight.reshape(self.groups, -1, weight.shape[1], self.taps).swapaxes(2, 3)
        return parts.reshape(*parts.shape[:2], -1)

    def weight(self, matrix: np.ndarray) -> np.ndarray:
        """The same as the layer has them."""
        return matrix.reshape(*matrix.shape[:2], self.taps, -1).swapaxes(2, 3).reshape(self.each.shape)

    def product(self, matrix: np.ndarray, x: np.ndarray) -> np.ndarray:
        """A result of ``[groups, taps * inputs]``."""
        return (matrix @ x[..., None]).reshape(-1)


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
