"""Imports ONNX files by PyTorch's old and new exporters."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isqrt, prod
from pathlib import Path
from typing import Any

import numpy as np

from .network import Conv, Dense, Network, PixelMap
from .onnx_file import FOLDED, Constants, RefusedNode, attributes_of, layer_name, pads_of, read_onnx, vector_of

__all__ = ["load_onnx", "load_pretrained"]

_LAYERS = (
    "Conv",
    "BatchNormalization",
    "Relu",
    "MaxPool",
    "Flatten",
    "Reshape",
    "Gemm",
    "MatMul",
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Identity",
    "Dropout",
    "Constant",
)


def load_onnx(path: str | Path, *, input_shape: tuple[int, int, int] | None = None) -> Network:
    """The network in the file ``path``.

    Its external data are read too, where it has any.

    BatchNormalization is folded into the layer before it; Dropout and Identity vanish. Add, Sub, Mul, Div and
    BatchNormalization of the input alone become the network's ``pixel_map``. A node that cannot become a part of a
    :class:`Network` is a :class:`ValueError` that names the node and its operator.

    Parameters
    ----------
    input_shape : ``(c, h, w)``
        Of the images, for a network whose input is flat (``[batch, n]``). By default a square image
        of one channel where ``n`` is a square, else one row.
    """
    path = Path(path)
    model = read_onnx(path)
    try:
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

    ``tensor`` is the name of the chain's end, ``shape`` its shape.
    """

    def __init__(self, model: Any, name: str, input_shape: tuple[int, int, int] | None):
        self.graph = model.graph
        self.name = name
        self.constants = Constants(model)
        self._input(input_shape)
        self.drafts: list[_Draft] = []
        self.pixel_map = PixelMap()
        self.flat = len(self.shape) == 1

    def _input(self, given: tuple[int, int, int] | None) -> None:
        inputs = [i for i in self.graph.input if i.name not in self.constants]
        if len(inputs) != 1 or len(self.graph.output) != 1:
            raise ValueError(
                f"the graph has {len(inputs)} inputs and {len(self.graph.output)} outputs: expected one of each"
            )
        self.tensor = inputs[0].name
        dims = inputs[0].type.tensor_type.shape.dim
        sizes = [d.dim_value if d.HasField("dim_value") else None for d in dims]
        if not 2 <= len(sizes) <= 4 or any(not n or n < 1 for n in sizes[1:]):
            raise ValueError(
                f"input {self.tensor!r} has shape {sizes}: expected [batch, channels, height, width], "
                "all but the batch fixed"
            )
        self.batch = sizes[0] or 1
        self.shape = tuple(int(n) for n in sizes[1:] if n)
        if len(self.shape) == 3:
            image = self.shape
        elif len(self.shape) == 2:
            image = (1, *self.shape)
        elif given is not None:
            image = given
        else:
            n = self.shape[0]
            image = (1, isqrt(n), isqrt(n)) if isqrt(n) ** 2 == n else (1, 1, n)
        if given is not None and tuple(given) != image or prod(image) != prod(self.shape):
            raise ValueError(f"input_shape={tuple(given or ())}: the model's input holds {list(self.shape)}")
        channels, height, width = image
        self.image = (int(channels), int(height), int(width))

    def network(self) -> Network:
        for node in self.graph.node:
            label = f"node {node.name or (node.output[0] if node.output else '?')!r} ({node.op_type})"
            try:
                self._node(node)
            except ValueError as error:
                raise ValueError(f"{label}: {error}") from None
        output = self.graph.output[0].name
        if output != self.tensor:
            raise ValueError(f"output {output!r} is not the end of the chain of layers ({self.tensor!r})")
        layers, seen = [], set()
        for draft in self.drafts:
            name = draft.layer.name
            if name and name in seen:
                name = next(f"{name}_{i}" for i in range(2, len(self.drafts) + 2) if f"{name}_{i}" not in seen)
            seen.add(name)
            layers.append(replace(draft.layer, name=name))
        return Network(name=self.name, input_shape=self.image, layers=tuple(layers), pixel_map=self.pixel_map)

    def _node(self, node: Any) -> None:
        if node.domain not in ("", "ai.onnx"):
            raise RefusedNode(f"operators of {node.domain!r} are not supported; supported are {', '.join(_LAYERS)}")
        names = [name for name in node.input if name]
        of_shape = node.op_type == "Shape" and names == [self.tensor]
        if node.op_type in FOLDED and (of_shape or all(name in self.constants for name in names)):
            # The shape of the chain's end is known; what it holds does not matter.
            known = {self.tensor: np.empty((self.batch, *self.shape), np.float32)} if of_shape else {}
            self.constants.fold(node, known)
            return
        handlers: dict[str, Callable[[Any, dict[str, Any]], None]] = {
            "Conv": self._conv,
            "BatchNormalization": self._batch_norm,
            "Relu": self._relu,
            "MaxPool": self._max_pool,
            "Flatten": self._flatten,
            "Reshape": self._reshape,
            "Gemm": self._gemm,
            "MatMul": self._matmul,
            "Add": self._add,
            "Sub": self._scaled,
            "Mul": self._scaled,
            "Div": self._scaled,
            "Identity": self._identity,
            "Dropout": self._dropout,
        }
        if node.op_type not in handlers:
            hint = (
                "; export the network without it: the loss is computed from the logits"
                if node.op_type in ("Softmax", "LogSoftmax")
                else ""
            )
            raise RefusedNode(
                f"operator {node.op_type} is not supported{hint or '; supported are ' + ', '.join(_LAYERS)}"
            )
        moving = [name for name in names if name not in self.constants]
        if moving != [self.tensor]:
            raise RefusedNode(
                f"it takes {', '.join(map(repr, moving)) or 'constants only'}, where the chain of layers "
                f"ends at {self.tensor!r}: branches are not supported"
            )
        extra = [name for name in node.output[1:] if name and self._used(name)]
        if extra:
            raise RefusedNode(f"its further output {extra[0]!r} is used: only the first one is supported")
        handlers[node.op_type](node, attributes_of(node))
        self.tensor = node.output[0]

    def _used(self, name: str) -> bool:
        return any(name in node.input for node in self.graph.node) or any(o.name == name for o in self.graph.output)

    def _data_first(self, node: Any) -> None:
        if node.input[0] != self.tensor:
            raise RefusedNode(f"its first input must be the layer before it, not {node.input[0]!r}")

    def _last(self, what: str) -> _Draft:
        if not self.drafts:
            raise RefusedNode(f"{what} before the first Conv or Gemm is not supported")
        return self.drafts[-1]

    def _append(self, layer: Conv | Dense) -> None:
        self.shape = layer.output_shape(self.shape)
        self.drafts.append(_Draft(layer))

    def _conv(self, node: Any, attributes: dict[str, Any]) -> None:
        self._data_first(node)
        weight = self.constants.weights(node.input[1])
        if weight.ndim != 4:
            raise RefusedNode(f"its weights have {weight.ndim} dimensions: only 2-D convolution (4) is supported")
        if self.flat or len(self.shape) != 3:
            raise RefusedNode(f"its input has shape {list(self.shape)}: expected [channels, height, width]")
        kernel = weight.shape[2:]
        if tuple(attributes.get("kernel_shape", kernel)) != kernel:
            raise RefusedNode(f"kernel_shape={list(attributes['kernel_shape'])}: the weights are {list(kernel)}")
        if any(d != 1 for d in attributes.get("dilations", [1, 1])):
            raise RefusedNode(f"dilations={list(attributes['dilations'])}: only 1 is supported")
        if attributes.get("group", 1) != 1:
            raise RefusedNode(f"group={attributes['group']}: only 1 is supported")
        stride = tuple(attributes.get("strides", (1, 1)))
        bias = self.constants.weights(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros(len(weight))
        self._append(
            Conv(
                weight=weight,
                bias=bias,
                stride=stride,
                pads=pads_of(attributes, self.shape[1:], kernel, stride),
                name=layer_name(node, node.input[1]),
            )
        )

    def _batch_norm(self, node: Any, attributes: dict[str, Any]) -> None:
        self._data_first(node)
        if attributes.get("training_mode", 0):
            raise RefusedNode("training_mode=1: export the network in evaluation mode (model.eval())")
        draft = self.drafts[-1] if self.drafts else None
        if draft is not None and not draft.linear:
            raise RefusedNode(
                "it follows a ReLU or a pool: it can only be folded into a Conv or Gemm right before it, or "
                "into the input"
            )
        gamma, beta, mean, variance = (self.constants.weights(name) for name in node.input[1:5])
        channels = self.shape[0] if draft is None else draft.layer.outputs
        if any(v.shape != (channels,) for v in (gamma, beta, mean, variance)):
            raise RefusedNode(
                f"its parameters have shapes {[v.shape for v in (gamma, beta, mean, variance)]}: "
                f"{'the input' if draft is None else 'the layer'} before it has {channels} channels"
            )
        if (variance + attributes.get("epsilon", 1e-5) <= 0).any():
            raise RefusedNode(f"its variance is {variance.min()}: it must not be negative")
        scale = gamma / np.sqrt(variance + attributes.get("epsilon", 1e-5))
        if draft is None:
            behind = [1] * (len(self.shape) - 1)
            self._scale_pixels(scale.reshape(-1, *behind), (beta - mean * scale).reshape(-1, *behind))
            return
        layer = draft.layer
        weight = layer.weight * scale.reshape(-1, *[1] * (layer.weight.ndim - 1))
        draft.layer = replace(layer, weight=weight, bias=(layer.bias - mean) * scale + beta)

    def _scale_pixels(self, scale: np.ndarray | float, shift: np.ndarray | float) -> None:
        """Puts ``scale * x + shift`` behind the map of the pixels.

        Both broadcast to the shape of the chain's end.
        """
        self.pixel_map = self.pixel_map.then(
            *(np.broadcast_to(each, self.shape).reshape(self.image) for each in (scale, shift))
        )

    def _scaled(self, node: Any, attributes: dict[str, Any]) -> None:
        """Reads Add, Sub, Mul or Div of the input and a constant.

        It is before the first layer.
        """
        if self.drafts:
            raise RefusedNode("it follows a layer: it is supported before the first Conv or Gemm only")
        behind = node.input[0] == self.tensor
        constant = self.constants.weights(node.input[1 if behind else 0])
        try:
            shape = np.broadcast_shapes(constant.shape, (1, *self.shape))
        except ValueError:
            shape = ()
        if shape != (1, *self.shape):
            raise RefusedNode(
                f"its constant has shape {list(constant.shape)}: it must broadcast to an input of {list(self.shape)}"
            )
        value = np.broadcast_to(constant, shape)[0]
        if node.op_type == "Div" and not behind:
            raise RefusedNode("it divides by its input: only a division by a constant is supported")
        if node.op_type == "Div" and not value.all():
            raise RefusedNode("its constant holds 0: it must not, it divides the input")
        scale, shift = {
            "Add": (1.0, value),
            "Sub": (1.0, -value) if behind else (-1.0, value),
            "Mul": (value, 0.0),
            "Div": (1 / np.where(value == 0, 1, value), 0.0),
        }[node.op_type]
        self._scale_pixels(scale, shift)

    def _relu(self, node: Any, attributes: dict[str, Any]) -> None:
        draft = self._last("Relu")
        draft.layer = replace(draft.layer, relu=True)  # after a max-pool it is the same as before it

    def _max_pool(self, node: Any, attributes: dict[str, Any]) -> None:
        draft = self._last("MaxPool")
        if not isinstance(draft.layer, Conv) or self.flat:
            raise RefusedNode("it does not follow a Conv: only then is it supported")
        kernel = list(attributes["kernel_shape"])
        stride = list(attributes.get("strides", [1, 1]))
        if len(kernel) != 2 or kernel[0] != kernel[1]:
            raise RefusedNode(f"kernel_shape={kernel}: only square pools are supported")
        if stride != kernel:
            raise RefusedNode(
                f"strides={stride}: pools must not overlap or leave gaps, so the stride must be the kernel's {kernel}"
            )
        if any(d != 1 for d in attributes.get("dilations", [1, 1])):
            raise RefusedNode(f"dilations={list(attributes['dilations'])}: only 1 is supported")
        if any(pads_of(attributes, self.shape[1:], kernel, stride)):
            raise RefusedNode(
                f"pads={list(pads_of(attributes, self.shape[1:], kernel, stride))}: padded pools are not supported"
            )
        k = kernel[0]
        c, h, w = self.shape
        if attributes.get("ceil_mode", 0) and (h % k or w % k):
            raise RefusedNode(f"ceil_mode=1 on {h}x{w}, which {k} does not divide: partial pools are not supported")
        if h < k or w < k:
            raise RefusedNode(f"kernel_shape={kernel} is larger than its input {h}x{w}")
        self.shape = (c, h // k, w // k)
        draft.layer = replace(draft.layer, pool=draft.layer.pool * k)

    def _flatten(self, node: Any, attributes: dict[str, Any]) -> None:
        axis = attributes.get("axis", 1)
        if axis not in (1, -len(self.shape)):
            raise RefusedNode(f"axis={axis}: only 1 is supported, which keeps the batch")
        self.shape, self.flat = (prod(self.shape),), True

    def _reshape(self, node: Any, attributes: dict[str, Any]) -> None:
        self._data_first(node)
        target = [int(n) for n in np.atleast_1d(self.constants.values[node.input[1]])]
        whole = (self.batch, *self.shape)
        if not attributes.get("allowzero", 0):
            target = [whole[i] if n == 0 and i < len(whole) else n for i, n in enumerate(target)]
        rest = prod(n for n in target if n != -1)
        if target.count(-1) == 1 and rest > 0 and prod(whole) % rest == 0:
            target[target.index(-1)] = prod(whole) // rest
        if target == [self.batch, prod(self.shape)]:
            self.shape, self.flat = (prod(self.shape),), True
        elif not self.drafts and target == [self.batch, *self.image]:
            self.shape, self.flat = self.image, False
        elif target != list(whole):
            raise RefusedNode(
                f"shape {target} of an input {list(whole)}: only flattening to [batch, elements] is supported"
            )

    def _dense(self, weight: np.ndarray, bias: np.ndarray | None, name: str) -> None:
        if weight.ndim != 2:
            raise RefusedNode(f"its weights have {weight.ndim} dimensions: expected 2")
        if len(self.shape) != 1:
            raise RefusedNode(f"its input has shape {list(self.shape)}: flatten it first")
        outputs = len(weight)
        if bias is None:
            bias = np.zeros(outputs)
        self._append(Dense(weight=weight, bias=vector_of(bias, outputs, 0), name=name))

    def _gemm(self, node: Any, attributes: dict[str, Any]) -> None:
        self._data_first(node)
        if attributes.get("transA", 0):
            raise RefusedNode("transA=1: a transposed input is not supported")
        weight = self.constants.weights(node.input[1]) * attributes.get("alpha", 1.0)
        if not attributes.get("transB", 0):
            weight = weight.T
        bias = None
        if len(node.input) > 2 and node.input[2]:
            bias = self.constants.weights(node.input[2]) * attributes.get("beta", 1.0)
        self._dense(weight, bias, layer_name(node, node.input[1]))

    def _matmul(self, node: Any, attributes: dict[str, Any]) -> None:
        self._data_first(node)
        self._dense(self.constants.weights(node.input[1]).T, None, layer_name(node, node.input[1]))

    def _add(self, node: Any, attributes: dict[str, Any]) -> None:
        if not self.drafts:
            self._scaled(node, attributes)
            return
        constant = node.input[1] if node.input[0] == self.tensor else node.input[0]
        draft = self._last("Add")
        if not draft.linear:
            raise RefusedNode(
                "it follows a ReLU or a pool: it can only be the bias of a Conv or MatMul right before it"
            )
        bias = vector_of(self.constants.weights(constant), draft.layer.outputs, len(self.shape) - 1)
        draft.layer = replace(draft.layer, bias=draft.layer.bias + bias)

    def _identity(self, node: Any, attributes: dict[str, Any]) -> None:
        pass

    def _dropout(self, node: Any, attributes: dict[str, Any]) -> None:
        self._data_first(node)
        if len(node.input) > 2 and node.input[2] and np.any(self.constants.values[node.input[2]]):
            raise RefusedNode("training_mode is set: export the network in evaluation mode (model.eval())")


def load_pretrained(name: str = "lenet5") -> Network:
    """A base network in the package, trained on upright digits.

    It is LeNet-5, or ``digits`` for images of 8 x 8.
    """
    return load_onnx(Path(__file__).parent / "data" / f"{name}.onnx")
