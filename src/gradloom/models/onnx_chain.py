"""A chain of layers as it is read from an ONNX graph."""

from dataclasses import dataclass, replace
from math import isqrt, prod
from typing import Any

import numpy as np

from .files.onnx_file import RefusedNode
from .files.onnx_graph import Node, OnnxGraph
from .network import ConvLayer, DenseLayer, PixelMap

__all__ = ["NO_PADS", "Chain", "LayerDraft"]

#: Elements of a layer's input or result at most; designs take less.
_MOST = 1 << 24
#: Pads of an operator that pads nothing: above, left, below, right.
NO_PADS = (0, 0, 0, 0)
_RECURRENT = frozenset("LSTM GRU RNN Scan QuantLSTMCell DynamicQuantizeLSTM".split())


@dataclass
class LayerDraft:
    """The layer being read.

    Later nodes add ReLU and pooling, or fold into its weights.
    """

    layer: ConvLayer | DenseLayer

    @property
    def linear(self) -> bool:
        """Whether later nodes may still fold into its weights."""
        return not self.layer.relu and getattr(self.layer, "pool", 1) == 1


class Chain:
    """The layers of a graph that is one chain, as far as they are read.

    Attributes
    ----------
    tensor : str
        The chain's end, a value of the graph.
    asked, shape : tuple of int
        Shapes of a sample of the input and of ``tensor``.
    own : tuple of int
        Shape of the same sample in the network's order of elements, ``(c, h, w)`` or ``(outputs,)``.
    order : array of int or None
        Index into the network's elements, for each of the graph's; None where both have the same order.
    pads : tuple of int
        Of a Pad that waits for its convolution.
    end : str
        Label of the node that ended the logits; "" before it.
    """

    def __init__(self, model: Any, name: str, input_shape: tuple[int, int, int] | None):
        self.graph = OnnxGraph(model)
        self.name, self.given = name, input_shape
        self.drafts: list[LayerDraft] = []
        self.pixel_map = PixelMap()
        self.order: np.ndarray | None = None
        self.pads: tuple[int, int, int, int] = NO_PADS
        self.end = self.label = ""
        for node in self.graph.nodes:
            if _is_recurrent(node.proto):
                raise ValueError(
                    f"{node.label}: it is of a recurrent network: gradloom infer takes one without a preset, gradloom "
                    "finetune with a preset of recurrent networks, such as lstm-kv260"
                )
        self._input()

    def _input(self) -> None:
        read = {name for node in self.graph.nodes for name in node.inputs}
        inputs = [each for each in self.graph.inputs if each.name in read] or self.graph.inputs
        for what, names in (("inputs", [each.name for each in inputs]), ("outputs", self.graph.outputs)):
            if len(names) != 1:
                listed = f" ({', '.join(map(repr, names[:4]))})" if names else ""
                raise ValueError(f"the graph has {len(names)} {what}{listed}: expected one")
        self.tensor, sizes = inputs[0].name, list(inputs[0].sizes)
        if not 2 <= len(sizes) <= 4 or None in sizes[1:]:
            raise ValueError(
                f"input {self.tensor!r} has shape {sizes}: expected [batch, channels, height, width], "
                "all but the batch fixed"
            )
        self.batch, *rest = self.graph.shapes[self.tensor]
        self.shape = self.asked = tuple(rest)
        n = prod(self.shape)
        if n > _MOST:
            raise ValueError(f"input {self.tensor!r} has {n:,} elements a sample: at most {_MOST:,}")
        if len(self.shape) == 3:
            image = self.shape
        elif len(self.shape) == 2:
            image = (1, *self.shape)
        elif self.given is not None:
            image = self.given
        else:
            image = (1, isqrt(n), isqrt(n)) if isqrt(n) ** 2 == n else (1, 1, n)
        if prod(image) != n:
            raise ValueError(f"input_shape={tuple(image)}: the model's input holds {rest}")
        self.own = tuple(int(side) for side in image)
        self.image = self.own

    def result(self, node: Node) -> tuple[int, ...]:
        """Shape of a sample of a node's result."""
        shape = self.graph.shapes.get(node.outputs[0])
        if shape is None:
            raise RefusedNode("the shape of its result does not follow from the file: export it with fixed sizes")
        if shape[:1] != (self.batch,) or len(shape) < 2:
            sizes = [self.graph.open_sizes.get(size, size) for size in shape]
            raise RefusedNode(
                f"its result has shape {sizes} of an input {[self.batch_name, *self.shape]}: the first dimension must "
                "stay the batch"
            )
        return shape[1:]

    @property
    def batch_name(self) -> int | str:
        """The batch as the file names it, or its size."""
        return self.graph.open_sizes.get(self.batch, self.batch)

    def data_first(self, node: Node) -> None:
        """Refuses a node whose first input is not the chain's end."""
        if node.inputs[0] != self.tensor:
            raise RefusedNode(f"its first input must be the layer before it, not {node.inputs[0]!r}")

    def last(self, node: Node) -> LayerDraft:
        """The layer that a node belongs to."""
        if not self.drafts:
            raise RefusedNode(f"{node.kind} before the first Conv or Gemm is not supported")
        return self.drafts[-1]

    def in_image(self) -> None:
        """Refuses a sample that is not an image in the network's order.

        Before the first layer, the sample's shape becomes the image's, also where the graph's input is channels-last.
        """
        if not self.drafts and len(self.shape) == 3:
            if self.order is not None and len(self.asked) == 3:
                first = np.arange(prod(self.asked)).reshape(self.asked).transpose(2, 0, 1)
                if np.array_equal(self.order, first):
                    pixels = (self.pixel_map.scale, self.pixel_map.shift)
                    scale, shift = (each if each.ndim == 0 else each[first.reshape(-1)] for each in pixels)
                    self.pixel_map, self.order = PixelMap(scale=scale, shift=shift), None
            if self.order is None:
                self.own = self.image = self.shape
        if self.order is not None:
            raise RefusedNode(
                "its input's axes are exchanged: channels last is supported where the network begins with a Transpose "
                "to channels first"
            )
        if len(self.shape) != 3 or self.shape != self.own:
            raise RefusedNode(
                f"its input has shape {[self.batch_name, *self.shape]}: expected [batch, channels, height, width]"
            )

    def append(self, layer: ConvLayer | DenseLayer) -> None:
        """Begins a layer behind the others."""
        self.own, self.order = layer.output_shape(self.own), None
        self.drafts.append(LayerDraft(layer))

    def fold(self, scale: np.ndarray | float, shift: np.ndarray | float) -> None:
        """Puts ``scale * x + shift`` into the layer before it.

        Before the first layer, into the map of the pixels. Both broadcast to a sample.
        """
        pair = [np.broadcast_to(each, self.shape).reshape(-1) for each in (scale, shift)]
        if self.order is not None:
            for at, each in enumerate(pair):
                pair[at] = np.empty_like(each)
                pair[at][self.order.reshape(-1)] = each
        if not self.drafts:
            self.pixel_map = self.pixel_map.then(*pair)
            return
        draft = self.drafts[-1]
        if not draft.linear:
            raise RefusedNode(
                "it follows a ReLU or a pool: it can only be folded into a Conv or Gemm right before it, or "
                "into the input"
            )
        layer = draft.layer
        rows = [each.reshape(layer.outputs, -1) for each in pair]
        if any((each != each[:, :1]).any() for each in rows):
            raise RefusedNode("its constant differs within a channel: one value a channel is supported behind a Conv")
        scale, shift = (each[:, 0] for each in rows)
        weight = layer.weight * scale.reshape(-1, *[1] * (layer.weight.ndim - 1))
        draft.layer = replace(layer, weight=weight, bias=layer.bias * scale + shift)


def _is_recurrent(proto: Any) -> bool:
    """Whether a node, or one in a graph within it, is recurrent."""
    inner = [each for attribute in proto.attribute for each in (attribute.g, *attribute.graphs)]
    return proto.op_type in _RECURRENT or any(_is_recurrent(each) for graph in inner for each in graph.node)
