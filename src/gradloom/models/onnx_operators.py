"""Reads the operators of an ONNX graph into a chain of layers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from .files.onnx_file import RefusedNode
from .files.onnx_graph import Node
from .network import ConvLayer, DenseLayer
from .onnx_chain import NO_PADS, Chain

__all__ = ["HANDLERS", "LAYOUT"]

#: Nodes that keep the elements of a sample and their order.
LAYOUT = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")


def _conv(chain: Chain, node: Node) -> None:
    chain.data_first(node)
    weight = node.weights(1)
    if weight.ndim != 4:
        raise RefusedNode(f"its weights have {weight.ndim} dimensions: only 2-D convolution (4) is supported")
    chain.in_image()
    kernel = weight.shape[2:]
    if tuple(node.attribute("kernel_shape", kernel)) != kernel:
        raise RefusedNode(f"kernel_shape={node.attribute('kernel_shape')}: the weights are {list(kernel)}")
    _check_dilations(node)
    if node.attribute("group", 1) != 1:
        raise RefusedNode(f"group={node.attribute('group')}: only 1 is supported")
    stride = node.attribute("strides", [1, 1])
    top, left, bottom, right = chain.pads
    sides = chain.shape[1] + top + bottom, chain.shape[2] + left + right
    more = _pads_of(node, sides, kernel, stride)
    chain.append(
        ConvLayer(
            weight=weight,
            bias=np.zeros(len(weight)) if node.optional(2) is None else node.weights(2, "bias"),
            stride=tuple(stride),
            pads=(top + more[0], left + more[1], bottom + more[2], right + more[3]),
            name=_layer_name(node),
        )
    )
    chain.pads = NO_PADS


def _pad(chain: Chain, node: Node) -> None:
    chain.data_first(node)
    chain.in_image()
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
    chain.pads = (before[2], before[3], after[2], after[3])


def _batch_norm(chain: Chain, node: Node) -> None:
    chain.data_first(node)
    node.attribute("momentum")  # of training
    if node.attribute("training_mode", 0) or any(node.outputs[1:]):
        raise RefusedNode("it is in training mode: export the network in evaluation mode (model.eval())")
    parts = [node.weights(at, what) for at, what in enumerate(("scale", "bias", "mean", "variance"), 1)]
    if any(part.shape != chain.shape[:1] for part in parts):
        raise RefusedNode(
            f"its parameters have shapes {[part.shape for part in parts]}: "
            f"{'the layer' if chain.drafts else 'the input'} before it has {chain.shape[0]} channels"
        )
    gamma, beta, mean, variance = (part.reshape(-1, *[1] * (len(chain.shape) - 1)) for part in parts)
    variance = variance + node.attribute("epsilon", 1e-5)
    if (variance <= 0).any():
        raise RefusedNode(f"its variance is {parts[3].min()}: it must not be negative")
    scale = gamma / np.sqrt(variance)
    chain.fold(scale, beta - mean * scale)


def _arithmetic(chain: Chain, node: Node) -> None:
    """Reads Add, Sub, Mul or Div of the chain's end and a constant."""
    behind = node.inputs[0] == chain.tensor
    constant = node.weights(1 if behind else 0, "constant")
    try:
        shape = np.broadcast_shapes(constant.shape, (1, *chain.shape))
    except ValueError:
        shape = ()
    if shape != (1, *chain.shape):
        raise RefusedNode(
            f"its constant has shape {list(constant.shape)}: it must broadcast to a sample of {list(chain.shape)}"
        )
    value = np.broadcast_to(constant, shape)[0]
    if node.kind == "Div" and not behind:
        raise RefusedNode("it divides by its input: only a division by a constant is supported")
    if node.kind == "Div" and not value.all():
        raise RefusedNode("its constant holds 0: it must not, it divides the input")
    if node.kind in ("Add", "Sub"):
        sign = -1.0 if node.kind == "Sub" else 1.0
        chain.fold(1.0 if behind else sign, value * (sign if behind else 1.0))
    else:
        chain.fold(value if node.kind == "Mul" else 1 / value, 0.0)


def _relu(chain: Chain, node: Node) -> None:
    draft = chain.last(node)
    draft.layer = replace(draft.layer, relu=True)  # after a max-pool it is the same as before it


def _max_pool(chain: Chain, node: Node) -> None:
    draft = chain.last(node)
    if not isinstance(draft.layer, ConvLayer) or len(chain.own) != 3:
        raise RefusedNode("it does not follow a Conv: only then is it supported")
    chain.in_image()
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
    if any(pads := _pads_of(node, chain.shape[1:], kernel, stride)):
        raise RefusedNode(f"pads={list(pads)}: padded pools are not supported")
    k = kernel[0]
    c, h, w = chain.shape
    if node.attribute("ceil_mode", 0) and (h % k or w % k):
        raise RefusedNode(f"ceil_mode=1 on {h}x{w}, which {k} does not divide: partial pools are not supported")
    if h < k or w < k:
        raise RefusedNode(f"kernel_shape={kernel} is larger than its input {h}x{w}")
    chain.own = (c, h // k, w // k)
    draft.layer = replace(draft.layer, pool=draft.layer.pool * k)


def _layout(chain: Chain, node: Node) -> None:
    """Reads a node that keeps elements and their order."""
    chain.data_first(node)
    for name in ("axis", "axes", "allowzero"):  # they say what the graph's shapes say
        node.attribute(name)
    if chain.order is not None:
        chain.order = chain.order.reshape(chain.result(node))


def _transpose(chain: Chain, node: Node) -> None:
    perm = node.attribute("perm") or list(range(len(chain.shape), -1, -1))
    if perm[0] != 0:
        raise RefusedNode(f"perm={perm}: the first dimension must stay the batch")
    axes = [axis - 1 for axis in perm[1:]]
    order = np.arange(prod(chain.shape)).reshape(chain.shape) if chain.order is None else chain.order
    order = order.transpose(axes)
    chain.order = None if (np.diff(order.reshape(-1)) == 1).all() else order


def _dense(chain: Chain, node: Node, weight: np.ndarray, bias: np.ndarray | None) -> None:
    if weight.ndim != 2:
        raise RefusedNode(f"its weights have {weight.ndim} dimensions: expected 2")
    if prod(chain.shape[:-1]) != 1:
        raise RefusedNode(f"its input has shape {[chain.batch_name, *chain.shape]}: flatten it first")
    if weight.shape[1] != prod(chain.shape):
        raise RefusedNode(
            f"its input has shape {[chain.batch_name, *chain.shape]}: its weights take {weight.shape[1]} elements"
        )
    if chain.order is not None:
        graphs, weight = weight, np.empty_like(weight)
        weight[:, chain.order.reshape(-1)] = graphs
    bias = np.zeros(1) if bias is None else bias
    try:
        row = np.broadcast_to(bias, (1, len(weight)))[0]
    except ValueError:
        raise RefusedNode(
            f"its bias has shape {list(bias.shape)}: expected one value for each of {len(weight)} outputs"
        ) from None
    chain.append(DenseLayer(weight=weight, bias=row, name=_layer_name(node)))


def _gemm(chain: Chain, node: Node) -> None:
    chain.data_first(node)
    if node.attribute("transA", 0):
        raise RefusedNode("transA=1: a transposed input is not supported")
    weight = node.weights(1) * node.attribute("alpha", 1.0)
    beta = node.attribute("beta", 1.0)
    bias = None if node.optional(2) is None else node.weights(2, "bias") * beta
    _dense(chain, node, weight if node.attribute("transB", 0) else weight.T, bias)


def _matmul(chain: Chain, node: Node) -> None:
    chain.data_first(node)
    _dense(chain, node, node.weights(1).T, None)


def _softmax(chain: Chain, node: Node) -> None:
    chain.last(node)
    axis = node.attribute("axis", -1) % (len(chain.shape) + 1)
    if axis == 0 or chain.shape[axis - 1] != prod(chain.shape):
        raise RefusedNode(
            f"axis={node.attribute('axis', -1)} of an input {[chain.batch_name, *chain.shape]}: it is supported "
            "over the classes only"
        )
    if prod(chain.shape) == 1:
        raise RefusedNode("it takes one logit, of which it is the same for every image: use a Sigmoid")
    chain.end = node.label


def _sigmoid(chain: Chain, node: Node) -> None:
    chain.last(node)
    if prod(chain.shape) != 1:
        raise RefusedNode(
            "it is supported behind one logit at the end only: of several it gives labels that do not exclude each "
            "other, and the loss is of one label an image"
        )
    chain.end = node.label


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
        return NO_PADS
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise RefusedNode(f"auto_pad={auto!r}: expected NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    first, second = [], []
    for side, k, s in zip(sides, kernel, stride):
        total = max((-(-side // s) - 1) * s + k - side, 0)
        small, large = total // 2, total - total // 2
        first.append(small if auto == "SAME_UPPER" else large)
        second.append(large if auto == "SAME_UPPER" else small)
    return (first[0], first[1], second[0], second[1])


#: What reads an operator, by its kind.
HANDLERS: Mapping[str, Callable[[Chain, Node], None]] = {
    "Conv": _conv,
    "Pad": _pad,
    "BatchNormalization": _batch_norm,
    "Relu": _relu,
    "MaxPool": _max_pool,
    "Gemm": _gemm,
    "MatMul": _matmul,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _arithmetic),
    **dict.fromkeys(LAYOUT, _layout),
    "Transpose": _transpose,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Sigmoid": _sigmoid,
}
