"""Neighbouring pixels side by side, so that few channels fill tiles.

With a fold of f, f neighbours of a line are one row of f times as many features. A convolution of such rows is one
again, of fewer places: its matrices have the old ones at each neighbour's place, and zeros elsewhere. Tiles of zeros
are no products.

An input that one convolution reads may be written as that reads it, a row of all its pixels for each row of the result:
then it is a product of rows.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import product
from math import gcd, prod
from typing import Any

import numpy as np

from gradloom.graph.base import Operation, Tensor
from gradloom.graph.network import Network, Port, Tie
from gradloom.graph.operations import Activation, Add, Convolution, Larger, Linear, Multiply, Reduce
from gradloom.rtl.formats.tiles.codes import EDGE

from ..commands.tied import fits
from ..weights.matrices import blocks, matrices, stacked

__all__ = ["folded", "passes"]

#: Features that a fold may reach, as candidates; the first folds nothing.
_LIMITS = (0, 1, 2)
#: Places from one row of a result to the next, at most.
_STRIDE = 4
#: Beats of a tile of weights, codes of a beat.
_BEATS, _BEAT = 257, 16


def folded(network: Network, learners: Collection[str] = ()) -> Network:
    """The network with the folds that take the fewest cycles, by estimate.

    Layers with weights of their own among ``learners`` have none in front and behind. Adapters repeat what they learn.
    """
    found: dict[tuple[Any, ...], Network] = {}
    first = _first(network, learners)
    for limit, patches in product(_LIMITS, (False, True) if first else (False,)):
        whole = _Folds(network, set(learners), EDGE * limit, first if patches else None)
        if not whole.fits:
            continue
        key = (patches, *sorted((name, fold) for name, fold in whole.found.items() if fold > 1))
        if key not in found:
            found[key] = _Folded(network, whole.found, whole.first).network()
    return min(found.values(), key=_estimate)


def _first(network: Network, learners: Collection[str]) -> Convolution | None:
    """The convolution that alone reads the one input, if nothing learns in it."""
    names = {port.tensor.name for port in network.inputs}
    readers = [each for each in network.operations for t in each.i if t.name in names]
    if len(names) != 1 or len(readers) != 1:
        return None
    (found,) = readers
    return found if isinstance(found, Convolution) and _folds(found, learners) and prod(found.kernel) > 1 else None


def _estimate(network: Network) -> int:
    """Cycles of the array, and of reading weights and inputs, for a sample.

    With adapters, those of the array in a step: its gradients have the products of the forward pass, and that of A
    two more.
    """
    if any(isinstance(each, Convolution | Linear) and each.rank for each in network.operations):
        return sum(
            2 * passes(each, f"{each.layer}.weight", network)
            + sum(times * passes(each, weight.name, network) for weight, times in zip(each.adapter, (4, 3)))
            for each in network.operations
            if isinstance(each, Convolution | Linear)
        )
    total = sum(port.tensor.rows * (-(-port.tensor.features // _BEAT)) for port in network.inputs)
    for each in network.operations:
        if isinstance(each, Convolution | Linear):
            name = f"{each.layer}.weight"
            taps = matrices(each, name, network.values[name]).swapaxes(-1, -2)
            some = blocks(taps.reshape(-1, *taps.shape[-2:]))
            high, wide = some.shape[1:]
            some = np.pad(some, ((0, 0), (0, high % 2), (0, wide % 2)))
            kept = some.reshape(len(some), -1, 2, some.shape[2]).any(2)
            total += int(kept.sum()) * max(each.o.rows, 1) + _BEATS * int(
                kept.reshape(*kept.shape[:2], -1, 2).any(3).sum()
            )
    return total


def passes(each: Convolution | Linear, name: str, network: Network) -> int:
    """Rows of products with a weight that enter the array; parts of zeros of a layer's own are left out.

    Factors of adapters begin as zeros, and learn.
    """
    taps = matrices(each, name, network.values[name]).swapaxes(-1, -2)
    some = blocks(taps.reshape(-1, *taps.shape[-2:])) | (name != f"{each.layer}.weight")
    some = np.pad(some, ((0, 0), (0, some.shape[1] % 2), (0, 0)))
    return int(some.reshape(len(some), -1, 2, some.shape[2]).any(2).sum()) * max(each.o.rows, 1)


class _Folds:
    """A fold for each tensor, the same for tensors that meet value by value.

    ``first``: the convolution for which the input is written.
    """

    def __init__(self, network: Network, learners: set[str], most: int, first: Convolution | None) -> None:
        self.network, self.learners, self.most, self.first = network, learners, most, first
        self.group: dict[str, str] = {}
        self.tensors: dict[str, Tensor] = {}
        self.fixed: set[str] = set()
        self.lowered: set[str] = set()
        for port in network.inputs:
            self._new(port.tensor)
            if first is not None or split(port, 1) is None:
                self.fixed.add(port.tensor.name)
        for each in network.operations:
            self._new(each.o)
            for t in each.i:
                self._new(t)
            self._rules(each)
        self.fixed.update(port.tensor.name for port in network.outputs)
        self.folds = {}
        stopped = {self._root(name) for name in self.fixed}
        for name in {self._root(name) for name in self.tensors}:
            t = self.tensors[name]
            self.folds[name] = 1 if name in stopped or not most else self._most(t)
        self._settle(stopped)

    @property
    def found(self) -> dict[str, int]:
        """By tensor."""
        return {name: self.folds[self._root(name)] for name in self.tensors}

    @property
    def fits(self) -> bool:
        """Whether what adapters repeat lies in whole tiles."""
        made = _Folded(self.network, self.found, self.first)
        return all(
            fits(*matrix)
            for each in self.network.operations
            if isinstance(each, Convolution | Linear) and each.rank and made.is_changed(each)
            for matrix in made.blocks(each)
        )

    def _new(self, t: Tensor) -> None:
        if t.name not in self.tensors:
            self.group[t.name], self.tensors[t.name] = t.name, t
            if not t.sides:
                self.fixed.add(t.name)

    def _root(self, name: str) -> str:
        while self.group[name] != name:
            name = self.group[name]
        return name

    def _rules(self, each: Operation) -> None:
        names = [t.name for t in (*each.i, each.o)]
        if isinstance(each, Activation) or (
            isinstance(each, Add | Larger | Multiply) and all(t.shape == each.o.shape for t in each.i)
        ):
            for name in names[1:]:
                self.group[self._root(name)] = self._root(names[0])
        elif isinstance(each, Reduce) and each.over_rows and each.kind in ("mean", "sum"):
            self.fixed.add(each.o.name)
        elif not _folds(each, self.learners):
            self.fixed.update(names)

    def _most(self, t: Tensor) -> int:
        wide = t.sides[-1]
        return max(
            fold for fold in range(1, wide + 1) if wide % fold == 0 and fold * t.features <= max(EDGE, t.features)
        )

    def _settle(self, stopped: set[str]) -> None:
        """Raises folds behind a convolution, or lowers those in front, until each result is of whole sources."""
        changed = True
        while changed:
            changed = False
            for each in self.network.operations:
                if each is self.first or not _folds(each, self.learners):
                    continue
                first, last = self._root(each.i[0].name), self._root(each.o.name)
                step = _stride(each) * self.folds[last]
                most = max(_STRIDE * self.folds[first] // _stride(each), 1)
                if self.folds[last] > most:
                    changed, fold = True, self.folds[last]
                    self.folds[last] = max(each for each in range(1, most + 1) if fold % each == 0)
                    self.lowered.add(last)
                    continue
                if step % self.folds[first] == 0:
                    continue
                changed, t = True, self.tensors[last]
                more = self.folds[last] * self.folds[first] // gcd(self.folds[first], step)
                free = last not in stopped and last not in self.lowered
                if free and t.sides[-1] % more == 0 and more * t.features <= self.most:
                    self.folds[last] = more
                else:
                    self.folds[first] = gcd(self.folds[first], step)
                    self.lowered.add(first)


def _folds(each: Operation, learners: Collection[str]) -> bool:
    """Whether an operation is a product that may be folded."""
    if not isinstance(each, Convolution | Linear):
        return False
    if any(w.name in learners for w in each.weights if w not in each.adapter):
        return False
    return len(each.o.sides) > 0 if isinstance(each, Linear) else not each.transposed


def _stride(each: Operation) -> int:
    return each.stride[-1] if isinstance(each, Convolution) else 1


def split(port: Port, fold: int) -> Port | None:
    """The port of a folded input; None where its pixels are not neighbours in the file's axes."""
    t = port.tensor
    sizes = [port.sizes[axis] for axis in port.order]
    place = len(sizes)
    while place and prod(sizes[place:]) < t.features:
        place -= 1
    if not place or prod(sizes[place:]) != t.features or not t.sides or sizes[place - 1] != t.sides[-1]:
        return None
    axis = port.order[place - 1]
    made = [*port.sizes[:axis], port.sizes[axis] // fold, fold, *port.sizes[axis + 1 :]]
    order = [n + (n > axis) for n in port.order]
    order.insert(place, axis + 1)
    return replace(port, tensor=_tensor(t, fold), sizes=tuple(made), order=tuple(order))


def _tensor(t: Tensor, fold: int) -> Tensor:
    return t if fold == 1 else Tensor(t.name, (*t.sides[:-1], t.sides[-1] // fold), t.features * fold)


class _Folded:
    """The list with its folds."""

    def __init__(self, network: Network, folds: Mapping[str, int], first: Convolution | None) -> None:
        self.old, self.folds, self.first, self.values = network, folds, first, dict(network.values)
        self.ties = dict(network.ties)

    def _turned(self, t: Tensor) -> Tensor:
        return _tensor(t, self.folds[t.name])

    def network(self) -> Network:
        """All of it."""
        operations = [new for each in self.old.operations for new in self._operation(each)]
        inputs = []
        for port in self.old.inputs:
            if self.first is not None:
                inputs.append(self._patches(port, self.first))
                continue
            fold = self.folds[port.tensor.name]
            made = port if fold == 1 else split(port, fold)
            assert made is not None
            inputs.append(made)
        whole = Network((), self.values, tuple(inputs), self.old.outputs, self.old.origins, self.ties)
        return whole.with_operations(operations)

    def is_changed(self, each: Convolution | Linear) -> bool:
        """Whether a product is folded."""
        return each is self.first or self.folds[each.i[0].name] > 1 or self.folds[each.o.name] > 1

    def blocks(self, each: Convolution | Linear) -> list[tuple[int, int, int]]:
        """Columns of A and of B; columns and rows of the smaller ones that they repeat."""
        inputs = each.i[0].features
        if isinstance(each, Convolution) and each is self.first:
            wide = inputs * prod(map(len, self._reads(each)))
        else:
            wide = inputs * self.folds[each.i[0].name]
        a, b = (weight.name for weight in each.adapter)
        rows = [len(stacked(matrices(each, name, self.old.values[name]))) for name in (a, b)]
        return [(wide, inputs, rows[0]), (each.rank * self.folds[each.o.name], each.rank, rows[1])]

    def _adapter(self, each: Convolution | Linear, spread: Callable[[np.ndarray], np.ndarray], sides: int) -> None:
        """Both factors, which repeat those that learn; ``spread`` is A's, of matrices of taps."""
        if not each.rank:
            return
        a, b = (weight.name for weight in each.adapter)
        after = self.folds[each.o.name]
        self._tied(a, lambda value: spread(matrices(each, a, value)))
        ones = (1,) * sides
        self._tied(
            b,
            lambda value: np.kron(np.eye(after), matrices(each, b, value)).reshape(
                after * each.o.features, after * each.rank, *ones
            ),
        )

    def _tied(self, name: str, made: Callable[[np.ndarray], np.ndarray]) -> None:
        value = self.old.values[name]
        index = made(np.arange(1, 1 + value.size).reshape(value.shape)).astype(np.int64) - 1
        self.ties[name] = Tie(value.shape, index)
        self.values[name] = self.ties[name].there(value)

    def _reads(self, each: Convolution) -> list[list[int]]:
        """Places along each side that a row of the result reads, from its first one's on; the last side is folded."""
        fold = (1,) * (len(each.kernel) - 1) + (self.folds[each.o.name],)
        sides = zip(each.kernel, each.stride, each.dilation, fold)
        return [sorted({s * u + d * k for u in range(f) for k in range(count)}) for count, s, d, f in sides]

    def _patches(self, port: Port, each: Convolution) -> Port:
        """The input as a convolution reads it."""
        t, o = port.tensor, self._turned(each.o)
        reads, fold = self._reads(each), self.folds[each.o.name]
        steps = (*each.stride[:-1], each.stride[-1] * fold)
        where = np.zeros((), np.int64)
        inside = np.ones((), bool)
        for side, places, step, (low, _), count in zip(t.sides, reads, steps, each.pads, o.sides):
            at = step * np.arange(count)[:, None] + np.array(places) - low
            inside = inside[..., None, None] & ((at >= 0) & (at < side))
            where = where[..., None, None] * side + at
        # Rows of the result, then places that they read.
        axes = (*range(0, where.ndim, 2), *range(1, where.ndim, 2))
        where, inside = where.transpose(axes)[..., None], inside.transpose(axes)[..., None]
        index = np.where(inside, where * t.features + np.arange(t.features), -1).reshape(o.rows, -1)
        tensor = Tensor(t.name, o.sides, index.shape[1])
        return replace(port, tensor=tensor, index=index)

    def _of_patches(self, each: Convolution) -> Linear:
        """The product of rows that a convolution becomes."""
        reads, fold, name = self._reads(each), self.folds[each.o.name], f"{each.layer}.weight"
        o, count = self._turned(each.o), len(reads)

        def spread(taps: np.ndarray) -> np.ndarray:
            outputs, inputs = taps.shape[-2:]
            taps = taps.reshape(*each.kernel, outputs, inputs)
            made = np.zeros((*map(len, reads), fold, outputs, inputs))
            for tap in np.ndindex(each.kernel):
                for u in range(fold):
                    offsets = [d * k for d, k in zip(each.dilation, tap)]
                    offsets[-1] += each.stride[-1] * u
                    at = tuple(places.index(offset) for places, offset in zip(reads, offsets))
                    made[(*at, u)] += taps[tap]
            return made.transpose(count, count + 1, *range(count), count + 2).reshape(fold * outputs, -1)

        self.values[name] = spread(matrices(each, name, self.old.values[name]))
        self._adapter(each, spread, 0)
        if each.bias:
            self.values[f"{each.layer}.bias"] = np.tile(self.old.values[f"{each.layer}.bias"], fold)
        t = Tensor(each.i[0].name, o.sides, self.values[name].shape[1])
        return Linear((t,), o, each.layer, bias=each.bias, rank=each.rank * fold, positive=each.positive)

    def _operation(self, each: Operation) -> list[Operation]:
        if each is self.first:
            return [self._of_patches(each)]
        before, after = (self.folds[t.name] for t in (each.i[0] if each.i else each.o, each.o))
        if before == after == 1:
            return [each]
        new = replace(each, i=tuple(map(self._turned, each.i)), o=self._turned(each.o))
        if isinstance(each, Reduce):
            return self._reduce(each, new.i[0])
        if isinstance(each, Linear | Convolution):
            return [self._product(each, before, after)]
        return [new]

    def _reduce(self, each: Reduce, given: Tensor) -> list[Operation]:
        """A sum of rows, of the neighbours in them, and a constant."""
        rows, many = each.i[0].rows, given.features
        parts = Tensor(f"{each.o.name}~parts", each.o.sides, many)
        total = Tensor(f"{each.o.name}~total", each.o.sides, each.o.features)
        name = f"{each.o.name}~neighbours"
        self.values[f"{name}.weight"] = np.tile(np.eye(each.o.features), (1, many // each.o.features))
        first = Reduce((given,), parts, "sum", True)
        if each.kind == "sum":
            return [first, Linear((parts,), each.o, name, bias=False, positive=each.positive)]
        scale = Activation((total,), each.o, "affine", (1 / rows, 0.0), positive=each.positive)
        return [first, Linear((parts,), total, name, bias=False), scale]

    def _product(self, each: Linear | Convolution, before: int, after: int) -> Convolution:
        """A convolution of rows of neighbours."""
        sides, name = len(each.o.sides), f"{each.layer}.weight"
        kernel = stride = dilation = (1,) * sides
        pads = ((0, 0),) * sides
        if isinstance(each, Convolution):
            kernel, stride, pads, dilation = each.kernel, each.stride, each.pads, each.dilation
        reads = [
            (u, dx, *divmod(stride[-1] * u + dilation[-1] * dx - pads[-1][0], before))
            for u in range(after)
            for dx in range(kernel[-1])
        ]
        least, most = min(place for *_, place, _ in reads), max(place for *_, place, _ in reads)
        lines = tuple(range(sides))

        def spread(taps: np.ndarray) -> np.ndarray:
            outputs, inputs = taps.shape[-2:]
            taps = taps.reshape(*kernel, outputs, inputs)
            made = np.zeros((*kernel[:-1], most - least + 1, after, outputs, before, inputs))
            for u, dx, place, neighbour in reads:
                made[..., place - least, u, :, neighbour, :] += taps[..., dx, :, :]
            shaped = made.reshape(*made.shape[:sides], after * outputs, before * inputs)
            return shaped.transpose(sides, sides + 1, *lines)

        self.values[name] = spread(matrices(each, name, self.old.values[name]))
        self._adapter(each, spread, sides)
        if each.bias:
            self.values[f"{each.layer}.bias"] = np.tile(self.old.values[f"{each.layer}.bias"], after)
        step = stride[-1] * after // before
        o = self._turned(each.o)
        behind = (o.sides[-1] - 1) * step + most + 1 - self._turned(each.i[0]).sides[-1]
        return Convolution(
            (self._turned(each.i[0]),),
            o,
            each.layer,
            bias=each.bias,
            rank=each.rank * after,
            positive=each.positive,
            kernel=(*kernel[:-1], most - least + 1),
            stride=(*stride[:-1], step),
            pads=(*pads[:-1], (-least, max(behind, 0))),
            dilation=(*dilation[:-1], 1),
        )
