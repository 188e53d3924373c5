"""Nodes that multiply matrices."""

from dataclasses import replace

import numpy as np

from gradloom.models.files.onnx_file import RefusedNode
from gradloom.models.files.onnx_graph import Node

from ..operations import Linear, MatMul, Softmax
from ..rewriting.views import BATCH, View
from .elementwise import applied
from .reader import Reader, taken
from .shapes import axis_of

__all__: list[str] = []


def linear(
    reader: Reader,
    view: View,
    weight: np.ndarray,
    bias: np.ndarray | None,
    node: Node,
    names: tuple[str | None, str | None],
) -> View:
    """``x W' + bias`` of the last axis; ``weight [outputs, inputs]``."""
    if weight.ndim != 2 or weight.shape[1] != view.shape[-1]:
        raise RefusedNode(f"its weights have shape {list(weight.shape)}: expected {view.shape[-1]} inputs")
    view, places = reader.build.with_features(view, [len(view.axes) - 1])
    if places is not None:
        weight = weight[:, places]
    layer = reader.build.layer(names, node.name, (weight, bias))
    count = len(weight)
    o = reader.build.emit(
        Linear, (view.tensor,), node.outputs[0], view.tensor.sides, count, layer, bias=bias is not None
    )
    return _last(view, o, count)


def _last(view: View, tensor: object, count: int) -> View:
    """The view whose last axis, which is the features, has another size now."""
    atoms = view.inner(len(view.axes) - 1)
    sizes = (*view.sizes[: len(view.sizes) - len(atoms)], *([count] if count > 1 else []))
    last = (len(sizes) - 1,) if count > 1 else ()
    return View(tensor, sizes, (*view.axes[:-1], last), view.batch)  # type: ignore[arg-type]


@taken("Gemm")
def gemm(reader: Reader, node: Node) -> None:
    """With constant weights and bias."""
    view = reader.view(node)
    if node.attribute("transA"):
        raise RefusedNode("transA=1: not supported")
    weight = node.weights(1) * node.attribute("alpha", 1.0)
    weight = weight if node.attribute("transB") else weight.T
    bias = node.weights(2) * node.attribute("beta", 1.0) if node.optional(2) is not None else None
    node.attribute("beta")
    if bias is not None:
        if bias.size != 1 and (bias.size != len(weight) or bias.shape[-1] != len(weight)):
            raise RefusedNode(f"its bias has shape {list(bias.shape)}: expected {len(weight)} values")
        bias = np.broadcast_to(bias.ravel(), len(weight)).copy()
    reader.put(node, linear(reader, view, weight, bias, node, (node.source(1), node.optional(2))))


@taken("MatMul")
def matmul(reader: Reader, node: Node) -> None:
    """With constant weights a linear layer, else products of two values."""
    if reader.is_computed(node, 0) and reader.is_computed(node, 1):
        reader.put(node, product(reader, reader.view(node), reader.view(node, 1), node.outputs[0]))
        return
    at = int(reader.is_computed(node, 1))
    view, weight = reader.view(node, at), node.weights(1 - at)
    if weight.ndim < 2 or weight.size != np.prod(weight.shape[-2:]) or weight.ndim > len(view.axes):
        raise RefusedNode(f"its weights have shape {list(weight.shape)}: must be a matrix")
    weight = weight.reshape(weight.shape[-2:])
    order = [*range(len(view.axes) - 2), len(view.axes) - 1, len(view.axes) - 2]
    names = (node.source(1 - at), None)
    if at:
        # W x is (x' W')'.
        reader.put(node, linear(reader, view.moved(order), weight, None, node, names).moved(order))
    else:
        reader.put(node, linear(reader, view, weight.T, None, node, names))


@taken("Einsum")
def einsum(reader: Reader, node: Node) -> None:
    """What a MatMul computes between axes in another order."""
    said = node.attribute("equation").replace(" ", "")
    left, _, out = said.partition("->")
    parts = left.split(",")
    letters = [*parts, out]
    if len(parts) != 2 or not out or any("." in each or len(set(each)) < len(each) for each in letters):
        raise RefusedNode(f"equation {said!r}: must be of two values, of letters, with a result")
    computed = [reader.is_computed(node, n) for n in (0, 1)]
    ranks = [len(reader.view(node, n).axes) if computed[n] else node.weights(n).ndim for n in (0, 1)]
    if ranks != [len(each) for each in parts]:
        raise RefusedNode(f"equation {said!r}: its values have {ranks} axes")
    turned = not computed[0]
    one, other = parts[::-1] if turned else parts
    inner = [each for each in one if each in other and each not in out]
    free = [each for each in other if each not in one]
    alike = [each for each in one if each in other and each in out]
    own = [each for each in one if each not in other]
    if len(inner) != 1 or set(out) != {*alike, *own, *free} or len(free) > 1 or (all(computed) and len(own) > 1):
        raise RefusedNode(f"equation {said!r}: is no product of matrices; write it as a MatMul")
    if not all(computed):
        if alike:
            raise RefusedNode(f"equation {said!r}: has a matrix for each {''.join(alike)}; write it as a MatMul")
        view, weight = reader.view(node, int(turned)), node.weights(1 - int(turned))
        matrix = weight.transpose([other.index(each) for each in (*free, *inner)]).reshape(
            -1, weight.shape[other.index(inner[0])]
        )
        made = linear(
            reader,
            view.moved([one.index(each) for each in (*own, *inner)]),
            matrix,
            None,
            node,
            (node.source(1 - int(turned)), None),
        )
        order = [*own, *(free or [""])]
    else:
        first, second = reader.view(node, int(turned)), reader.view(node, 1 - int(turned))
        order = [*alike, *(own or [""]), *(free or [""])]
        a = _seen(first, one, [*alike, *(own or [""]), *inner])
        b = _seen(second, other, [*alike, *inner, *(free or [""])])
        made = product(reader, a, b, node.outputs[0])
    made = replace(made, axes=tuple(own for own, each in zip(made.axes, order) if each))
    left_over = [each for each in order if each]
    reader.put(node, made.moved([left_over.index(each) for each in out]))


def _seen(view: View, letters: str, order: list[str]) -> View:
    """Axes in an order of letters, "" is a new one of 1."""
    return replace(view, axes=tuple(view.axes[letters.index(each)] if each else () for each in order))


def product(reader: Reader, one: View, other: View, hint: str) -> View:
    """Products of matrices, for all of the axes before."""
    rank = max(len(one.axes), len(other.axes))
    one, other = (replace(v, axes=((),) * (rank - len(v.axes)) + v.axes) for v in (one, other))
    lead = range(rank - 2)
    if any(one.shape[n] != other.shape[n] or (BATCH in one.axes[n]) != (BATCH in other.axes[n]) for n in lead):
        raise RefusedNode(f"products of {list(one.shape)} and {list(other.shape)}: their first axes must be the same")
    if any(BATCH in v.axes[n] for v in (one, other) for n in (rank - 2, rank - 1)):
        raise RefusedNode("products over the samples: not supported")
    if one.shape[-1] != other.shape[-2]:
        raise RefusedNode(f"products of {list(one.shape)} and {list(other.shape)}: have sums of unlike lengths")
    before = [n for n in lead if one.inner(n)]
    a = reader.build.in_order(one, [*before, rank - 2, rank - 1])
    inner = other.flat([rank - 1])
    # What lies in memory with the sum's axis last is taken so.
    turned = other.flat([*before, rank - 1, rank - 2]) == tuple(range(len(other.sizes))) and bool(inner)
    b = reader.build.in_order(other, [*before, rank - 1, rank - 2] if turned else [*before, rank - 2, rank - 1])
    sides, count = a.tensor.sides, other.shape[-1]
    o = reader.build.emit(MatMul, (a.tensor, b.tensor), hint, sides, count, turned)
    return _last(a, o, count)


@taken("Softmax", "LogSoftmax")
def softmax(reader: Reader, node: Node) -> None:
    """Over one axis; before opset 13 over all from it on."""
    view = reader.view(node)
    old = _version(reader) < 13
    axis = axis_of(node.attribute("axis", 1 if old else -1), view)
    axes = range(axis, len(view.axes)) if old else [axis]
    if any(BATCH in view.axes[n] for n in axes):
        raise RefusedNode("is over the samples: not supported")
    view, _ = reader.build.with_features(view, axes)
    t = view.tensor
    o = reader.build.emit(Softmax, (t,), node.outputs[0], t.sides, t.features, node.kind == "LogSoftmax")
    reader.put(node, view.on(o))


def _version(reader: Reader) -> int:
    return max(v for domain, v in reader.graph._opsets.items() if domain in ("", "ai.onnx"))


@taken("Attention")
def attention(reader: Reader, node: Node) -> None:
    """ONNX' own, written out: heads in an axis or side by side; no mask, no cache."""
    for at, what in ((3, "a mask"), (4, "a cache"), (5, "a cache")):
        if node.optional(at) is not None:
            raise RefusedNode(f"has {what}: not supported")
    for name, plain in (("is_causal", 0), ("softcap", 0.0), ("qk_matmul_output_mode", 0)):
        if node.attribute(name, plain) not in (plain, None):
            raise RefusedNode(f"attribute {name}={node.attribute(name)!r} is not supported")
    node.attribute("softmax_precision")
    q, k, v = (reader.view(node, n) for n in range(3))
    counts = (node.attribute("q_num_heads"), *[node.attribute("kv_num_heads")] * 2)
    flat = len(q.axes) == 3
    if flat:
        split = []
        for each, heads in zip((q, k, v), counts):
            b, t, d = each.shape
            found = each.reshaped((b, t, heads, d // heads))
            if found is None:
                raise RefusedNode(f"{d} features do not split into {heads} heads")
            split.append(found.moved([0, 2, 1, 3]))
        q, k, v = split
    scale = node.attribute("scale") or q.shape[-1] ** -0.5
    hint = node.outputs[0]
    scores = product(reader, q, k.moved([0, 1, 3, 2]), f"{hint}~scores")
    scores = applied(reader, scores, f"{hint}~scaled", "affine", scale, 0)
    held = scores.tensor
    shares = scores.on(reader.build.emit(Softmax, (held,), f"{hint}~shares", held.sides, held.features))
    made = product(reader, shares, v, hint)
    if flat:
        joined = made.moved([0, 2, 1, 3]).reshaped(reader.shape(node))
        if joined is None:
            raise RefusedNode("its heads do not lie side by side")
        made = joined
    reader.put(node, made)
