"""Nodes between values at the same place."""

import math
from dataclasses import replace

import numpy as np

from gradloom.models.files.onnx_file import RefusedNode
from gradloom.models.files.onnx_graph import Node

from ..base import Tensor
from ..operations import Activation, Add, Multiply, Prelu
from ..rewriting.views import BATCH, View, common
from .reader import Reader, taken
from .repeated import expanded

__all__ = ["applied", "between", "grown", "table", "with_constant"]

#: Operators without parameters, by their names here.
_PLAIN = {
    "Relu": "relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "HardSwish": "hard_swish",
    "Mish": "mish",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Exp": "exp",
    "Log": "log",
    "Erf": "erf",
    "Abs": "abs",
    "Sin": "sin",
    "Cos": "cos",
}


def applied(reader: Reader, view: View, hint: str, kind: str, *parameters: float) -> View:
    """A function of every value."""
    t = view.tensor
    made = reader.build.emit(
        Activation, (t,), hint, t.sides, t.features, kind, tuple(float(each) for each in parameters)
    )
    return view.on(made)


@taken(*_PLAIN)
def plain(reader: Reader, node: Node) -> None:
    """Functions without parameters."""
    reader.put(node, applied(reader, reader.view(node), node.outputs[0], _PLAIN[node.kind]))


_FIXED: dict[str, tuple[str, tuple[float, ...]]] = {
    "Neg": ("affine", (-1, 0)),
    "Sqrt": ("power", (0.5,)),
    "Reciprocal": ("power", (-1,)),
}


@taken(*_FIXED)
def fixed(reader: Reader, node: Node) -> None:
    """Functions whose parameters are no attributes."""
    kind, parameters = _FIXED[node.kind]
    reader.put(node, applied(reader, reader.view(node), node.outputs[0], kind, *parameters))


@taken("LeakyRelu", "Elu", "Selu", "HardSigmoid", "Gelu")
def with_attributes(reader: Reader, node: Node) -> None:
    """Functions whose parameters are attributes."""
    kind, parameters = {
        "LeakyRelu": ("leaky_relu", ("alpha",)),
        "Elu": ("elu", ("alpha",)),
        "Selu": ("selu", ("alpha", "gamma")),
        "HardSigmoid": ("hard_sigmoid", ("alpha", "beta")),
        "Gelu": ("gelu", ()),
    }[node.kind]
    if node.kind == "Gelu" and node.attribute("approximate", "none") == "tanh":
        kind = "gelu_tanh"
    given = [float(node.attribute(name)) for name in parameters]
    reader.put(node, applied(reader, reader.view(node), node.outputs[0], kind, *given))


@taken("com.microsoft:Gelu", "com.microsoft:FastGelu", "com.microsoft:QuickGelu")
def foreign(reader: Reader, node: Node) -> None:
    """What onnxruntime's simplifier writes for GELU."""
    view = reader.view(node)
    if node.kind == "QuickGelu":
        if abs(node.attribute("alpha", 1.702) - 1.702) > 1e-6:
            raise RefusedNode("alpha must be 1.702")
        reader.put(node, applied(reader, view, node.outputs[0], "quick_gelu"))
        return
    if node.kind == "FastGelu" and node.optional(1) is not None:
        if node.weights(1).shape != view.shape[-1:]:
            raise RefusedNode(f"its bias has shape {list(node.weights(1).shape)}: must be [{view.shape[-1]}]")
        view = with_constant(reader, view, node.weights(1), f"{node.outputs[0]}~bias", Add, node.source(1))
    reader.put(node, applied(reader, view, node.outputs[0], {"Gelu": "gelu"}.get(node.kind, "gelu_tanh")))


@taken("Clip")
def clip(reader: Reader, node: Node) -> None:
    """Bounds are constants; 0 and none is ReLU."""
    bounds = []
    for at, name, none in ((1, "min", -math.inf), (2, "max", math.inf)):
        given = float(node.constant(at, name).item()) if node.optional(at) is not None else node.attribute(name, none)
        bounds.append(none if abs(given) > 3e38 else given)
    _bounded(reader, node, reader.view(node), bounds)


def _bounded(reader: Reader, node: Node, view: View, bounds: list[float]) -> None:
    if bounds == [-math.inf, math.inf]:
        reader.put(node, view)
    elif bounds == [0, math.inf]:
        reader.put(node, applied(reader, view, node.outputs[0], "relu"))
    else:
        reader.put(node, applied(reader, view, node.outputs[0], "clip", *bounds))


@taken("Max", "Min")
def bound(reader: Reader, node: Node) -> None:
    """With a constant, one for all values."""
    computed = [n for n in range(len(node.inputs)) if reader.is_computed(node, n)]
    if len(computed) != 1 or len(node.inputs) != 2:
        raise RefusedNode("of several values that the network computes: not supported")
    value = node.weights(1 - computed[0], "bound")
    if value.size != 1:
        raise RefusedNode("its bound must be one for all values")
    view = grown(reader.view(node, computed[0]), value.ndim)
    bounds = [value.item(), math.inf] if node.kind == "Max" else [-math.inf, value.item()]
    _bounded(reader, node, view, bounds)


@taken("PRelu")
def prelu(reader: Reader, node: Node) -> None:
    """A slope a channel, or one."""
    view, slope = reader.view(node), node.weights(1, "slope")
    layer = reader.build.layer([node.source(1)], node.name, [slope.reshape(-1)])
    if slope.size > 1:
        full = slope.reshape((1,) * (len(view.axes) - slope.ndim) + slope.shape)
        axis = next(n for n, size in enumerate(full.shape) if size > 1)
        if full.size != full.shape[axis] or full.size != view.shape[axis]:
            raise RefusedNode(f"its slope has shape {list(slope.shape)}: expected one value a channel")
        view, places = reader.build.with_features(view, [axis])
        if places is not None:
            raise RefusedNode("its channels are of several axes")
    t = view.tensor
    reader.put(node, view.on(reader.build.emit(Prelu, (t,), node.outputs[0], t.sides, t.features, layer, slope.size)))


@taken("Pow")
def power(reader: Reader, node: Node) -> None:
    """A constant exponent, one for all values."""
    exponent = node.weights(1, "exponent")
    if exponent.size != 1:
        raise RefusedNode("its exponent must be one for all values")
    view = grown(reader.view(node), exponent.ndim)
    reader.put(node, applied(reader, view, node.outputs[0], "power", exponent.item()))


@taken("Add", "Sub", "Mul", "Div", "Sum")
def both(reader: Reader, node: Node) -> None:
    """Two values, of which one may be a constant; a sum may have more."""
    hint = node.outputs[0]
    computed = [reader.is_computed(node, n) for n in range(len(node.inputs))]
    if node.kind == "Sum" and len(computed) != 2:
        total = None
        for n, own in sorted(enumerate(computed), key=lambda each: not each[1]):
            if total is None:
                total = reader.view(node, n)
            elif own:
                total = between(reader, total, reader.view(node, n), hint, False)
            else:
                total = with_constant(reader, total, reader.constant(node, n), hint, Add, node.source(n))
        assert total is not None
        reader.put(node, total)
        return
    product = node.kind in ("Mul", "Div")
    if all(computed):
        one, other = reader.view(node), reader.view(node, 1)
        small = reader.repeated.get(node.source(1))
        if small is not None and np.broadcast_shapes(small.shape, one.shape) == one.shape:
            other = small
        if node.kind == "Div":
            other = applied(reader, other, f"{hint}~inverse", "power", -1)
        reader.put(node, between(reader, one, other, hint, product, node.kind == "Sub"))
        return
    at = computed.index(True)
    view, value = reader.view(node, at), reader.constant(node, 1 - at, is_mask=node.kind in ("Add", "Sum"))
    if at and node.kind == "Sub":
        view = applied(reader, view, f"{hint}~negative", "affine", -1, 0)
    elif at and node.kind == "Div":
        view = applied(reader, view, f"{hint}~inverse", "power", -1)
    elif node.kind == "Sub":
        value = -value
    elif node.kind == "Div":
        value = 1 / value
    origin = node.source(1 - at)
    plain = node.kind in ("Add", "Mul")
    made = with_constant(reader, view, value, hint, Multiply if product else Add, origin, origin if plain else None)
    reader.put(node, made)


def grown(view: View, rank: int) -> View:
    return replace(view, axes=((),) * (rank - len(view.axes)) + view.axes)


def with_constant(
    reader: Reader,
    view: View,
    value: np.ndarray,
    hint: str,
    kind: type[Add] | type[Multiply],
    name: str,
    origin: str | None = None,
) -> View:
    shape = np.broadcast_shapes(view.shape, value.shape)
    view = grown(view, value.ndim)
    if shape != view.shape and all(
        mine == size for mine, size, own in zip(view.shape, shape, view.axes) if BATCH in own
    ):
        view = expanded(reader, view, shape, f"{hint}~repeated")
    if not np.isfinite(value).all():
        raise RefusedNode("divides by 0")
    if value.size == 1 and (not value.ndim or view.shape[-1] > 1):
        given = (value.item(), 0) if kind is Multiply else (1, value.item())
        return applied(reader, view, hint, "affine", *given)
    view, held = table(reader, view, value)
    t = view.tensor
    other = reader.build.parameter(held, name, origin)
    return view.on(reader.build.emit(kind, (t, other), hint, t.sides, t.features))


def table(reader: Reader, view: View, value: np.ndarray) -> tuple[View, np.ndarray]:
    """A constant as a parameter that meets a view's tensor; and the view, whose tensor may be another."""
    value = value.reshape((1,) * (len(view.axes) - value.ndim) + value.shape)
    for axis, (mine, size) in enumerate(zip(value.shape, view.shape)):
        if mine not in (1, size):
            raise RefusedNode(
                f"a constant of {list(value.shape)} makes {list(view.shape)} larger: only the network's values may"
            )
        if mine > 1 and BATCH in view.axes[axis] and view.batch > 1:
            before = view.axes[axis].index(BATCH)
            outer = view.extent(view.axes[axis][:before])
            seen = value.swapaxes(0, axis).reshape(outer, view.batch, -1)
            if not (seen == seen[:, :1]).all():
                raise RefusedNode("its constant differs from sample to sample")
            first = np.moveaxis(value, axis, 0).reshape(outer, view.batch, mine // outer // view.batch, -1)[:, 0]
            others = value.shape[:axis] + value.shape[axis + 1 :]
            value = np.moveaxis(first.reshape(-1, *others), 0, axis)
    view = fitted(reader, view)
    # An axis for each atom, in memory's order.
    order = view.flat(range(len(view.axes)))
    sizes = [
        view.sizes[atom] if value.shape[axis] > 1 else 1 for axis in range(len(view.axes)) for atom in view.inner(axis)
    ]
    found = value.reshape(sizes).transpose(np.argsort(order))
    shape: list[int] = []
    at = 0
    for group in dims(view):
        own = found.shape[at : at + len(group)]
        if all(size == 1 for size in own):
            shape.append(1)
        else:
            wanted = tuple(view.sizes[atom] for atom in group)
            found = np.broadcast_to(found, found.shape[:at] + wanted + found.shape[at + len(group) :])
            shape.append(view.extent(group))
        at += len(group)
    return view, np.ascontiguousarray(found.reshape(shape))


def dims(view: View) -> list[tuple[int, ...]]:
    """Atoms of each of a fitted view's sides, and of its features."""
    found, at = [], 0
    for size in view.tensor.shape:
        first = at
        while view.extent(range(first, at)) < size:
            at += 1
        found.append(tuple(range(first, at)))
    return found


def fitted(reader: Reader, view: View) -> View:
    """A view none of whose atoms reaches over the end of a side."""
    at = 0
    for size in view.tensor.shape:
        left = size
        while left > 1:
            own = view.sizes[at]
            if left % own:
                if own % left:
                    return reader.build.arranged(view, [(n,) for n in range(len(view.sizes))])
                view = view.split(at, (left, own // left))
                own = left
            left //= own
            at += 1
    return view


def between(reader: Reader, one: View, other: View, hint: str, product: bool, subtract: bool = False) -> View:
    """A sum, difference or product of two values that the network computes."""
    rank = max(len(one.axes), len(other.axes))
    one, other = grown(one, rank), grown(other, rank)
    full = np.broadcast_shapes(one.shape, other.shape)
    if full not in (one.shape, other.shape):
        one = expanded(reader, one, full, f"{hint}~repeated")
    turned = full != one.shape
    lead, small = (other, one) if turned else (one, other)
    if any((BATCH in a) != (BATCH in b) for a, b in zip(lead.axes, small.axes)):
        raise RefusedNode("its values have the samples in different axes")
    pair = common(lead, small)
    if pair is None:
        order = [n for n in range(rank) if lead.inner(n)]
        lead, small = (reader.build.in_order(v, [n for n in order if v.inner(n)]).merged() for v in (lead, small))
        pair = lead, small
    lead, small = pair
    lead = fitted(reader, lead)
    pair = common(lead, small)
    if pair is None:
        raise RefusedNode(f"{list(one.shape)} and {list(other.shape)}: their values lie too differently")
    lead, small = pair
    where = {a: b for n in range(rank) if small.inner(n) for a, b in zip(lead.inner(n), small.inner(n))}
    if any(len({atom in where for atom in group}) > 1 for group in dims(lead)):
        lead = reader.build.arranged(lead, [(n,) for n in range(len(lead.sizes))])
    groups = [tuple(where[atom] for atom in group if atom in where) for group in dims(lead)]
    met: Tensor = reader.build.arranged(small, groups).tensor
    i = (met, lead.tensor) if turned else (lead.tensor, met)
    t = lead.tensor
    if product:
        return lead.on(reader.build.emit(Multiply, i, hint, t.sides, t.features))
    return lead.on(reader.build.emit(Add, i, hint, t.sides, t.features, subtract))
