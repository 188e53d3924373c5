"""Operations that others express."""

from dataclasses import replace
from math import isinf
from typing import Any

import numpy as np

from gradloom.graph.base import Operation, Tensor
from gradloom.graph.operations import (
    Activation,
    Add,
    Attention,
    Concat,
    Convolution,
    Gated,
    Linear,
    MatMul,
    Multiply,
    Pad,
    Parameter,
    Pool,
    Prelu,
    Rearrange,
    Reduce,
    Slice,
    Softmax,
    Upsample,
)
from gradloom.graph.rewriting.editor import Editor
from gradloom.graph.rewriting.masks import FAR
from gradloom.graph.rewriting.resampling import repeats, sampling
from gradloom.rtl.formats.tiles.codes import EDGE

__all__ = ["EXPRESSED", "label"]

#: So much less than all others of a table are those of a mask, in codes with few bits fewer for scores.
_LESS = 96.0
#: Values of a matrix that makes all rows of a larger image, at most.
_MATRIX = 1 << 22


def label(t: Tensor, o: Tensor) -> Rearrange:
    """The same values under other sides."""
    return Rearrange((t,), o, (t.rows * t.features,), (0,))


def _like(made: Editor, each: Operation, name: str, t: Tensor) -> Tensor:
    return replace(t, name=made.free(f"{each.o.name}~{name}"))


def _slopes(made: Editor, each: Operation) -> bool:
    """What is above 0, and a table times what is below."""
    if not isinstance(each, Prelu):
        return False
    (x,) = each.i
    layer = made.own(each.layer, ("weight",))
    name = f"{layer}.weight"
    made.values[name] = np.broadcast_to(made.values[name], (x.features,)).copy()
    table = Parameter((), Tensor(made.free(f"{each.o.name}~slopes"), tuple(1 for _ in x.sides), x.features), name)
    above, below, scaled = (_like(made, each, name, x) for name in ("above", "below", "scaled"))
    parts = [
        Activation((x,), above, "relu"),
        Add((x, above), below, subtract=True),
        table,
        Multiply((below, table.o), scaled),
        Add((above, scaled), each.o),
    ]
    made.change(each, parts)
    return True


def _limited(made: Editor, each: Operation) -> bool:
    """A limit on one side is a ReLU between two constants."""
    if not isinstance(each, Activation) or each.kind != "clip" or not any(map(isinf, each.parameters)):
        return False
    least, most = each.parameters
    sign, limit = (1.0, least) if isinf(most) else (-1.0, most)
    if isinf(limit):
        made.remove(each, each.i[0])
        return True
    moved, above = (_like(made, each, name, each.o) for name in ("moved", "above"))
    parts = [
        Activation(each.i, moved, "affine", (sign, -sign * limit)),
        Activation((moved,), above, "relu"),
        Activation((above,), each.o, "affine", (sign, limit), positive=each.positive),
    ]
    made.change(each, parts)
    return True


def _over_features(made: Editor, each: Operation) -> bool:
    """A sum over features is a product with ones; of a mean, times a constant."""
    if not isinstance(each, Reduce) or each.over_rows or each.kind not in ("mean", "sum"):
        return False
    (x,) = each.i
    total, found = (_like(made, each, name, replace(x, features=1)) for name in ("sum", "result"))
    made.values[f"{total.name}.weight"] = np.ones((1, x.features))
    parts: list[Operation] = [Linear((x,), total, total.name, bias=False)]
    if each.kind == "mean":
        parts.append(Activation((total,), found, "affine", (1 / x.features, 0.0)))
    made.change(each, [*parts, label(parts[-1].o, each.o)])
    return True


def _largest_row(made: Editor, each: Operation) -> bool:
    """The largest of all rows by windows of two, again and again."""
    if not isinstance(each, Reduce) or not each.over_rows or each.kind != "max":
        return False
    (t,) = each.i
    parts: list[Operation] = []
    if len(t.sides) not in (1, 2):
        parts.append(label(t, _like(made, each, "line", Tensor("", (t.rows,), t.features))))
        t = parts[-1].o
    while t.rows > 1:
        kernel = tuple(min(side, 2) for side in t.sides)
        sides = tuple(-(-side // 2) for side in t.sides)
        ends = tuple((0, 2 * o - side if side > 1 else 0) for o, side in zip(sides, t.sides))
        o = Tensor(made.free(f"{each.o.name}~{'x'.join(map(str, sides))}"), sides, t.features)
        one = tuple(1 for _ in sides)
        parts.append(Pool((t,), o, "max", kernel=kernel, stride=kernel, pads=ends, dilation=one))
        t = o
    made.change(each, [*parts, label(t, each.o)])
    return True


def _risen_linear(made: Editor, each: Operation) -> bool:
    """Between pixels whole times as close: a transposed convolution with a triangle, of an image with its edges."""
    if not isinstance(each, Upsample) or each.mode != "linear" or "half_pixel" not in each.places:
        return False
    (x,) = each.i
    rise = [large // small for small, large in zip(x.sides, each.o.sides)]
    if any(large % small for small, large in zip(x.sides, each.o.sides)) or max(rise) > 4 or len(rise) > 2:
        return False
    edge = tuple((int(r > 1), int(r > 1)) for r in rise)
    wide = Tensor(made.free(f"{each.o.name}~edges"), tuple(s + sum(e) for s, e in zip(x.sides, edge)), x.features)
    taps, pads = np.ones(()), []
    for r in rise:
        low = 3 * r // 2 if r > 1 else 0
        places = np.arange(2 * r - r % 2) - low + 0.5 + r / 2 if r > 1 else np.zeros(1)
        taps = np.multiply.outer(taps, 1 - np.abs(places) / r)
        pads.append((low, r + len(places) - low if r > 1 else 0))
    name = made.free(f"{each.o.name}~between")
    made.values[f"{name}.weight"] = np.broadcast_to(taps, (x.features, 1, *taps.shape)).copy()
    new = Convolution(
        (wide,),
        each.o,
        name,
        bias=False,
        positive=each.positive,
        groups=x.features,
        transposed=True,
        kernel=taps.shape,
        stride=tuple(rise),
        pads=tuple(pads),
        dilation=tuple(1 for _ in rise),
    )
    made.change(each, [Pad((x,), wide, edge, mode="edge"), new])
    return True


def _risen_rows(made: Editor, each: Operation) -> bool:
    """Every other larger image: a matrix that makes its rows."""
    if not isinstance(each, Upsample) or each.i[0].rows * each.o.rows > _MATRIX:
        return False
    (x,), matrix = each.i, np.ones((1, 1))
    rise = [large / small for small, large in zip(x.sides, each.o.sides)]
    if max(rise) <= 4 and len(rise) <= 2 and repeats(each):
        return False
    for part in sampling(each):
        matrix = np.kron(matrix, part)
    line, found, rows = (
        Tensor(made.free(f"{each.o.name}~{name}"), (count,), features)
        for name, count, features in (
            ("line", x.rows, x.features),
            ("rows", each.o.rows, x.features),
            ("matrix", each.o.rows, x.rows),
        )
    )
    made.values[rows.name] = matrix
    table = Parameter((), rows, rows.name)
    product = MatMul((table.o, line), found, positive=each.positive)
    made.change(each, [label(x, line), table, product, label(found, each.o)])
    return True


def _biased(made: Editor, each: Operation) -> bool:
    """Attention with a tensor that is added to the scores: head by head."""
    if not isinstance(each, Attention) or len(each.i) < 4:
        return False
    q, k, v, bias = each.i
    rows, keys = q.rows, k.rows
    parts: list[Operation] = []

    def put(operation: Operation) -> Tensor:
        parts.append(operation)
        return operation.o

    def named(name: str, rows: int, features: int) -> Tensor:
        return Tensor(made.free(f"{each.o.name}~{name}"), (rows,), features)

    def own(t: Tensor, name: str, head: int) -> Tensor:
        line = put(label(t, named(f"{name}{head}.line", t.rows, t.features)))
        many = t.features // each.heads
        return put(Slice((line,), named(f"{name}{head}", t.rows, many), 1, head * many))

    table, mixed = made.parameter(bias), []
    for head in range(each.heads):
        first, second, third = (own(t, name, head) for t, name in ((q, "q"), (k, "k"), (v, "v")))
        scores = put(MatMul((first, second), named(f"scores{head}", rows, keys), turned=True))
        scaled = put(Activation((scores,), named(f"scaled{head}", rows, keys), "affine", (each.scale, 0.0)))
        more = named(f"bias{head}", rows, keys)
        at = head * rows if bias.rows > rows else 0
        if table is not None:
            made.values[more.name] = table.reshape(-1, keys)[at : at + rows]
            put(Parameter((), more, more.name))
        else:
            line = put(label(bias, named(f"bias{head}.line", bias.rows, keys)))
            put(Slice((line,), more, 0, at))
        total = put(Add((scaled, more), named(f"biased{head}", rows, keys)))
        shares = put(Softmax((total,), named(f"shares{head}", rows, keys)))
        mixed.append(put(MatMul((shares, third), named(f"mixed{head}", rows, v.features // each.heads))))
    whole = put(Concat(tuple(mixed), named("heads", rows, v.features), 1)) if len(mixed) > 1 else mixed[0]
    made.change(each, [*parts, label(whole, each.o)])
    return True


def _gate(made: Editor, each: Operation) -> bool:
    """Features times a function of those beside them, where the engine has no command for both."""
    if not isinstance(each, Gated) or (each.kind == "gelu" and each.o.features % EDGE == 0):
        return False
    value, gate, factor = (_like(made, each, name, each.o) for name in ("value", "gate", "factor"))
    axis = len(each.o.sides)
    parts = [
        Slice(each.i, value, axis, 0),
        Slice(each.i, gate, axis, each.o.features),
        Activation((gate,), factor, each.kind),
        Multiply((value, factor), each.o, positive=each.positive),
    ]
    made.change(each, parts)
    return True


def _powers(made: Editor, each: Operation) -> bool:
    """Whole powers by products, and inverses by two steps of Newton's from a table."""
    if not isinstance(each, Activation) or each.kind != "power":
        return False
    (x,), (exponent,) = each.i, each.parameters
    parts: list[Operation] = []

    def put(name: str, kind: Any, *given: Any, **more: Any) -> Tensor:
        parts.append(kind(*given[:1], _like(made, each, name, each.o), *given[1:], **more))
        return parts[-1].o

    if exponent in (2, 3, 4, 6, 8):
        t = x
        while exponent > 1 and exponent % 2 == 0:
            t, exponent = put(f"square{len(parts)}", Multiply, (t, t)), exponent / 2
        if exponent == 3:
            t = put("cube", Multiply, (put("squared", Multiply, (t, t)), t))
    elif exponent == -1:
        y = put("table", Activation, (x,), "inverse")
        for step in range(2):
            rest = put(f"rest{step}", Activation, (put(f"product{step}", Multiply, (x, y)),), "affine", (-1.0, 2.0))
            y = put(f"step{step}", Multiply, (y, rest))
    elif exponent < 0:
        put("inverse", Activation, (put("positive", Activation, (x,), "power", (-exponent,)),), "power", (-1.0,))
    else:
        return False
    made.change(each, [*parts[:-1], replace(parts[-1], o=each.o, positive=each.positive)])
    return True


def _exponential(made: Editor, each: Operation) -> bool:
    """The fourth power of that of a quarter, whose table holds arguments to 16."""
    if not isinstance(each, Activation) or each.kind != "exp":
        return False
    root, square = (_like(made, each, name, each.o) for name in ("root", "square"))
    parts = [
        Activation(each.i, root, "exp_of", (0.25,)),
        Multiply((root, root), square),
        Multiply((square, square), each.o, positive=each.positive),
    ]
    made.change(each, parts)
    return True


def _masked(made: Editor, each: Operation) -> bool:
    """A mask of scores keeps the bits of those that count: a softmax has nothing where they are less by 16 and more."""
    if not isinstance(each, Softmax):
        return False
    added = made.made(each.i[0])
    while isinstance(added, Rearrange):
        added = made.made(added.i[0])
    if not isinstance(added, Add) or added.subtract:
        return False
    for at in (0, 1):
        value = made.parameter(added.i[at])
        gone = None if value is None else value < FAR
        if value is None or gone is None or not gone.any() or gone.all(-1).any():
            continue
        name = made.free(f"{added.o.name}~mask")
        made.values[name] = np.where(gone, min(value[~gone].min(), 0) - _LESS, value)
        table = Parameter((), replace(added.i[at], name=name), name)
        pair = (added.i[0], table.o) if at else (table.o, added.i[1])
        made.change(added, [table, replace(added, i=pair)])
        return True
    return False


def _largest_feature(made: Editor, each: Operation) -> bool:
    """The largest of a row's features: of the rows that they become."""
    if not isinstance(each, Reduce) or each.over_rows or each.kind != "max":
        return False
    (x,) = each.i
    turned = Tensor(made.free(f"{each.o.name}~turned"), (x.features,), x.rows)
    found = Tensor(made.free(f"{each.o.name}~found"), (1,), x.rows)
    parts = [
        Rearrange((x,), turned, (x.rows, x.features), (1, 0)),
        Reduce((turned,), found, "max", True),
        Rearrange((found,), each.o, (x.rows,), (0,)),
    ]
    made.change(each, parts)
    return True


#: Rules of an editor.
EXPRESSED = (
    _slopes,
    _limited,
    _over_features,
    _largest_feature,
    _largest_row,
    _risen_linear,
    _risen_rows,
    _biased,
    _masked,
    _gate,
    _powers,
    _exponential,
)
