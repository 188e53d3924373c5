"""Imports ONNX files by PyTorch's old and new exporters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt, prod
from pathlib import Path
from typing import Any

import numpy as np

from .files.onnx_file import RefusedNode, read_onnx
from .files.onnx_graph import Node, OnnxGraph
from .network import Conv, Dense, Network, PixelMap

__all__ = ["load_onnx", "load_pretrained", "shipped_networks"]

#: Elements of a layer's input or result at most; designs take less.
_MOST = 1 << 24
_NO_PADS = (0, 0, 0, 0)
#: Nodes that keep the elements of a sample and their order.
_LAYOUT = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
_RECURRENT = frozenset("LSTM GRU RNN Scan QuantLSTMCell DynamicQuantizeLSTM".split())
#: What to do about operators that are refused.
_HINTS = {
    "Clip": "(ReLU6 or a hard activation) is not supported: the machine's activation is ReLU alone; train the network "
    "with ReLU",
    "ArgMax": "is not supported: end the network with its logits",
}


def load_onnx(path: str | Path, *, input_shape: tuple[int, int, int] | None = None) -> Network:
    """The network in the file ``path``.

    Its external data are read too, where it has any.

    Add, Sub, Mul, Div and BatchNormalization are folded into the layer before them; before the first layer they become
    the network's ``pixel_map``. Dropout, Identity, and changes of the layout vanish. A Softmax or LogSoftmax at the end
    is left out, a Sigmoid behind one logit too: the loss is computed from the logits. A node that cannot become a part
    of a :class:`Network` is a :class:`ValueError` that names the node and its operator.

    The images are ``[channels, height, width]``, also where the file's own input is channels-last and a Transpose
    begins the network.

    Parameters
    ----------
    input_shape : ``(c, h, w)``
        Of the images, for a network whose input is flat (``[batch, n]``). By default the first convolution's; without
        one a square image of one channel where ``n`` is a square, else one row.
    """
    path = Path(path)
    model = read_onnx(path)
    try:
        with np.errstate(all="ignore"):  # what is not finite is refused by the layers
            return _Reader(model, path.stem, input_shape).network()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


@dataclass
class _Draft:
    """The layer being read.

    Later nodes add ReLU and pooling, or fold into its weights.
    """

    layer: Conv | Dense

    @property
    def linear(self) -> bool:
        return not self.layer.relu and getattr(self.layer, "pool", 1) == 1


class _Reader:
    """Walks a graph that is one chain.

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
        self.drafts: list[_Draft] = []
        self.pixel_map = PixelMap()
        self.order: np.ndarray | None = None
        self.pads: tuple[int, int, int, int] = _NO_PADS
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

    def network(self) -> Network:
        self.graph.each(self._node)
        if self.graph.outputs != [self.tensor] or not self.drafts:
            raise ValueError(f"output {self.graph.outputs[0]!r} is not computed from the input by any layer")
        if self.pads != _NO_PADS:
            raise ValueError(f"{self.label}: no Conv follows it: a Pad is supported right before one only")
        last = self.drafts[-1].layer
        if not isinstance(last, Dense) or last.relu:
            raise ValueError(
                f"{self.label}: the network ends here: its last layer gives the logits, it must be a Dense (Gemm or "
                "MatMul) without ReLU"
            )
        if self.given is not None and tuple(self.given) != self.image:
            raise ValueError(f"input_shape={tuple(self.given)}: the network takes images of {self.image}")
        layers, seen = [], set()
        for draft in self.drafts:
            name = draft.layer.name
            if name and name in seen:
                name = next(f"{name}_{i}" for i in range(2, len(self.drafts) + 2) if f"{name}_{i}" not in seen)
            seen.add(name)
            layers.append(replace(draft.layer, name=name))
        pixels = PixelMap(
            **{
                name: value if value.ndim == 0 else value.reshape(self.image)
                for name, value in (("scale", self.pixel_map.scale), ("shift", self.pixel_map.shift))
            }
        )
        c, h, w = self.image
        return Network(name=self.name, input_shape=(c, h, w), layers=tuple(layers), pixel_map=pixels)

    def _node(self, node: Node) -> None:
        handle = _HANDLERS.get(node.kind)
        if node.domain:
            raise RefusedNode(f"operators of {node.domain!r} are not supported; supported are {_SUPPORTED}")
        if handle is None:
            hint = _HINTS.get(node.kind, f"is not supported; supported are {_SUPPORTED}")
            raise RefusedNode(f"operator {node.kind} {hint}")
        moving = [name for name in filter(None, node.inputs) if name not in self.graph.constants]
        if moving != [self.tensor]:
            raise RefusedNode(
                f"it takes {', '.join(map(repr, moving)) or 'constants only'}, where the chain of layers "
                f"ends at {self.tensor!r}: branches are not supported"
            )
        if self.end and node.kind not in _LAYOUT:
            raise RefusedNode(f"it follows {self.end}: only changes of the shape are supported there")
        if self.pads != _NO_PADS and node.kind != "Conv":
            raise RefusedNode("it follows a Pad, which is supported right before a Conv only")
        handle(self, node)
        self.tensor, self.label = node.outputs[0], node.label
        if self.pads == _NO_PADS:
            self.shape = self._result(node)
            if prod(self.shape) != prod(self.own):
                raise RefusedNode(f"its result has shape {list(self.shape)}: the layer gives {list(self.own)}")

    def _result(self, node: Node) -> tuple[int, ...]:
        """Shape of a sample of a node's result."""
        shape = self.graph.shapes.get(node.outputs[0])
        if shape is None:
            raise RefusedNode("the shape of its result does not follow from the file: export it with fixed sizes")
        if shape[:1] != (self.batch,) or len(shape) < 2:
            sizes = [self.graph.open_sizes.get(size, size) for size in shape]
            raise RefusedNode(
                f"its result has shape {sizes} of an input {[self._batch_name, *self.shape]}: the first dimension must "
                "stay the batch"
            )
        return shape[1:]

    @property
    def _batch_name(self) -> int | str:
        return self.graph.open_sizes.get(self.batch, self.batch)

    def _data_first(self, node: Node) -> None:
        if node.inputs[0] != self.tensor:
            raise RefusedNode(f"its first input must be the layer before it, not {node.inputs[0]!r}")

    def _last(self, node: Node) -> _Draft:
        if not self.drafts:
            raise RefusedNode(f"{node.kind} before the first Conv or Gemm is not supported")
        return self.drafts[-1]

    def _in_image(self) -> None:
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
                f"its input has shape {[self._batch_name, *self.shape]}: expected [batch, channels, height, width]"
            )

    def _append(self, layer: Conv | Dense) -> None:
        self.own, self.order = layer.output_shape(self.own), None
        self.drafts.append(_Draft(layer))

    def _conv(self, node: Node) -> None:
        self._data_first(node)
        weight = node.weights(1)
        if weight.ndim != 4:
            raise RefusedNode(f"its weights have {weight.ndim} dimensions: only 2-D convolution (4) is supported")
        self._in_image()
        kernel = weight.shape[2:]
        if tuple(node.attribute("kernel_shape", kernel)) != kernel:
            raise RefusedNode(f"kernel_shape={node.attribute('kernel_shape')}: the weights are {list(kernel)}")
        _check_dilations(node)
        if node.attribute("group", 1) != 1:
            raise RefusedNode(f"group={node.attribute('group')}: only 1 is supported")
        stride = node.attribute("strides", [1, 1])
        top, left, bottom, right = self.pads
        sides = self.shape[1] + top + bottom, self.shape[2] + left + right
        more = _pads_of(node, sides, kernel, stride)
        self._append(
            Conv(
                weight=weight,
                bias=np.zeros(len(weight)) if node.optional(2) is None else node.weights(2, "bias"),
                stride=tuple(stride),
                pads=(top + more[0], left + more[1], bottom + more[2], right + more[3]),
                name=_layer_name(node),
            )
        )
        self.pads = _NO_PADS

    def _pad(self, node: Node) -> None:
        self._data_first(node)
        self._in_image()
        if (mode := node.attribute("mode", "constant")) != "constant":
            raise RefusedNode(f"mode={mode!r}: only constant is supported")
        value = node.attribute("value", 0.0) if node.optional(2) is None else node.constant(2, "value")
        if np.any(np.asarray(value) != 0):
            raise RefusedNode(f"it pads with {np.asarray(value).item():g}: only 0 is supported")
        pads = node.integers(1, "pads", "pads") or []
        axes = range(4) if node.optional(3) is None else [axis % 4 for axis in node.integers(3, "axes", "axes") or ()]
        before, after = [0] * 4, [0] * 4
        for axis, first, last in zip(axes, pads, pads[len(pads) // 2 :]):
            before[axis], after[axis] = first, last
        if any(before[:2] + after[:2]) or min(before + after) < 0:
            raise RefusedNode(f"pads={pads}: only zeros around the image are supported")
        self.pads = (before[2], before[3], after[2], after[3])

    def _batch_norm(self, node: Node) -> None:
        self._data_first(node)
        node.attribute("momentum")  # of training
        if node.attribute("training_mode", 0) or any(node.outputs[1:]):
            raise RefusedNode("it is in training mode: export the network in evaluation mode (model.eval())")
        parts = [node.weights(at, what) for at, what in enumerate(("scale", "bias", "mean", "variance"), 1)]
        if any(part.shape != self.shape[:1] for part in parts):
            raise RefusedNode(
                f"its parameters have shapes {[part.shape for part in parts]}: "
                f"{'the layer' if self.drafts else 'the input'} before it has {self.shape[0]} channels"
            )
        gamma, beta, mean, variance = (part.reshape(-1, *[1] * (len(self.shape) - 1)) for part in parts)
        variance = variance + node.attribute("epsilon", 1e-5)
        if (variance <= 0).any():
            raise RefusedNode(f"its variance is {parts[3].min()}: it must not be negative")
        scale = gamma / np.sqrt(variance)
        self._fold(scale, beta - mean * scale)

    def _fold(self, scale: np.ndarray | float, shift: np.ndarray | float) -> None:
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

    def _arithmetic(self, node: Node) -> None:
        """Reads Add, Sub, Mul or Div of the chain's end and a constant."""
        behind = node.inputs[0] == self.tensor
        constant = node.weights(1 if behind else 0, "constant")
        try:
            shape = np.broadcast_shapes(constant.shape, (1, *self.shape))
        except ValueError:
            shape = ()
        if shape != (1, *self.shape):
            raise RefusedNode(
                f"its constant has shape {list(constant.shape)}: it must broadcast to a sample of {list(self.shape)}"
            )
        value = np.broadcast_to(constant, shape)[0]
        if node.kind == "Div" and not behind:
            raise RefusedNode("it divides by its input: only a division by a constant is supported")
        if node.kind == "Div" and not value.all():
            raise RefusedNode("its constant holds 0: it must not, it divides the input")
        if node.kind in ("Add", "Sub"):
            sign = -1.0 if node.kind == "Sub" else 1.0
            self._fold(1.0 if behind else sign, value * (sign if behind else 1.0))
        else:
            self._fold(value if node.kind == "Mul" else 1 / value, 0.0)

    def _relu(self, node: Node) -> None:
        draft = self._last(node)
        draft.layer = replace(draft.layer, relu=True)  # after a max-pool it is the same as before it

    def _max_pool(self, node: Node) -> None:
        draft = self._last(node)
        if not isinstance(draft.layer, Conv) or len(self.own) != 3:
            raise RefusedNode("it does not follow a Conv: only then is it supported")
        self._in_image()
        kernel = node.attribute("kernel_shape")
        stride = node.attribute("strides", [1] * len(kernel))
        node.attribute("storage_order")  # of indices, which nobody takes
        if len(kernel) != 2 or kernel[0] != kernel[1]:
            raise RefusedNode(f"kernel_shape={kernel}: only square pools are supported")
        if stride != kernel:
            raise RefusedNode(
                f"strides={stride}: pools must not overlap or leave gaps, so the stride must be the kernel's {kernel}"
            )
        _check_dilations(node)
        if any(pads := _pads_of(node, self.shape[1:], kernel, stride)):
            raise RefusedNode(f"pads={list(pads)}: padded pools are not supported")
        k = kernel[0]
        c, h, w = self.shape
        if node.attribute("ceil_mode", 0) and (h % k or w % k):
            raise RefusedNode(f"ceil_mode=1 on {h}x{w}, which {k} does not divide: partial pools are not supported")
        if h < k or w < k:
            raise RefusedNode(f"kernel_shape={kernel} is larger than its input {h}x{w}")
        self.own = (c, h // k, w // k)
        draft.layer = replace(draft.layer, pool=draft.layer.pool * k)

    def _layout(self, node: Node) -> None:
        """Reads a node that keeps elements and their order."""
        self._data_first(node)
        for name in ("axis", "axes", "allowzero"):  # they say what the graph's shapes say
            node.attribute(name)
        if self.order is not None:
            self.order = self.order.reshape(self._result(node))

    def _transpose(self, node: Node) -> None:
        perm = node.attribute("perm") or list(range(len(self.shape), -1, -1))
        if perm[0] != 0:
            raise RefusedNode(f"perm={perm}: the first dimension must stay the batch")
        axes = [axis - 1 for axis in perm[1:]]
        order = np.arange(prod(self.shape)).reshape(self.shape) if self.order is None else self.order
        order = order.transpose(axes)
        self.order = None if (np.diff(order.reshape(-1)) == 1).all() else order

    def _dense(self, node: Node, weight: np.ndarray, bias: np.ndarray | None) -> None:
        if weight.ndim != 2:
            raise RefusedNode(f"its weights have {weight.ndim} dimensions: expected 2")
        if prod(self.shape[:-1]) != 1:
            raise RefusedNode(f"its input has shape {[self._batch_name, *self.shape]}: flatten it first")
        if weight.shape[1] != prod(self.shape):
            raise RefusedNode(
                f"its input has shape {[self._batch_name, *self.shape]}: its weights take {weight.shape[1]} elements"
            )
        if self.order is not None:
            graphs, weight = weight, np.empty_like(weight)
            weight[:, self.order.reshape(-1)] = graphs
        bias = np.zeros(1) if bias is None else bias
        try:
            row = np.broadcast_to(bias, (1, len(weight)))[0]
        except ValueError:
            raise RefusedNode(
                f"its bias has shape {list(bias.shape)}: expected one value for each of {len(weight)} outputs"
            ) from None
        self._append(Dense(weight=weight, bias=row, name=_layer_name(node)))

    def _gemm(self, node: Node) -> None:
        self._data_first(node)
        if node.attribute("transA", 0):
            raise RefusedNode("transA=1: a transposed input is not supported")
        weight = node.weights(1) * node.attribute("alpha", 1.0)
        beta = node.attribute("beta", 1.0)
        bias = None if node.optional(2) is None else node.weights(2, "bias") * beta
        self._dense(node, weight if node.attribute("transB", 0) else weight.T, bias)

    def _matmul(self, node: Node) -> None:
        self._data_first(node)
        self._dense(node, node.weights(1).T, None)

    def _softmax(self, node: Node) -> None:
        self._last(node)
        axis = node.attribute("axis", -1) % (len(self.shape) + 1)
        if axis == 0 or self.shape[axis - 1] != prod(self.shape):
            raise RefusedNode(
                f"axis={node.attribute('axis', -1)} of an input {[self._batch_name, *self.shape]}: it is supported "
                "over the classes only"
            )
        if prod(self.shape) == 1:
            raise RefusedNode("it takes one logit, of which it is the same for every image: use a Sigmoid")
        self.end = node.label

    def _sigmoid(self, node: Node) -> None:
        self._last(node)
        if prod(self.shape) != 1:
            raise RefusedNode(
                "it is supported behind one logit at the end only: of several it gives labels that do not exclude each "
                "other, and the loss is of one label an image"
            )
        self.end = node.label


_HANDLERS: Mapping[str, Callable[[_Reader, Node], None]] = {
    "Conv": _Reader._conv,
    "Pad": _Reader._pad,
    "BatchNormalization": _Reader._batch_norm,
    "Relu": _Reader._relu,
    "MaxPool": _Reader._max_pool,
    "Gemm": _Reader._gemm,
    "MatMul": _Reader._matmul,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _Reader._arithmetic),
    **dict.fromkeys(_LAYOUT, _Reader._layout),
    "Transpose": _Reader._transpose,
    "Softmax": _Reader._softmax,
    "LogSoftmax": _Reader._softmax,
    "Sigmoid": _Reader._sigmoid,
}
_SUPPORTED = ", ".join((*_HANDLERS, "Identity", "Dropout"))


def _is_recurrent(proto: Any) -> bool:
    """Whether a node, or one in a graph within it, is recurrent."""
    inner = [each for attribute in proto.attribute for each in (attribute.g, *attribute.graphs)]
    return proto.op_type in _RECURRENT or any(_is_recurrent(each) for graph in inner for each in graph.node)


def _check_dilations(node: Node) -> None:
    dilations = node.attribute("dilations", [1, 1])
    if any(each != 1 for each in dilations):
        raise RefusedNode(f"dilations={dilations}: only 1 is supported")


def _layer_name(node: Node) -> str:
    """Name of a layer by its weight or its node."""
    weight = node.source(1)
    if weight.endswith(".weight"):
        return weight.removesuffix(".weight")
    parts = node.proto.name.strip("/").split("/")
    if len(parts) > 1:  # "/features/0/Conv": the old exporter's path of modules
        return ".".join(parts[:-1])
    return ""


def _pads_of(
    node: Node, sides: Sequence[int], kernel: Sequence[int], stride: Sequence[int]
) -> tuple[int, int, int, int]:
    """Pads of a convolution or a pool: above, left, below, right.

    ``sides``: height and width of its input.
    """
    auto, pads = node.attribute("auto_pad", "NOTSET"), node.attribute("pads", [0, 0, 0, 0])
    if len(pads) != 4 or min(pads) < 0:
        raise RefusedNode(f"pads={pads}: expected 4 values of at least 0")
    if auto == "NOTSET":
        top, left, bottom, right = pads
        return (top, left, bottom, right)
    if any(pads):
        raise RefusedNode(f"auto_pad={auto!r} and pads={pads}: one of them must be left out")
    if auto == "VALID":
        return _NO_PADS
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise RefusedNode(f"auto_pad={auto!r}: expected NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    first, second = [], []
    for side, k, s in zip(sides, kernel, stride):
        total = max((-(-side // s) - 1) * s + k - side, 0)
        small, large = total // 2, total - total // 2
        first.append(small if auto == "SAME_UPPER" else large)
        second.append(large if auto == "SAME_UPPER" else small)
    return (first[0], first[1], second[0], second[1])


def shipped_networks() -> dict[str, Path]:
    """Files of the base networks in the package, by name."""
    return {name: Path(__file__).parent / "data" / f"{name}.onnx" for name in ("lenet5", "digits")}


def load_pretrained(name: str = "lenet5") -> Network:
    """A base network in the package, trained on upright digits.

    It is LeNet-5, or ``digits`` for images of 8 x 8.
    """
    return load_onnx(shipped_networks()[name])
