"""Factors between layers, such that codes of 8 bits lose little.

What a layer makes may be larger by any factor, and what reads it takes that back. A ReLU, a sum and a pool let factors
through, one a channel. A tile has one exponent: a channel of small values next to one of large ones has few codes, and
so have its weights in the next layer where they are small. A factor moves codes from one to the other; how far is best,
samples tell. All channels together gain what makes the largest weight have the largest code.
"""

from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np

from gradloom.rtl.formats.tiles.codes import NARROW

from .base import Operation
from .integers import IntegerReading
from .mathematics import FloatReading
from .network import Network
from .operations import Activation, Add, Concat, Convolution, Larger, Linear, Pool, Rearrange, Reduce, Slice

__all__ = ["filled"]

_MOST = (1 << NARROW - 1) - 1
#: Samples that choose; shares that are tried.
_SAMPLES, _SHARES = 32, (0, 0.5, 1)
#: Factors of channels are this far from the mean one at most.
_FURTHEST = 16.0


def filled(network: Network, learners: Collection[str], x: np.ndarray) -> Network:
    """The same network with factors between layers, of which the first of the samples ``x`` choose those of channels.

    What learns has none in front and behind.
    """
    groups, name = _Groups(network, set(learners)), network.result.tensor.name
    found = FloatReading(network).forward(x[:_SAMPLES])
    made = [_filled(network, groups, found, share) for share in _SHARES]
    lost = [float(np.square(IntegerReading(each).forward(x[:_SAMPLES])[name] - found[name]).mean()) for each in made]
    return made[int(np.argmin(lost))]


def _filled(network: Network, groups: "_Groups", found: Mapping[str, np.ndarray], share: float) -> Network:
    """The same with a share of what makes channels' values and weights small by the same part."""
    values = {name: np.asarray(value, np.float64) for name, value in network.values.items()}
    factors: dict[str, np.ndarray] = {}
    for each in groups.layers:
        before, own = (groups.root(t.name) for t in (each.i[0], each.o))
        name, bias = f"{each.layer}.weight", f"{each.layer}.bias"
        values[name] = values[name] / _along(each, factors.get(before, np.ones(1)), 1)
        if own not in factors and own not in groups.stay:
            factor = groups.channels(own, each.o.features, values, found) ** share
            if largest := np.abs(values[name] * _along(each, factor, 0)).max():
                factors[own] = factor * np.exp2(np.frexp(largest)[1]) * _MOST / (_MOST + 1) / largest
        factor = factors.get(own, np.ones(1))
        values[name] = values[name] * _along(each, factor, 0)
        if each.bias:
            values[bias] = values[bias] * factor
    return network.with_operations(network.operations, values)


def _along(each: Linear | Convolution, factor: np.ndarray, axis: int) -> np.ndarray:
    """Factors of results (axis 0) or inputs (axis 1) as a weight ``[outputs, inputs of a group, ...]`` takes them."""
    sides = (1,) * (len(each.kernel) if isinstance(each, Convolution) else 0)
    if len(factor) == 1:
        return factor.reshape(1, 1, *sides)
    if axis == 0:
        return factor.reshape(-1, 1, *sides)
    groups = each.groups if isinstance(each, Convolution) else 1
    return np.repeat(factor.reshape(groups, -1), each.o.features // groups, axis=0).reshape(each.o.features, -1, *sides)


class _Groups:
    """Tensors that have the same factors."""

    def __init__(self, network: Network, learners: set[str]) -> None:
        self._group: dict[str, str] = {}
        listed = [each for each in network.operations if isinstance(each, Linear | Convolution)]
        count = Counter(each.layer for each in listed)
        #: Layers whose weights are their own.
        self.layers = [each for each in listed if count[each.layer] == 1]
        fixed = {port.tensor.name for port in (*network.inputs, *network.outputs)}
        together = set[str]()
        for each in network.operations:
            names = [t.name for t in (*each.i, each.o)]
            if _lets_through(each):
                for name in names:
                    self._group[self.root(name)] = self.root(names[0])
                if len({t.features for t in (*each.i, each.o)}) > 1 or not _by_channel(each):
                    together.update(names)
            elif not isinstance(each, Linear | Convolution) or count[each.layer] > 1:
                fixed.update(names)
            elif any(weight.name in learners for weight in each.weights):
                fixed.update(names)
            elif isinstance(each, Convolution) and each.transposed:
                together.update(names)
        #: Groups without a factor, and with one for all channels.
        self.stay, self.together = (set(map(self.root, some)) for some in (fixed, together))

    def root(self, name: str) -> str:
        """The name of a tensor's group."""
        while self._group.setdefault(name, name) != name:
            name = self._group[name]
        return name

    def channels(
        self, own: str, count: int, values: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """Factors of a group's channels among each other."""
        readers = [each for each in self.layers if self.root(each.i[0].name) == own]
        if own in self.together or not readers:
            return np.ones(1)
        sizes, weights = np.zeros(count), np.zeros(count)
        for each in readers:
            x = np.abs(found[each.i[0].name]).reshape(-1, count)
            sizes = np.maximum(sizes, x.max(0) / (x.max() or 1.0))
            weight = np.abs(values[f"{each.layer}.weight"])
            groups = each.groups if isinstance(each, Convolution) else 1
            parts = weight.reshape(groups, each.o.features // groups, count // groups, -1)
            weights = np.maximum(weights, parts.max((1, 3)).reshape(-1) / (weight.max() or 1.0))
        used = (sizes > 0) & (weights > 0)
        made = np.sqrt(weights[used] / sizes[used])
        factor = np.ones(count)
        if used.any():
            factor[used] = np.clip(made / np.exp(np.log(made).mean()), 1 / _FURTHEST, _FURTHEST)
        return factor


def _by_channel(each: Operation) -> bool:
    """Whether channels of what is let through stay what they are."""
    if isinstance(each, Reduce):
        return each.over_rows
    return isinstance(each, Activation | Add | Larger | Pool) or (isinstance(each, Rearrange) and each.is_label)


def _lets_through(each: Operation) -> bool:
    """Whether a result is twice as large if all that is read is."""
    if isinstance(each, Activation):
        return each.kind == "relu"
    return isinstance(each, Add | Concat | Larger | Pool | Rearrange | Reduce | Slice)
