"""A small network with a branch, as a file, and pictures that it can learn."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["write_data", "write_network"]


def write_network(path, classes=3):
    """Pictures of 3 by 8 by 8: two kernels, of which one has a shortcut, their mean, and a linear layer."""
    random = np.random.default_rng(4)
    shapes = {"w0": (8, 3, 3, 3), "b0": (8,), "w1": (8, 8, 3, 3), "b1": (8,), "w2": (classes, 8), "b2": (classes,)}
    values = {name: random.standard_normal(shape) / np.prod(shape[1:]) ** 0.5 for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1", "b1"], ["c1"], pads=[1] * 4),
        helper.make_node("Add", ["c1", "r0"], ["s1"]),
        helper.make_node("Relu", ["s1"], ["r1"]),
        helper.make_node("GlobalAveragePool", ["r1"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["y"], transB=1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", classes])
    held = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "small", [x], [y], held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    return str(path)


def write_data(path, count=48, classes=3, seed=0):
    """Pictures with one bright colour, whose number is the class; a third is to judge by."""
    random = np.random.default_rng(seed)
    y = random.integers(0, classes, count)
    x = random.standard_normal((count, 3, 8, 8)) / 2
    x[np.arange(count), y] += 2
    part = count // 3
    x = x.astype(np.float32)
    np.savez(path, x_train=x[part:], y_train=y[part:], x_test=x[:part], y_test=y[:part])
    return path
