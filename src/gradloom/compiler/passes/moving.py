"""Values in another order as rows that move, rows that become columns, and convolutions that split or join rows."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from gradloom.graph.base import Operation, Tensor
from gradloom.graph.operations import Concat, Convolution, Linear, Rearrange, Slice
from gradloom.graph.rewriting.editor import Editor

from ..commands.rows import order_of_rows, turning

__all__ = ["moved"]

#: The largest stride of a convolution.
_STRIDE = 4
#: The most parts that features are cut into, or joined from.
_PARTS = 31


class _Axis(NamedTuple):
    """Of values: its size, its number in the order of the result, and whether it is among rows on each side."""

    size: int
    place: int
    of_rows: bool
    to_rows: bool


def moved(made: Editor, each: Operation) -> bool:
    """An order of values that no command makes."""
    if not isinstance(each, Rearrange) or each.is_label or order_of_rows(each) is not None or turning(each) is not None:
        return False
    axes = _axes(each)
    if axes is None:
        return False
    steps = _Steps(made, each, axes)
    if not steps.write():
        return False
    made.change(each, steps.listed)
    return True


def _axes(each: Rearrange) -> list[_Axis] | None:
    """Axes that lie among rows or among features on either side."""
    parts: list[list[int]] = [[size] for size in each.sizes]
    for features, order in ((each.i[0].features, range(len(parts))), (each.o.features, each.order)):
        rest = features
        for number in reversed(list(order)):
            for at in reversed(range(len(parts[number]))):
                size = parts[number][at]
                if rest > 1 and rest % size and size % rest == 0:
                    parts[number][at : at + 1] = [size // rest, rest]
                    rest = 1
                elif rest % size == 0:
                    rest //= size
                elif rest > 1:
                    return None
    flat = [(number, size) for number, some in enumerate(parts) for size in some]
    placed = [n for number in each.order for n, (of, _) in enumerate(flat) if of == number]
    sizes = [size for _, size in flat]
    of_rows = _among_rows(sizes, each.i[0].features)
    to_rows = _among_rows([sizes[n] for n in placed], each.o.features)
    return [
        _Axis(size, placed.index(n), of_rows[n], to_rows[placed.index(n)]) for n, size in enumerate(sizes) if size > 1
    ]


def _among_rows(sizes: Sequence[int], features: int) -> list[bool]:
    return [prod(sizes[n:]) > features for n in range(len(sizes))]


class _Steps:
    """Operations that put axes in another order, one after another."""

    def __init__(self, made: Editor, each: Rearrange, axes: list[_Axis]) -> None:
        self.made, self.each = made, each
        self.listed: list[Operation] = []
        self.rows = [axis for axis in axes if axis.of_rows]
        self.features = [axis for axis in axes if not axis.of_rows]
        self.t = each.i[0]

    def write(self) -> bool:
        """All of them; whether there are commands for them."""

        def wanted(axes: list[_Axis]) -> list[_Axis]:
            return sorted(axes, key=lambda axis: axis.place)

        to_rows = wanted([axis for axis in self.features if axis.to_rows])
        to_features = wanted([axis for axis in self.rows if not axis.to_rows])
        stay = wanted([axis for axis in self.features if not axis.to_rows])
        rows = wanted([axis for axis in self.rows if axis.to_rows])
        moved = [factor for axis in (*to_rows, *to_features) for factor in _factors(axis.size)]
        if stay and max(moved, default=1) > _PARTS:
            return False
        if to_rows and to_features and not stay:
            self._order_features(to_rows)
            self._order_rows([*rows, *to_features])
            self._turn(rows, to_features, to_rows)
        else:
            self._order_features([*to_rows, *stay])
            for axis in to_rows:
                self._split(axis)
            self._order_rows([*wanted([*rows, *to_rows]), *to_features])
            for axis in reversed(to_features):
                self._join(axis)
        self._order_rows(wanted(self.rows))
        self._order_features(wanted(self.features))
        self._put(Rearrange((self.t,), self.each.o, (self.t.rows * self.t.features,), (0,)))
        return True

    def _put(self, operation: Operation) -> None:
        self.listed.append(operation)
        self.t = operation.o

    def _tensor(self, rows: int, features: int) -> Tensor:
        return Tensor(self.made.free(f"{self.each.o.name}~order{len(self.listed)}"), (rows,), features)

    def _order_features(self, axes: list[_Axis]) -> None:
        """A matrix puts features in the order of ``axes``."""
        if axes == self.features:
            return
        order = np.arange(self.t.features).reshape([axis.size for axis in self.features])
        order = order.transpose([self.features.index(axis) for axis in axes]).reshape(-1)
        o = Tensor(f"{self.each.o.name}~order{len(self.listed)}", self.t.sides, self.t.features)
        self.made.values[f"{o.name}.weight"] = np.eye(len(order))[order]
        self._put(Linear((self.t,), o, o.name, bias=False))
        self.features = axes

    def _order_rows(self, axes: list[_Axis]) -> None:
        if axes == self.rows:
            return
        sizes = (*(axis.size for axis in self.rows), self.t.features)
        order = (*(self.rows.index(axis) for axis in axes), len(axes))
        self._put(Rearrange((self.t,), self._tensor(self.t.rows, self.t.features), sizes, order))
        self.rows = axes

    def _turn(self, batch: list[_Axis], rows: list[_Axis], features: list[_Axis]) -> None:
        sizes = [prod(axis.size for axis in axes) for axes in (batch, rows, features)]
        o = self._tensor(sizes[0] * sizes[2], sizes[1])
        self._put(Rearrange((self.t,), o, tuple(sizes), (0, 2, 1)))
        self.rows, self.features = [*batch, *features], rows

    def _line(self) -> None:
        """Rows are steps of one side."""
        if len(self.t.sides) != 1:
            o = self._tensor(self.t.rows, self.t.features)
            self._put(Rearrange((self.t,), o, (o.rows * o.features,), (0,)))

    def _split(self, axis: _Axis) -> None:
        """The first axis of features becomes the last of rows."""
        self._line()
        for factor in _factors(axis.size):
            many = self.t.features // factor
            if factor > _STRIDE:
                self._cut(factor, many)
                continue
            weights = np.eye(self.t.features).reshape(self.t.features, factor, many).swapaxes(1, 2)
            o = self._tensor(self.t.rows * factor, many)
            self._convolution(o, weights, factor, transposed=True)
        self.rows, self.features = [*self.rows, axis], self.features[1:]

    def _join(self, axis: _Axis) -> None:
        """The last axis of rows becomes the first of features."""
        self._line()
        for factor in reversed(_factors(axis.size)):
            many = self.t.features
            if factor > _STRIDE:
                parts = [self._one(n, factor) for n in range(factor)]
                self._put(Concat(tuple(parts), self._tensor(self.t.rows // factor, many * factor), 1))
                continue
            weights = np.eye(many * factor).reshape(many * factor, factor, many).swapaxes(1, 2)
            o = self._tensor(self.t.rows // factor, many * factor)
            self._convolution(o, weights, factor, transposed=False)
        self.rows, self.features = self.rows[:-1], [axis, *self.features]

    def _one(self, number: int, step: int) -> Tensor:
        """Every ``step``-th row."""
        o = self._tensor(self.t.rows // step, self.t.features)
        self.listed.append(Slice((self.t,), o, 0, number, step))
        return o

    def _cut(self, factor: int, many: int) -> None:
        """Parts of features behind one another, then row by row."""
        t, parts, rows = self.t, list[Tensor](), self.t.rows
        for n in range(factor):
            parts.append(self._tensor(rows, many))
            self.listed.append(Slice((t,), parts[-1], 1, n * many))
        self._put(Concat(tuple(parts), self._tensor(rows * factor, many), 0))
        self._put(Rearrange((self.t,), self._tensor(rows * factor, many), (factor, rows, many), (1, 0, 2)))

    def _convolution(self, o: Tensor, weights: np.ndarray, factor: int, *, transposed: bool) -> None:
        self.made.values[f"{o.name}.weight"] = weights
        shape: dict[str, Any] = {"kernel": (factor,), "stride": (factor,), "pads": ((0, 0),), "dilation": (1,)}
        self._put(Convolution((self.t,), o, o.name, bias=False, transposed=transposed, **shape))


def _factors(size: int) -> list[int]:
    """Factors of a size, each at most a convolution's stride where there are such."""
    found = []
    while size > 1:
        factor = next((n for n in (4, 3, 2) if size % n == 0), size)
        found.append(factor)
        size //= factor
    return found
