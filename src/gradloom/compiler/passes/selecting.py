"""Values that only move, as products with zeros and ones.

The machine moves columns by matrices; so chosen features are a product, an upsampling is a convolution, and rows behind
one another are a sum.
"""

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from gradloom.graph.base import Operation, Tensor
from gradloom.graph.operations import (
    Activation,
    Add,
    Concat,
    Convolution,
    Linear,
    Multiply,
    Pad,
    Parameter,
    Rearrange,
    Slice,
    Upsample,
)
from gradloom.graph.rewriting.editor import Editor
from gradloom.graph.rewriting.resampling import repeats
from gradloom.rtl.formats.tiles.codes import EDGE

__all__ = ["SELECTING"]


#: Features of a beat.
_BEAT = 8


def _channels(
    made: Editor, each: Operation, taps: np.ndarray, *, bias: np.ndarray | None = None, **shape: Any
) -> Convolution:
    """A convolution of every channel with the same ``taps``, in place of an operation."""
    channels, sides = each.o.features, len(each.o.sides)
    name = made.free(f"{each.o.name}~moved")
    made.values[f"{name}.weight"] = np.broadcast_to(taps, (channels, 1, *taps.shape)).copy()
    if bias is not None:
        made.values[f"{name}.bias"] = bias
    usual: dict[str, Any] = {
        "kernel": taps.shape,
        "stride": (1,) * sides,
        "pads": ((0, 0),) * sides,
        "dilation": (1,) * sides,
        "positive": each.positive,
    }
    return Convolution(each.i, each.o, name, bias=bias is not None, groups=channels, **{**usual, **shape})


def _sliced(made: Editor, each: Operation) -> bool:
    """Some features, by a matrix."""
    if not isinstance(each, Slice) or each.axis < len(each.o.sides):
        return False
    name = made.free(f"{each.o.name}~chosen")
    chosen = each.start + each.step * np.arange(each.o.features)
    made.values[f"{name}.weight"] = np.eye(each.i[0].features)[chosen]
    made.change(each, [Linear(each.i, each.o, name, bias=False, positive=each.positive)])
    return True


def _joined(made: Editor, each: Operation) -> bool:
    """Rows behind one another: tensors with zeros where the others are, added up."""
    if not isinstance(each, Concat) or each.axis == len(each.o.sides):
        return False
    listed: list[Operation] = []
    total: Tensor | None = None
    before, whole = 0, each.o.sides[each.axis]
    for number, t in enumerate(each.i):
        behind = whole - before - t.sides[each.axis]
        pads = tuple((before, behind) if axis == each.axis else (0, 0) for axis in range(len(each.o.sides)))
        part = Tensor(made.free(f"{each.o.name}~part{number}"), each.o.sides, each.o.features)
        listed.append(Pad((t,), part, pads))
        before += t.sides[each.axis]
        if total is None:
            total = part
            continue
        met = each.o if number == len(each.i) - 1 else replace(part, name=f"{part.name}~sum")
        listed.append(Add((total, part), met))
        total = met
    made.change(each, listed)
    return True


def _beside(made: Editor, each: Operation) -> bool:
    """Features side by side that are no whole beats: tensors with zeros where the others are, added up."""
    if not isinstance(each, Concat) or each.axis != len(each.o.sides):
        return False
    ends = np.cumsum([t.features for t in each.i])
    # Where each column comes from: a tensor, and its tile.
    sources = [(n, column // EDGE) for n, t in enumerate(each.i) for column in range(t.features)]
    tiles = [len(set(sources[at : at + EDGE])) for at in range(0, len(sources), EDGE)]
    if not any(end % _BEAT for end in ends) and max(tiles) <= 2:
        return False
    listed: list[Operation] = []
    for number, (t, end) in enumerate(zip(each.i, ends)):
        name = made.free(f"{each.o.name}~part{number}")
        made.values[f"{name}.weight"] = np.eye(each.o.features, t.features, t.features - end)
        listed.append(Linear((t,), replace(each.o, name=name), name, bias=False))
        if number:
            met = each.o if number == len(ends) - 1 else replace(each.o, name=f"{name}~sum")
            positive = each.positive and met is each.o
            listed.append(Add((listed[-2].o, listed[-1].o), met, positive=positive))
    made.change(each, listed)
    return True


def _risen(made: Editor, each: Operation) -> bool:
    """Every pixel several times, where twice is not all."""
    if not isinstance(each, Upsample) or not _shaped(each) or not repeats(each):
        return False
    sides = each.i[0].sides
    rise = tuple(large // small for small, large in zip(sides, each.o.sides))
    # Sums of 2 x 2 pixels, which its gradient is, have a power of two in a row.
    twice = len(sides) == 2 and set(rise) == {2} and sides[1] & sides[1] - 1 == 0 and sides[1] <= EDGE
    if max(rise) > 4 or (twice and not made.is_result(each.o) and all(map(_reads, made.readers(each.o)))):
        return False
    made.change(each, [_channels(made, each, np.ones(rise), stride=rise, transposed=True)])
    return True


def _reads(each: Operation) -> bool:
    """Whether an operation reads by address and steps by one place."""
    return isinstance(each, Convolution) and not each.transposed and set(each.stride) == {1}


def _affine(made: Editor, each: Operation) -> bool:
    """Values times a factor below 0, or plus a constant: by tables of one row, which have codes of 16 bits."""
    if not isinstance(each, Activation) or each.kind != "affine":
        return False
    gain, shift = each.parameters
    if gain > 0 and not shift:
        return False
    parts: list[Operation] = []
    (t,) = each.i
    for value, neutral, kind in ((gain, 1.0, Multiply), (shift, 0.0, Add)):
        if value != neutral:
            table = Tensor(made.free(f"{each.o.name}~{kind.__name__.lower()}"), (1,) * len(t.sides), t.features)
            made.values[table.name] = np.full(table.shape, value)
            o = Tensor(made.free(f"{table.name}d"), t.sides, t.features)
            parts += [Parameter((), table, table.name), kind((t, table), o)]
            t = o
    made.change(each, [*parts[:-1], replace(parts[-1], o=each.o, positive=each.positive)])
    return True


def _repeated(made: Editor, each: Operation) -> bool:
    """As large as the other: a tensor whose rows count for others than neighbours; a table that is not one row."""
    if not isinstance(each, Add | Multiply):
        return False
    for t in each.i:
        value, sides = made.parameter(t), each.o.sides
        if value is None and _apart(t, sides):
            own = (1,) * (len(sides) - len(t.sides)) + t.sides
            line = Tensor(made.free(f"{each.o.name}~sides"), own, t.features)
            wide = Tensor(made.free(f"{each.o.name}~repeated"), sides, t.features)
            risen = [
                Rearrange((t,), line, (t.rows * t.features,), (0,)),
                Upsample((line,), wide, "nearest", "asymmetric"),
            ]
            made.change(each, [*risen, replace(each, i=tuple(wide if other is t else other for other in each.i))])
            return True
        if value is None or (t.features == each.o.features and (t.rows == 1 or t.rows == each.o.rows)):
            continue
        name = made.free(f"{each.o.name}~repeated")
        shape = ((1,) * len(sides) if t.rows == 1 else sides) + (each.o.features,)
        held = value.reshape((1,) * (len(sides) - len(t.sides)) + t.shape)
        made.values[name] = np.broadcast_to(held, shape).copy()
        table = Parameter((), Tensor(name, shape[:-1], shape[-1]), name)
        made.change(each, [table, replace(each, i=tuple(table.o if other is t else other for other in each.i))])
        return True
    return False


def _apart(t: Tensor, sides: tuple[int, ...]) -> bool:
    """Whether rows of a tensor count for others than so many neighbours each."""
    if t.rows == prod(sides):
        return False
    own = (1,) * (len(sides) - len(t.sides)) + t.sides
    alike = next((n for n, (mine, size) in enumerate(zip(own, sides)) if mine != size), len(sides))
    return any(size > 1 for size in own[alike:])


def _widened(made: Editor, each: Operation) -> bool:
    """One feature that counts for all of another tensor's."""
    if not isinstance(each, Add | Multiply) or len({t.features for t in each.i}) == 1:
        return False
    few = next((t for t in each.i if t.features == 1), None)
    if few is None:
        return False
    name = made.free(f"{each.o.name}~all")
    made.values[f"{name}.weight"] = np.ones((each.o.features, 1))
    wide = Tensor(made.free(f"{few.name}~wide"), few.sides, each.o.features)
    spread = Linear((few,), wide, name, bias=False)
    made.change(each, [spread, replace(each, i=tuple(wide if t is few else t for t in each.i))])
    return True


def _shaped(each: Operation) -> bool:
    """Whether an operation is on one or two sides."""
    return all(len(t.sides) in (1, 2) for t in (*each.i, each.o))


#: Rules of an editor.
SELECTING = (_sliced, _joined, _beside, _risen, _affine, _repeated, _widened)
