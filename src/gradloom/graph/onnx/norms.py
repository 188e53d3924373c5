"""Nodes that normalise. What is written out in several nodes gets its name later, in the list."""

import numpy as np

from gradloom.models.files.onnx_file import RefusedNode
from gradloom.models.files.onnx_graph import Node

from ..operations import Add, Multiply, Norm
from ..rewriting.views import BATCH, View
from .elementwise import table
from .reader import Reader, taken
from .shapes import axis_of

__all__: list[str] = []


@taken("BatchNormalization")
def batch_norm(reader: Reader, node: Node) -> None:
    """A factor and a sum a channel; the list folds them into the layer before, if there is one."""
    view = reader.view(node)
    if node.attribute("training_mode", 0):
        raise RefusedNode("training_mode=1: export the network in evaluation mode (model.eval())")
    for name in ("momentum", "spatial"):
        node.attribute(name)
    gain, bias, mean, variance = (_of_channels(node, n, view) for n in range(1, 5))
    if (variance + node.attribute("epsilon", 1e-5) <= 0).any():
        raise RefusedNode("its variance is below 0")
    scale = gain / np.sqrt(variance + node.attribute("epsilon", 1e-5))
    shape = (-1, *(1 for _ in view.axes[2:]))
    for value, kind, part in ((scale, Multiply, 1), (bias - mean * scale, Add, 2)):
        view, held = table(reader, view, value.reshape(shape))
        t = view.tensor
        other = reader.build.parameter(held, node.source(part))
        view = view.on(reader.build.emit(kind, (t, other), node.outputs[0], t.sides, t.features))
    reader.put(node, view)


def _of_channels(node: Node, at: int, view: View, groups: int | None = None) -> np.ndarray:
    """Weights of the channels, or of ``groups`` of them."""
    found, channels = node.weights(at), view.shape[1]
    if found.shape not in ((channels,), (groups,)):
        raise RefusedNode(f"its input {node.source(at)!r} has shape {list(found.shape)}: must be [{channels}]")
    return found


def normed(
    reader: Reader,
    view: View,
    node: Node,
    gain: np.ndarray | None,
    bias: np.ndarray | None,
    names: tuple[str | None, str | None],
    **given: object,
) -> View:
    """A norm of the view's tensor."""
    t = view.tensor
    layer = reader.build.layer(names, node.name, (gain, bias))
    o = reader.build.emit(
        Norm, (t,), node.outputs[0], t.sides, t.features, layer, gain=gain is not None, bias=bias is not None, **given
    )
    return view.on(o)


@taken(
    "LayerNormalization",
    "RMSNormalization",
    "com.microsoft:LayerNormalization",
    "com.microsoft:SimplifiedLayerNormalization",
)
def layer_norm(reader: Reader, node: Node) -> None:
    """Over the last axes."""
    view = reader.view(node)
    if any(node.outputs[1:]):
        raise RefusedNode("its mean or deviation is used: not supported")
    node.attribute("stash_type")
    axes = range(axis_of(node.attribute("axis", -1), view), len(view.axes))
    if any(BATCH in view.axes[n] for n in axes):
        raise RefusedNode("is over the samples: not supported")
    gain = node.weights(1) if node.optional(1) is not None else None
    bias = node.weights(2) if node.optional(2) is not None else None
    view, places = reader.build.with_features(view, axes)
    shape = [view.shape[n] for n in axes]
    values = [None if each is None else np.broadcast_to(each, shape).ravel() for each in (gain, bias)]
    if places is not None:
        values = [None if each is None else each[places] for each in values]
    reader.put(
        node,
        normed(
            reader,
            view,
            node,
            values[0],
            values[1],
            (node.optional(1), node.optional(2)),
            eps=float(node.attribute("epsilon", 1e-5)),
            centred=node.kind == "LayerNormalization",
        ),
    )


@taken("InstanceNormalization")
def instance_norm(reader: Reader, node: Node) -> None:
    """A group for each entry of axis 1: a channel, or several channels where the file has made them one axis."""
    view = reader.view(node)
    gain, bias = (_of_channels(node, n, view) for n in (1, 2))
    reader.alone(view)
    kept, features = view.inner(1), view.features
    if not (kept and features and kept == features[: len(kept)]):
        view = reader.build.in_order(view, [*range(2, len(view.axes)), 1])
    groups = len(gain)
    per = view.tensor.features // groups
    none = bool((gain == 1).all() and (bias == 0).all() and per > 1)
    values = (None, None) if none else (gain.repeat(per), bias.repeat(per))
    names = (None, None) if none else (node.source(1), node.source(2))
    eps = float(node.attribute("epsilon", 1e-5))
    reader.put(node, normed(reader, view, node, values[0], values[1], names, eps=eps, over_rows=True, groups=groups))


@taken("GroupNormalization")
def group_norm(reader: Reader, node: Node) -> None:
    """Gains a channel, or before opset 21 a group."""
    view = reader.channels_last(reader.view(node))
    groups, features = node.attribute("num_groups"), view.tensor.features
    node.attribute("stash_type")
    if groups < 1 or features % groups:
        raise RefusedNode(f"num_groups={groups}: must divide {features} channels")
    gain, bias = (_of_channels(node, n, reader.view(node), groups) for n in (1, 2))
    gain, bias = (each if len(each) == features else each.repeat(features // groups) for each in (gain, bias))
    eps = float(node.attribute("epsilon", 1e-5))
    names = (node.source(1), node.source(2))
    reader.put(node, normed(reader, view, node, gain, bias, names, eps=eps, over_rows=True, groups=groups))
