"""Norms as the engine has them: of a power of two values, less their mean, with gain and bias.

Values that are their group's mean change its variance by a constant. So a group is filled up with its mean, eps and
gain are those of the larger group, and the result has the values that are not filled.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from math import prod, sqrt
from typing import TypeGuard

import numpy as np

from gradloom.graph.base import Operation, Tensor
from gradloom.graph.operations import (
    Activation,
    Add,
    Concat,
    Linear,
    MatMul,
    Multiply,
    Norm,
    Parameter,
    Rearrange,
    Slice,
)
from gradloom.graph.rewriting.editor import Editor
from gradloom.rtl.formats.tiles.codes import EDGE

from .expressed import label
from .parting import LONGEST, of_parts

__all__ = ["norming", "taught"]

Rule = Callable[[Editor, Operation], bool]


def _plain(made: Editor, each: Operation) -> bool:
    """A gain of ones, a bias of zeros."""
    if not isinstance(each, Norm) or (each.gain and each.bias):
        return False
    layer = made.free(f"{each.o.name}~norm") if not (each.gain or each.bias) else each.layer
    for name, fill in (("weight", 1.0), ("bias", 0.0)):
        made.values.setdefault(f"{layer}.{name}", np.full(each.o.features, fill))
    made.change(each, [replace(each, layer=layer, gain=True, bias=True)])
    return True


def taught(learners: Collection[str], made: Editor, each: Operation) -> bool:
    """A gain and a bias that learn are a factor and a sum behind the norm; tables of a row have no sides."""
    if isinstance(each, Parameter):
        is_row = each.name in learners and each.o.rows == 1 and each.o.sides
        if not is_row or not all(isinstance(reader, Add | Multiply) for reader in made.readers(each.o)):
            return False
        made.values[each.name] = made.values[each.name].reshape(-1)
        made.change(each, [replace(each, o=replace(each.o, name=made.free(f"{each.o.name}~row"), sides=()))])
        return True
    names = [f"{each.layer}.{part}" for part in ("weight", "bias")] if isinstance(each, Norm) else []
    if not isinstance(each, Norm) or not any(name in learners for name in names):
        return False
    unit = _named(made, each, "unit", each.o.sides, each.o.features)
    parts: list[Operation] = [
        replace(each, layer=made.free(f"{each.o.name}~norm"), o=unit, gain=False, bias=False, positive=False)
    ]
    rest = [(name, kind) for name, kind, is_there in zip(names, (Multiply, Add), (each.gain, each.bias)) if is_there]
    for number, (name, kind) in enumerate(rest, 1):
        table = Parameter((), Tensor(made.free(f"{each.o.name}~{kind.__name__.lower()}"), (), each.o.features), name)
        is_last = number == len(rest)
        o = each.o if is_last else _named(made, each, "scaled", each.o.sides, each.o.features)
        parts += [table, kind((parts[-1].o, table.o), o, positive=each.positive and is_last)]
    made.change(each, parts)
    return True


def _of_rows(factors: dict[str, float], made: Editor, each: Operation) -> bool:
    """A norm of each row, of any number of features."""
    if not _open(each) or each.over_rows or each.groups > 1:
        return False
    (t,), count = each.i, each.o.features
    size = _power(count if each.centred else 2 * count)
    if each.centred and size == count:
        return False
    parts: list[Operation] = []
    tensors = [t]
    if not each.centred:
        opposite = _parameter(made, each, "opposite", np.full((*(1 for _ in t.sides), count), -1.0))
        parts += [opposite, Multiply((t, opposite.o), _named(made, each, "less", t.sides, count))]
        tensors.append(parts[-1].o)
    rest = size - count * len(tensors)
    if rest:
        weights = np.full((rest, count), float(each.centred))
        parts += _scaled_sum(made, each, t, weights, 1 / count)
        tensors.append(parts[-1].o)
    whole = _named(made, each, "filled", t.sides, size)
    parts.append(Concat(tuple(tensors), whole, len(t.sides)))
    counted = count * (len(tensors) - bool(rest))
    made.change(each, [*parts, _within(made, factors, replace(each, centred=True), whole, counted)])
    return True


def _of_images(factors: dict[str, float], made: Editor, each: Operation) -> bool:
    """A norm over rows, of which a tile has no whole number."""
    if not _open(each) or not each.over_rows or not each.centred:
        return False
    (t,), rows = each.i, each.span
    group = each.o.features // each.groups
    if rows != each.o.rows:
        return False
    size = _power(rows)
    if size == rows or group > EDGE or _power(group) != group:
        return False
    line = _named(made, each, "line", (rows,), t.features)
    ones = _parameter(made, each, "ones", np.ones((size - rows, rows)))
    total = MatMul((ones.o, line), _named(made, each, "total", (size - rows,), t.features))
    weights = np.kron(np.eye(each.groups), np.ones((group, group)))
    parts = [label(t, line), ones, total, *_scaled_sum(made, each, total.o, weights, 1 / (rows * group))]
    whole = _named(made, each, "filled", (size,), t.features)
    parts.append(Concat((line, parts[-1].o), whole, 0))
    normed = _named(made, each, "normed", (size,), t.features)
    norm = _within(made, factors, replace(each, o=normed), whole, rows * group)
    result = _named(made, each, "result", (rows,), t.features)
    made.change(each, [*parts, norm, Slice((normed,), result, 0, 0), label(result, each.o)])
    return True


def _of_groups(made: Editor, each: Operation) -> bool:
    """Groups whose features are no power of two, or more than a tile's: a row each, or with features between them."""
    if not _open(each):
        return False
    (t,), features, groups = each.i, each.o.features, each.groups
    group = features // groups
    if each.part or (not each.over_rows and group % EDGE == 0 and _power(group) == group <= LONGEST and each.centred):
        return False
    rows = t.rows if each.over_rows else 1
    if each.over_rows and each.centred and group <= EDGE and _power(group) == group:
        return False
    if not each.over_rows and groups == 1:
        return False
    many = t.rows // rows * groups
    seen = _named(made, each, "groups", (many,), rows * group)
    unit = replace(seen, name=made.free(f"{each.o.name}~unit"))
    back = _named(made, each, "back", t.sides, features)
    parts: list[Operation] = [
        Rearrange((t,), seen, (t.rows // rows, rows, groups, group), (0, 2, 1, 3)),
        Norm((seen,), unit, unit.name, eps=each.eps, centred=each.centred, gain=False, bias=False),
        Rearrange((unit,), back, (t.rows // rows, groups, rows, group), (0, 2, 1, 3)),
    ]
    gain = _parameter(made, each, "gain", made.values[f"{each.layer}.weight"].reshape(*(1 for _ in t.sides), -1))
    shift = _parameter(made, each, "shift", made.values[f"{each.layer}.bias"].reshape(*(1 for _ in t.sides), -1))
    scaled = Multiply((back, gain.o), _named(made, each, "scaled", t.sides, features))
    made.change(each, [*parts, gain, scaled, shift, Add((scaled.o, shift.o), each.o)])
    return True


def _within(made: Editor, factors: dict[str, float], each: Norm, whole: Tensor, count: int) -> Norm:
    """The norm of a group of ``count`` values that was filled up to ``whole``."""
    group = prod(whole.shape) // each.groups if each.over_rows else whole.features
    layer = made.own(each.layer, ("weight", "bias"))
    name = f"{layer}.weight"
    factors[name] = sqrt(count / group)
    made.values[name] = made.values[name] * factors[name]
    return replace(each, i=(whole,), layer=layer, eps=each.eps * count / group)


def _open(each: Operation) -> TypeGuard[Norm]:
    """Whether an operation is a norm with gain and bias that is not filled up."""
    return isinstance(each, Norm) and each.gain and each.bias and each.i[0].features == each.o.features


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length()


def _named(made: Editor, each: Operation, name: str, sides: Sequence[int], features: int) -> Tensor:
    return Tensor(made.free(f"{each.o.name}~{name}"), tuple(sides), features)


def _parameter(made: Editor, each: Operation, name: str, value: np.ndarray) -> Parameter:
    t = _named(made, each, name, value.shape[:-1], value.shape[-1])
    made.values[t.name] = value
    return Parameter((), t, t.name)


def _scaled_sum(made: Editor, each: Operation, t: Tensor, weights: np.ndarray, factor: float) -> list[Operation]:
    """Sums of features, times a constant, which has more bits than weights."""
    total = _named(made, each, "sums", t.sides, len(weights))
    made.values[f"{total.name}.weight"] = weights
    mean = _named(made, each, "mean", t.sides, len(weights))
    return [Linear((t,), total, total.name, bias=False), Activation((total,), mean, "affine", (factor, 0.0))]


def norming(factors: dict[str, float]) -> tuple[Rule, ...]:
    """Rules of an editor; ``factors``: those that gains of filled groups have, by name."""
    return _plain, of_parts, _of_groups, partial(_of_rows, factors), partial(_of_images, factors)
