"""Makes a network's list one that the machine has commands for."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from gradloom.graph.base import Operation, Tensor
from gradloom.graph.network import Network
from gradloom.graph.operations import (
    Activation,
    Add,
    Convolution,
    Larger,
    Linear,
    Multiply,
    Pad,
    Parameter,
    Pool,
    Rearrange,
    Reduce,
)
from gradloom.graph.rewriting.editor import Editor
from gradloom.graph.windows import PaddedWindows

from ..commands.base import without_gradient
from .expressed import EXPRESSED, label
from .moving import moved
from .norming import norming, taught
from .selecting import SELECTING

__all__ = ["Arranged", "arranged"]

#: Operations whose results can be made positive by the engine that makes them.
_CUTS = (Add, Convolution, Larger, Linear, Multiply)


@dataclass(frozen=True)
class Move:
    """A weight in another order: ``new.ravel() = factor * old.ravel()[index]``."""

    shape: tuple[int, ...]
    index: np.ndarray
    factor: float = 1.0

    def there(self, old: np.ndarray) -> np.ndarray:
        """The weight in its new order."""
        made: np.ndarray = self.factor * old.reshape(-1)[self.index]
        return made

    def back(self, new: np.ndarray) -> np.ndarray:
        """The weight as the file has it."""
        made = np.empty(self.index.size, np.float64)
        made[self.index.reshape(-1)] = new.reshape(-1) / self.factor
        return made.reshape(self.shape)


@dataclass(frozen=True)
class Arranged:
    """The network, and how its weights that learn were moved."""

    network: Network
    moves: Mapping[str, Move] = field(default_factory=dict)

    def back(self, name: str, value: np.ndarray) -> np.ndarray:
        """A weight as the network had it before."""
        return self.moves[name].back(value) if name in self.moves else value


def arranged(network: Network, learners: Collection[str] = ()) -> Arranged:
    """The same network for the machine; ``learners``: weights that learn.

    A ReLU joins the operation in front of it; a linear layer of all values of an image is a convolution whose kernel is
    the image; means and maxima of windows are convolutions; factors of adapters are in B.
    """
    made, moves, factors = Editor(network), dict[str, Move](), dict[str, float]()

    def flat(editor: Editor, each: Operation) -> bool:
        return _flattened(editor, each, moves)

    made.apply(partial(taught, learners))
    made.apply(*EXPRESSED, *norming(factors), *SELECTING, moved, _turned, flat, _averages, _label, _positive)
    made.apply(_largest, _positive)
    for each in list(made.operations):
        if isinstance(each, Linear | Convolution) and each.rank and each.scale != 1:
            name = each.adapter[1].name
            value = made.values[name]
            plain = Move(value.shape, np.arange(value.size).reshape(value.shape))
            moves[name] = replace(moves.get(name, plain), factor=each.scale)
            made.values[name] = value * each.scale
            made.operations = [replace(other, scale=1.0) if other is each else other for other in made.operations]
    lost = [name for name in learners if name in network.values and not made.uses(name)]
    if lost:
        raise without_gradient({"tables": lost})
    for name in learners:
        old = network.values[name]
        if name in made.values and name not in moves and made.values[name].shape != old.shape:
            if made.values[name].size == old.size:
                moves[name] = Move(old.shape, np.arange(old.size).reshape(made.values[name].shape))
    for name, factor in factors.items():
        shape = made.values[name].shape
        moves[name] = Move(shape, np.arange(made.values[name].size).reshape(shape), factor)
    return Arranged(made.network(), moves)


def _positive(made: Editor, each: Operation) -> bool:
    """A ReLU behind an operation."""
    if not isinstance(each, Activation) or each.kind != "relu" or each.positive:
        return False
    before = made.made(each.i[0])
    mean = isinstance(before, Reduce) and before.kind == "mean"
    if not (isinstance(before, _CUTS) or mean) or before is None or not made.is_inner(each.i[0]):
        return False
    made.fuse(before, each, replace(before, o=each.o, positive=True))
    return True


def _turned(made: Editor, each: Operation) -> bool:
    """The larger tensor comes first where the order does not count."""
    if not isinstance(each, Add | Multiply) or (isinstance(each, Add) and each.subtract):
        return False
    a, b = each.i
    if a.rows >= b.rows:
        return False
    made.change(each, [replace(each, i=(b, a))])
    return True


def _label(made: Editor, each: Operation) -> bool:
    """An order that stays what it is."""
    if not isinstance(each, Rearrange) or each.order == (0,):
        return False
    count = each.i[0].rows * each.i[0].features
    order = np.arange(count).reshape(each.sizes).transpose(each.order).reshape(-1)
    if (order != np.arange(count)).any():
        return False
    made.change(each, [label(each.i[0], each.o)])
    return True


def _flattened(made: Editor, each: Operation, moves: dict[str, Move]) -> bool:
    """A linear layer of all values of a tensor."""
    if not isinstance(each, Linear) or each.i[0].rows != 1:
        return False
    before = made.made(each.i[0])
    if not isinstance(before, Rearrange) or before.is_label or before.i[0].rows == 1:
        return False
    t = before.i[0]
    sides = t.sides if len(t.sides) in (1, 2) else (t.rows,)
    # Place of each value of the tensor in the layer's input.
    where = np.empty(t.rows * t.features, np.int64)
    count = len(where)
    where[np.arange(count).reshape(before.sizes).transpose(before.order).reshape(-1)] = np.arange(count)
    taps = where.reshape(*sides, t.features).transpose(-1, *range(len(sides)))
    one = tuple(1 for _ in sides)
    source = t if t.sides == sides else Tensor(made.free(f"{t.name}~line"), sides, t.features)
    result = Tensor(made.free(f"{each.o.name}~all"), one, each.o.features)
    new = Convolution(
        (source,),
        result,
        each.layer,
        bias=each.bias,
        rank=each.rank,
        scale=each.scale,
        positive=each.positive,
        kernel=sides,
        stride=one,
        pads=tuple((0, 0) for _ in sides),
        dilation=one,
    )
    for weight in new.weights:
        old = made.values[weight.name]
        if weight.name == f"{each.layer}.bias":
            continue
        index = np.arange(old.size).reshape(old.shape)
        if weight.name != (new.adapter[1].name if new.rank else None):
            index = index[:, taps]
        moves[weight.name] = Move(old.shape, index.reshape(weight.shape))
        made.values[weight.name] = moves[weight.name].there(old)
    first = [] if source is t else [label(t, source)]
    made.change(each, [*first, new, label(result, each.o)])
    return True


def _averages(made: Editor, each: Operation) -> bool:
    """Means of windows: sums, times a constant where all have as many values, else times a table."""
    if not isinstance(each, Pool) or each.kind != "mean":
        return False
    (t,), channels = each.i, each.o.features
    counts = PaddedWindows(t.sides, each.o.sides, each.kernel, each.stride, each.pads, each.dilation).counts(
        each.counted
    )
    is_same, name = len(np.unique(counts)) == 1, made.free(f"{each.o.name}~mean")
    made.values[f"{name}.weight"] = np.full((channels, 1, *each.kernel), 1 / counts.max())
    table = Parameter((), Tensor(made.free(f"{each.o.name}~shares"), each.o.sides, channels), f"{name}.shares")
    new = Convolution(
        each.i,
        each.o if is_same else Tensor(made.free(f"{each.o.name}~sum"), each.o.sides, channels),
        name,
        bias=False,
        groups=channels,
        kernel=each.kernel,
        stride=each.stride,
        pads=each.pads,
        dilation=each.dilation,
        positive=each.positive and is_same,
    )
    if is_same:
        made.change(each, [new])
        return True
    made.values[table.name] = np.broadcast_to(counts.max() / counts, table.o.shape).copy()
    made.change(each, [new, table, Multiply((new.o, table.o), each.o, positive=each.positive)])
    return True


def _largest(made: Editor, each: Operation) -> bool:
    """Maxima of windows: of tensors that have one value of each, along both sides or one after the other.

    A value in a pad is 0, which must not count.
    """
    if not isinstance(each, Pool) or each.kind != "max":
        return False
    (t,) = each.i
    spans = zip(t.sides, each.o.sides, each.kernel, each.stride, each.pads, each.dilation)
    has_pads = any(low or (o - 1) * s + d * (k - 1) + 1 > side + low for side, o, k, s, (low, _), d in spans)
    is_behind = not made.is_result(each.o) and all(map(_is_relu, made.readers(each.o)))
    is_positive = each.positive or is_behind or _is_positive(made.made(t))
    if has_pads and not is_positive:
        return _with_edges(made, each)
    if len(t.sides) == 2:
        # Tensors of values, and of the larger of two, in those of the result.
        (high, wide), below = each.kernel, each.stride[0]
        if (2 * wide - 1) * below + 2 * high - 1 < 2 * high * wide - 1:
            between = Tensor(made.free(f"{each.o.name}~lines"), (t.sides[0], each.o.sides[1]), t.features)
            made.change(each, _one_after_the_other(each, between, is_positive))
            return True
    channels, parts = t.features, list[Operation]()
    for tap in np.ndindex(each.kernel):
        name = made.free(f"{each.o.name}~{'.'.join(map(str, tap))}")
        made.values[f"{name}.weight"] = np.ones((channels, 1, *(1 for _ in tap)))
        new = Convolution(
            (t,),
            Tensor(name, each.o.sides, channels),
            name,
            bias=False,
            groups=channels,
            kernel=tuple(1 for _ in tap),
            stride=each.stride,
            pads=tuple((low - n * by, 0) for n, by, (low, _) in zip(tap, each.dilation, each.pads)),
            dilation=each.dilation,
        )
        parts.append(new)
        if len(parts) > 1:
            both = Tensor(made.free(f"{name}~max"), each.o.sides, channels)
            parts.append(Larger((parts[-2].o, new.o), both))
    parts[-1] = replace(parts[-1], o=each.o, positive=each.positive)
    made.change(each, parts)
    return True


def _with_edges(made: Editor, each: Pool) -> bool:
    """Windows whose pads are copies of the edge, which is among their values."""
    if set(each.dilation) != {1}:
        return False
    (t,), edges = each.i, []
    for side, o, k, s, (low, _) in zip(t.sides, each.o.sides, each.kernel, each.stride, each.pads):
        edges.append((low, max((o - 1) * s + k - side - low, 0)))
    sides = tuple(side + sum(edge) for side, edge in zip(t.sides, edges))
    wide = Tensor(made.free(f"{each.o.name}~edges"), sides, t.features)
    none = tuple((0, 0) for _ in sides)
    made.change(each, [Pad((t,), wide, tuple(edges), mode="edge"), replace(each, i=(wide,), pads=none)])
    return True


def _one_after_the_other(each: Pool, between: Tensor, is_positive: bool) -> list[Operation]:
    """Maxima along lines, then of lines."""
    parts: list[Operation] = []
    for axis, (i, o) in ((1, (each.i[0], between)), (0, (between, each.o))):

        def one(value: Sequence[Any], usual: Any, axis: int = axis) -> tuple[Any, ...]:
            return tuple(own if n == axis else usual for n, own in enumerate(value))

        new = Pool(
            (i,),
            o,
            "max",
            kernel=one(each.kernel, 1),
            stride=one(each.stride, 1),
            pads=one(each.pads, (0, 0)),
            dilation=one(each.dilation, 1),
            positive=is_positive if axis else each.positive,
        )
        parts.append(new)
    return parts


def _is_relu(each: Operation) -> bool:
    return isinstance(each, Activation) and each.kind == "relu"


def _is_positive(each: Operation | None) -> bool:
    """Whether no value of a result is below 0."""
    return each is not None and (each.positive or _is_relu(each))
