"""Makes ONNX networks node by node, and asks onnxruntime what they compute."""

import functools

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Maker", "agreement", "runtime"]


class Maker:
    """A graph in the making: a call appends a node and gives the name of its result.

    ``style``: ``traced`` as PyTorch's old exporter writes, ``dynamo`` as its new one, ``keras`` as tf2onnx.
    """

    def __init__(self, opset, *shape, batch="batch", seed=0, kind=TensorProto.FLOAT):
        self.opset, self.nodes, self.weights = opset, [], []
        self.random = np.random.default_rng(seed)
        self.inputs = [helper.make_tensor_value_info("x", kind, (batch, *shape))]
        self.x = "x"

    def input(self, name, *shape):
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ("batch", *shape)))
        return name

    def constant(self, value, name=None, dtype=np.float32):
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name or f"const_{len(self.weights)}"))
        return self.weights[-1].name

    def integers(self, *values):
        return self.constant(values, dtype=np.int64)

    def w(self, *shape, name=None, scale=None):
        """Random weights, such that a layer keeps the size of its values."""
        scale = 1 / np.sqrt(max(1, np.prod(shape[1:]))) if scale is None else scale
        return self.constant(self.random.standard_normal(shape) * scale, name)

    def near(self, *shape, name=None, at=1.0):
        """Random numbers around ``at``, above 0 where that is 1."""
        return self.constant(at + 0.2 * self.random.uniform(-1, 1, shape), name)

    def __call__(self, kind, *inputs, outputs=1, domain=None, **attributes):
        names = [f"t{len(self.nodes)}" + (f"_{n}" if n else "") for n in range(outputs)]
        node = helper.make_node(kind, inputs, names, name=f"/net/{kind}_{len(self.nodes)}", domain=domain, **attributes)
        self.nodes.append(node)
        return names[0] if outputs == 1 else names

    def axes(self, kind, x, axes, **attributes):
        """A node whose axes are an attribute in earlier opsets and an input in later ones."""
        later = self.opset >= (13 if kind in ("Squeeze", "Unsqueeze", "ReduceSum") else 18)
        if later:
            return self(kind, x, self.integers(*axes), **attributes)
        return self(kind, x, axes=list(axes), **attributes)

    def conv(self, x, i, o, kernel, *, name=None, bias=True, sides=2, group=1, **attributes):
        kernel = (kernel,) * sides if isinstance(kernel, int) else tuple(kernel)
        name = name or f"conv{len(self.nodes)}"
        weights = [self.w(o, i // group, *kernel, name=f"{name}.weight")]
        weights += [self.w(o, name=f"{name}.bias", scale=0.1)] * bias
        return self("Conv", x, *weights, kernel_shape=kernel, group=group, **attributes)

    def batch_norm(self, x, c):
        name = f"bn{len(self.nodes)}"
        given = [
            self.near(c, name=f"{name}.weight"),
            self.w(c, name=f"{name}.bias", scale=0.1),
            self.w(c, name=f"{name}.running_mean", scale=0.1),
            self.near(c, name=f"{name}.running_var"),
        ]
        return self("BatchNormalization", x, *given)

    def gemm(self, x, i, o, name=None):
        name = name or f"fc{len(self.nodes)}"
        return self("Gemm", x, self.w(o, i, name=f"{name}.weight"), self.w(o, name=f"{name}.bias", scale=0.1), transB=1)

    def linear(self, x, i, o, name=None):
        """Of tokens: a product and a sum."""
        name = name or f"lin{len(self.nodes)}"
        made = self("MatMul", x, self.constant(self.random.standard_normal((i, o)) / np.sqrt(i)))
        return self("Add", self.w(o, name=f"{name}.bias", scale=0.1), made)

    def layer_norm(self, x, c, *, written=None):
        """LayerNorm, written out in nodes where the opset has none."""
        name = f"norm{len(self.nodes)}"
        gain, bias = self.near(c, name=f"{name}.weight"), self.w(c, name=f"{name}.bias", scale=0.1)
        if self.opset >= 17 if written is None else not written:
            return self("LayerNormalization", x, gain, bias, epsilon=1e-5, axis=-1)
        centred = self("Sub", x, self.axes("ReduceMean", x, [-1]))
        mean = self.axes("ReduceMean", self("Pow", centred, self.constant(2.0)), [-1])
        deviation = self("Sqrt", self("Add", mean, self.constant(1e-5)))
        return self("Add", self("Mul", self("Div", centred, deviation), gain), bias)

    def gelu(self, x):
        if self.opset >= 20:
            return self("Gelu", x)
        half = self("Add", self("Erf", self("Div", x, self.constant(np.sqrt(2)))), self.constant(1.0))
        return self("Mul", self("Mul", x, half), self.constant(0.5))

    def shape(self, x, *sizes):
        """A Reshape, whose samples an old exporter takes from the input's shape."""
        return self("Reshape", x, self.integers(*sizes))

    def attention(self, x, t, d, heads, other=None, s=None):
        """Attention with projections, as PyTorch's exporters write it."""
        other, s, per = other or x, s or t, d // heads
        parts = [self.linear(source, d, d) for source in (x, other, other)]
        q, k, v = (self.shape(part, -1, rows, heads, per) for part, rows in zip(parts, (t, s, s)))
        q, v = (self("Transpose", part, perm=[0, 2, 1, 3]) for part in (q, v))
        k = self("Transpose", k, perm=[0, 2, 3, 1])
        if self.opset >= 14:  # the factor's root, on both sides
            root = self.constant(per**-0.25)
            scores = self("MatMul", self("Mul", q, root), self("Mul", k, root))
        else:
            scores = self("Div", self("MatMul", q, k), self.constant(per**0.5))
        made = self("MatMul", self("Softmax", scores, axis=-1), v)
        made = self.shape(self("Transpose", made, perm=[0, 2, 1, 3]), -1, t, d)
        return self.linear(made, d, d)

    def model(self, *outputs, opset=None):
        graph = helper.make_graph(
            self.nodes,
            "net",
            self.inputs,
            [helper.make_empty_tensor_value_info(each) for each in outputs],
            self.weights,
        )
        imports = [helper.make_opsetid("", opset or self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8, producer_name="pytorch")


@functools.cache
def _options():
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return options


def runtime(model, feeds):
    """onnxruntime's results."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), _options(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def agreement(model, network, reading, samples=3, seed=1):
    """Largest difference of a network's results from onnxruntime's, relative to the largest value; and the inputs."""
    random = np.random.default_rng(seed)
    feeds = {port.name: random.standard_normal((samples, *port.shape)).astype(np.float32) for port in network.inputs}
    made = reading.run(feeds)
    fixed = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    if fixed:
        starts = range(0, samples, fixed)
        parts = [runtime(model, {k: v[n : n + fixed] for k, v in feeds.items()}) for n in starts]
        want = [np.concatenate(each) for each in zip(*parts)]
    else:
        want = runtime(model, feeds)
    assert [each.shape for each in made] == [each.shape for each in want]
    return max(np.abs(a - b).max() / max(1e-30, np.abs(b).max()) for a, b in zip(made, want)), feeds
