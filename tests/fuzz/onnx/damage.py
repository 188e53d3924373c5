"""A network's file, damaged as nobody writes it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

__all__ = ["damage"]

#: Operators that a node may become.
_OTHERS = (
    "Conv Relu MaxPool Gemm MatMul Add Mul Sub Div Transpose Flatten Reshape Softmax Sigmoid Squeeze Unsqueeze "
    "Pad Identity BatchNormalization Dropout Shape Gather Concat Cast Expand Slice Split If Loop Scan LSTM Constant "
    "Where Range"
).split()


def damage(model: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Changes something in a file, or a few things: an attribute, an input, a node, a weight, a size, the opset."""

    def pick(choices: Sequence[Any]) -> Any:
        return choices[int(rng.integers(len(choices)))]

    graph = model.graph
    node = pick(graph.node)
    names = ["image", "", *(each.name for each in graph.initializer), *(each for n in graph.node for each in n.output)]
    what = int(rng.integers(10))
    if what == 0 and node.attribute:
        given = pick(node.attribute)
        if given.ints:
            given.ints[int(rng.integers(len(given.ints)))] = pick([-1, 0, 1, 2, 3, 7, 100, 1 << 40])
        elif given.HasField("i"):
            given.i = pick([-1, 0, 1, 2, 7, 100])
        elif given.HasField("f"):
            given.f = pick([0.0, -1.0, 2.0, np.nan, np.inf])
        elif given.HasField("s"):
            given.s = pick([b"SAME_UPPER", b"x", b"", b"\xff"])
    elif what == 1 and node.attribute:
        del node.attribute[int(rng.integers(len(node.attribute)))]
    elif what == 2 and node.input:
        node.input[int(rng.integers(len(node.input)))] = pick(names)
    elif what == 3 and node.input:
        del node.input[int(rng.integers(len(node.input)))]
    elif what == 4:
        node.input.append(pick(names))
    elif what == 5:
        node.op_type = pick(_OTHERS)
    elif what == 6 and graph.initializer:
        held = pick(graph.initializer)
        value = numpy_helper.to_array(held)
        other = pick([value.ravel(), value[None], value.T, value.astype("f8"), value[:0] if value.ndim else value])
        held.CopyFrom(numpy_helper.from_array(pick([other, other.astype("i8"), other.astype("f4")]), held.name))
    elif what == 7:
        size = pick(graph.input[0].type.tensor_type.shape.dim)
        size.Clear()
        if rng.random() < 0.5:
            size.dim_value = pick([1, 2, 5, 101, 103])
    elif what == 8:
        del graph.node[int(rng.integers(len(graph.node)))]
    else:
        model.opset_import[0].version = int(rng.integers(6, 26))
    if rng.random() < 0.3 and graph.node:
        damage(model, rng)
