"""Nodes that choose between values."""

import numpy as np

from gradloom.models.files.onnx_file import RefusedNode
from gradloom.models.files.onnx_graph import Node

from ..operations import Add, Multiply
from ..rewriting.masks import MASKED, finite
from ..rewriting.views import View
from .elementwise import applied, between, with_constant
from .reader import Reader, taken

__all__: list[str] = []

#: Constants that a value does not change: masks of scores.
_FAR = -1e6


@taken("Greater", "Less", "GreaterOrEqual", "LessOrEqual")
def compared(reader: Reader, node: Node) -> None:
    """With a constant, one for all values: 1 where it holds, else 0."""
    at = int(reader.is_computed(node, 1))
    if reader.is_computed(node, 1 - at):
        raise RefusedNode("compares values that the network computes: not supported")
    value = node.weights(1 - at, "bound")
    if value.size != 1:
        raise RefusedNode("its bound must be one for all values")
    # Of a value less the bound, or the bound less it.
    sign = 1 if node.kind.startswith("Greater") != bool(at) else -1
    is_open = "Equal" not in node.kind
    sign = sign if is_open else -sign
    hint = node.outputs[0]
    view = applied(reader, reader.view(node, at), f"{hint}~less", "affine", sign, -sign * value.item())
    made = applied(reader, view, hint if is_open else f"{hint}~beyond", "step")
    reader.put(node, made if is_open else applied(reader, made, hint, "affine", -1, 1))


@taken("Where")
def where(reader: Reader, node: Node) -> None:
    """By a constant condition, or one that :func:`compared` has made."""
    hint, source = node.outputs[0], node.source(0)
    if reader.is_computed(node, 0):
        gate = reader.view(node)
        shares: list[View | np.ndarray] = [gate, applied(reader, gate, f"{hint}~else", "affine", -1, 1)]
    else:
        first = node.constant(0, "condition").astype(np.float64)
        shares = [first, 1 - first]
        mask = _masked(reader, node, first)
        if mask is not None:
            reader.put(node, mask)
            return
    parts: list[View | np.ndarray] = []
    for n, share in enumerate(shares, 1):
        parts.append(_times(reader, node, share, _value(reader, node, n), f"{hint}~part{n}"))
    one, other = sorted(parts, key=lambda each: isinstance(each, np.ndarray))
    if isinstance(one, np.ndarray):
        raise RefusedNode("chooses between constants: not supported")
    if isinstance(other, np.ndarray):
        reader.put(node, with_constant(reader, one, other, hint, Add, f"{source}~chosen"))
    else:
        reader.put(node, between(reader, one, other, hint, False))


def _value(reader: Reader, node: Node, at: int) -> View | np.ndarray:
    return reader.view(node, at) if reader.is_computed(node, at) else reader.constant(node, at)


def _times(
    reader: Reader, node: Node, share: View | np.ndarray, value: View | np.ndarray, hint: str
) -> View | np.ndarray:
    if isinstance(share, np.ndarray) and isinstance(value, np.ndarray):
        return share * value
    if isinstance(share, np.ndarray):
        assert isinstance(value, View)
        return with_constant(reader, value, share, hint, Multiply, f"{node.source(0)}~share")
    if isinstance(value, np.ndarray):
        return with_constant(reader, share, value, hint, Multiply, f"{hint}~value")
    return between(reader, value, share, hint, True)


def _masked(reader: Reader, node: Node, first: np.ndarray) -> View | None:
    """Scores of which some are far below all others: a sum."""
    computed = [reader.is_computed(node, n) for n in (1, 2)]
    if sum(computed) != 1:
        return None
    at = 1 + computed.index(True)
    keeps = first if at == 1 else 1 - first
    keeps, fill = np.broadcast_arrays(keeps, node.constant(3 - at, "value"))
    fill = fill[keeps == 0]
    if not fill.size or not fill.max() <= _FAR:
        return None
    value = finite(np.where(keeps > 0, 0.0, -np.inf)) if np.isneginf(fill).any() else np.where(keeps > 0, 0.0, MASKED)
    return with_constant(reader, reader.view(node, at), value, node.outputs[0], Add, f"{node.source(0)}~mask")
