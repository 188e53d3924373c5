"""Operations that a file writes out in several nodes."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeGuard

import numpy as np

from ..base import Operation, Tensor
from ..functions import FUNCTIONS, named
from ..operations import Activation, Add, Attention, Linear, MatMul, Multiply, Norm, Rearrange, Reduce, Softmax
from .editor import Editor

__all__ = ["adapter", "attention", "attention_scale", "function", "norm", "softmax"]

#: Operations of an expression at most.
_DEPTH = 12


def _sources(made: Editor, t: Tensor) -> list[Tensor]:
    """Tensors that a value at the same place depends on, the nearest first."""
    found: dict[str, Tensor] = {}
    wave = [t]
    for _ in range(_DEPTH):
        after: list[Tensor] = []
        for each in wave:
            before = made.made(each)
            if isinstance(before, Activation | Add | Multiply) and all(i.shape == t.shape for i in before.i):
                after += before.i
        wave = list(dict.fromkeys(after))
        found.update((each.name, found.pop(each.name, each)) for each in wave)
    return list(found.values())


def _expression(made: Editor, t: Tensor, root: Tensor) -> Callable[[np.ndarray], np.ndarray] | None:
    """``t`` as a function of ``root`` alone, None where it is not."""
    if t == root:
        return lambda x: x
    before = made.made(t)
    if not isinstance(before, Activation | Add | Multiply) or any(i.shape != t.shape for i in before.i):
        return None
    parts = [_expression(made, each, root) for each in before.i]
    if None in parts:
        return None
    if isinstance(before, Activation):
        of, (inner,) = FUNCTIONS[before.kind].of, parts
        return lambda x: of(inner(x), *before.parameters)  # type: ignore[misc]
    one, other = parts
    if isinstance(before, Multiply):
        return lambda x: one(x) * other(x)  # type: ignore[misc]
    sign = -1 if before.subtract else 1
    return lambda x: one(x) + sign * other(x)  # type: ignore[misc]


def function(made: Editor, each: Operation) -> bool:
    """An expression of one tensor is the function that it computes, if that has a name."""
    if not isinstance(each, Activation | Add | Multiply):
        return False
    simple = each.i if isinstance(each, Activation) else ()
    for root in reversed(_sources(made, each.o)):
        if root in simple:
            continue
        expression = _expression(made, each.o, root)
        found = None if expression is None else named(expression)
        if found is not None:
            made.change(each, [Activation((root,), each.o, *found)])
            return True
    return False


def adapter(made: Editor, each: Operation) -> bool:
    """Two products of few features beside a linear layer are its LoRA adapter."""
    if not isinstance(each, Add) or each.subtract:
        return False
    for this, other in (each.i, each.i[::-1]):
        whole, b = made.made(this), made.made(other)
        if not (_is_linear(whole, made) and _is_linear(b, made)) or b.bias or this.shape != other.shape:
            continue
        a = made.made(b.i[0])
        if not _is_linear(a, made) or a.bias or a.i != whole.i or a.o.features >= min(whole.shape):
            continue
        new = replace(whole, o=each.o, rank=a.o.features, positive=each.positive)
        if any(weight.name in made.values for weight in new.adapter):
            continue
        for weight, old in zip(new.adapter, (a, b)):
            made.values[weight.name] = made.values[f"{old.layer}.weight"]
            if f"{old.layer}.weight" in made.origins:
                made.origins[weight.name] = made.origins[f"{old.layer}.weight"]
        made.change(each, [new])
        return True
    return False


def _is_linear(each: Operation | None, made: Editor) -> TypeGuard[Linear]:
    """Whether a tensor is a plain linear layer's, and only one operation reads it."""
    return isinstance(each, Linear) and not each.rank and not each.positive and made.is_inner(each.o)


def _root(made: Editor, t: Tensor) -> tuple[Reduce, float, float] | None:
    """The mean or sum whose root over ``t`` is; what is added to it before, and its factor."""
    sources = [t, *_sources(made, t)]
    kinds = ("mean", "sum")
    mean = next((m for s in sources if isinstance(m := made.made(s), Reduce) and m.kind in kinds), None)
    expression = None if mean is None else _expression(made, t, mean.o)
    if mean is None or expression is None:
        return None
    at = np.array([0.25, 1.0, 4.0, 9.0])
    with np.errstate(all="ignore"):
        square = 1 / expression(at) ** 2
        factor = float((square[3] - square[0]) / (at[3] - at[0]))
        eps = float(1 / expression(np.zeros(1))[0] ** 2) / factor
    if not (factor > 0 and 0 <= eps < 0.2 and np.allclose(square, factor * (at + eps), rtol=1e-6)):
        return None
    return mean, eps, factor


def _square(made: Editor, t: Tensor) -> Tensor | None:
    """What ``t`` is the square of."""
    before = made.made(t)
    if isinstance(before, Activation) and before.kind == "power" and before.parameters == (2.0,):
        return before.i[0]
    if isinstance(before, Multiply) and before.i[0] == before.i[1]:
        return before.i[0]
    return None


def norm(made: Editor, each: Operation) -> bool:
    """Values less their mean over their deviation: a norm without gain and bias."""
    if not isinstance(each, Multiply):
        return False
    for at in (0, 1):
        x, over = each.i[at], each.i[1 - at]
        found = _root(made, over)
        if found is None or x.shape != each.o.shape:
            continue
        mean, eps, factor = found
        squared = _square(made, mean.i[0])
        if squared is None or squared != x:
            continue
        before = made.made(x)
        centred = False
        if isinstance(before, Add) and before.subtract:
            middle = made.made(before.i[1])
            centred = (
                isinstance(middle, Reduce)
                and (middle.kind, middle.over_rows) == ("mean", mean.over_rows)
                and middle.i == before.i[:1]
            )
        i = before.i[:1] if before is not None and centred else (x,)
        # Of a sum of squares the length is 1: that of a mean is the root of how many there are.
        count = 1 if mean.kind == "mean" else x.rows if mean.over_rows else x.features
        gain = (factor * count) ** -0.5
        unit = each.o if abs(gain - 1) < 1e-7 else replace(each.o, name=made.free(f"{each.o.name}~unit"))
        new = Norm(
            i,
            unit,
            made.free(f"{each.o.name}~norm"),
            bias=False,
            gain=False,
            eps=eps / count,
            over_rows=mean.over_rows,
            groups=each.o.features if mean.over_rows else 1,
            centred=centred,
        )
        made.change(each, [new] if unit is each.o else [new, Activation((unit,), each.o, "affine", (gain, 0.0))])
        return True
    return False


def softmax(made: Editor, each: Operation) -> bool:
    """Powers over their sum."""
    if not isinstance(each, Multiply):
        return False
    for this, other in (each.i, each.i[::-1]):
        powers, inverse = made.made(this), made.made(other)
        if not (isinstance(powers, Activation) and powers.kind == "exp"):
            continue
        if not (isinstance(inverse, Activation) and (inverse.kind, inverse.parameters) == ("power", (-1.0,))):
            continue
        total = made.made(inverse.i[0])
        if isinstance(total, Reduce) and (total.kind, total.over_rows, total.i) == ("sum", False, (this,)):
            made.change(each, [Softmax(powers.i, each.o)])
            return True
    return False


def attention(made: Editor, each: Operation) -> bool:
    """softmax(q k') v for every head."""
    if not isinstance(each, MatMul) or not 1 <= len(each.i[0].sides) <= 2:
        return False
    shares = made.made(each.i[0])
    if not isinstance(shares, Softmax) or shares.log or not made.is_inner(shares.o):
        return False
    scores, scale = shares.i[0], 1.0
    bias: tuple[Tensor, ...] = ()
    before = made.made(scores)
    if isinstance(before, Add) and made.parameter(before.i[1]) is not None and made.is_inner(scores):
        scores, bias = before.i[0], before.i[1:]
        before = made.made(scores)
    if isinstance(before, Activation) and before.kind == "affine" and not before.parameters[1]:
        if not made.is_inner(scores):
            return False
        scores, scale = before.i[0], before.parameters[0]
        before = made.made(scores)
    if not isinstance(before, MatMul) or not made.is_inner(scores) or len(scores.sides) != len(each.o.sides):
        return False
    if any(len(t.sides) != len(each.o.sides) for t in (*before.i, *each.i)):
        return False
    heads = each.o.sides[0] if len(each.o.sides) == 2 else 1
    new: list[Operation] = []

    def side_by_side(t: Tensor, turned: bool, name: str) -> Tensor:
        """``[heads, rows, features]`` as rows with the heads' features side by side."""
        rows, features = t.sides[-1], t.features
        sizes, order = ((heads, rows, features), (1, 0, 2))
        if turned:
            rows, features, order = features, rows, (2, 0, 1)
        o = Tensor(made.free(f"{each.o.name}~{name}"), (rows,), heads * features)
        new.append(Rearrange((t,), o, sizes, order))
        return o

    q = side_by_side(before.i[0], False, "q")
    k = side_by_side(before.i[1], not before.turned, "k")
    v = side_by_side(each.i[1], each.turned, "v")
    o = Tensor(made.free(f"{each.o.name}~o"), q.sides, heads * each.o.features)
    new.append(Attention((q, k, v, *bias), o, heads, scale))
    new.append(Rearrange((o,), each.o, (o.sides[0], heads, each.o.features), (1, 0, 2)))
    made.change(each, new)
    return True


def attention_scale(made: Editor, each: Operation) -> bool:
    """Factors of q and k are the scale's."""
    if not isinstance(each, Attention):
        return False
    for at in (0, 1):
        before = made.made(each.i[at])
        if isinstance(before, Activation) and before.kind == "affine" and not before.parameters[1]:
            i = (*each.i[:at], before.i[0], *each.i[at + 1 :])
            made.change(each, [replace(each, i=i, scale=each.scale * before.parameters[0])])
            return True
    return False
