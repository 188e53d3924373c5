"""Pools, and convolutions over steps and features, in front of the recurrent node: the codes of onnxruntime."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from gradloom.models.recurrent.calibrate import float_logits, quantized
from gradloom.models.recurrent.export import export_recurrent
from gradloom.models.recurrent.readers.native import load_native
from gradloom.models.recurrent.readers.reader import load_recurrent
from gradloom.models.recurrent.stored import load_network, save_network, summary
from gradloom.sim.reference import cell
from gradloom.systems.sequences.answer import real_states

from ..models import CONV, changed, saved, some_windows, unfused


def held(model, name, value):
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return name


def put(model, before, *nodes):
    """Nodes in front of the one that makes ``before``."""
    at = next(n for n, node in enumerate(model.graph.node) if before in node.output)
    for node in reversed(nodes):
        model.graph.node.insert(at, node)


def node_of(model, output):
    return next(node for node in model.graph.node if output in node.output)


def pooled(model):
    """Between convolution and quantiser, with pads."""
    node_of(model, "u2_q").input[0] = "p"
    put(model, "u2_q", helper.make_node("MaxPool", ["u1"], ["p"], name="pool", kernel_shape=[3], pads=[1, 1]))


def pooled_codes(model):
    """Behind the quantiser, half as many steps."""
    node_of(model, "u").input[0] = "p"
    put(model, "u", helper.make_node("MaxPool", ["u2"], ["p"], name="pool", kernel_shape=[3], strides=[2], pads=[0, 1]))


def pooled_input(model):
    """Of the input's codes."""
    node_of(model, "u0").input[0] = "p"
    put(model, "u0", helper.make_node("MaxPool", ["xt"], ["p"], name="pool", kernel_shape=[2], pads=[0, 1]))


def averaged(model):
    """A mean of two steps, and a quantiser of its own."""
    node_of(model, "u").input[0] = "p2"
    scale, zero = held(model, "p_s", np.float32(2.0**-3)), held(model, "p_z", np.int8(0))
    put(
        model,
        "u",
        helper.make_node("AveragePool", ["u2"], ["p"], name="pool", kernel_shape=[2], strides=[2]),
        helper.make_node("QuantizeLinear", ["p", scale, zero], ["p1"]),
        helper.make_node("DequantizeLinear", ["p1", scale, zero], ["p2"]),
    )


def plane(model, *, features_first=False, pool=True, squeezed=False):
    """8 kernels of 5 steps and 3 features; the greatest of 3 features; channels and features as channels."""
    random = np.random.default_rng(5)
    outputs = 8 if pool else 16
    weights = held(model, "w2", random.integers(-90, 91, (outputs, 1, 5, 3 if pool else 6)).astype(np.int8))
    scale, zero = held(model, "w2_s", np.float32(2.0**-8)), held(model, "w2_z", np.int8(0))
    bias = held(model, "b2", (random.integers(-64, 65, outputs) / 256).astype(np.float32))
    one = held(model, "one_axis", np.array([1]))
    features = 1 if pool else 0
    nodes = [
        helper.make_node("DequantizeLinear", [weights, scale, zero], ["w2_real"]),
        helper.make_node("Unsqueeze", ["xq", one], ["x4"]),
        helper.make_node(
            "Conv", ["x4", "w2_real", bias], ["u0"], name="conv2", strides=[2, 1], pads=[2, features, 2, features]
        ),
    ]
    for output in ("xt", "conv_w", "u0"):
        model.graph.node.remove(node_of(model, output))
    put(model, "u1", *nodes)
    model.graph.node.remove(node_of(model, "u"))
    last = "u2"
    if pool:
        last = "p"
        pads = {"kernel_shape": [1, 3], "strides": [1, 4], "pads": [0, 1, 0, 1]}
        put(model, "h_last", helper.make_node("MaxPool", ["u2"], ["p"], name="pool", **pads))
    if squeezed:
        axis = held(model, "last_axis", np.array([3]))
        put(
            model,
            "h_last",
            helper.make_node("Squeeze", [last, axis], ["flat"]),
            helper.make_node("Transpose", ["flat"], ["u"], perm=[2, 0, 1]),
        )
        return
    shape = held(model, "shape", np.array([0, 0, -1]))
    order = [0, 2, 3, 1] if features_first else [0, 2, 1, 3]
    put(
        model,
        "h_last",
        helper.make_node("Transpose", [last], ["by_step"], perm=order),
        helper.make_node("Reshape", ["by_step", shape], ["flat"], name="flatten"),
        helper.make_node("Transpose", ["flat"], ["u"], perm=[1, 0, 2]),
    )


def plane_features_first(model):
    plane(model, features_first=True)


def plane_squeezed(model):
    """A kernel as wide as the features, so that one is left."""
    plane(model, pool=False, squeezed=True)


FRONTS = [pooled, pooled_codes, pooled_input, averaged, plane, plane_features_first, plane_squeezed]


@pytest.mark.parametrize("change", FRONTS, ids=lambda each: each.__name__)
def test_a_layer_in_front_equals_onnxruntime(change, tmp_path):
    path, feeds = changed(change, tmp_path), some_windows(16)
    network, x, want = load_recurrent(path), feeds["x"], unfused(path, feeds)
    codes = network.input.codes(x)
    trace, scale = cell.run(network, codes), network.cell.hidden.scale
    np.testing.assert_array_equal(trace.h, np.rint(want["h_all"] / scale).transpose(1, 0, 2))
    assert (cell.run(load_recurrent(CONV), codes).state.h != trace.state.h).any()
    save_network(network, tmp_path / "net")
    again = load_network(tmp_path / "net")
    np.testing.assert_array_equal(cell.run(again, codes).h, trace.h)
    hidden, _ = real_states(network, x)
    assert np.sqrt(((hidden - trace.h * scale) ** 2).mean()) < 0.2 * np.abs(trace.h * scale).max()
    if change in (plane, plane_features_first):
        assert summary(network)["pools"] == [{"inputs": 48, "outputs": 16, "kernel": 1, "stride": 1}]
        with pytest.raises(ValueError, match="node 'pool': a pool over features cannot be exported"):
            export_recurrent(network, tmp_path / "back.onnx")
    else:
        export_recurrent(network, tmp_path / "back.onnx")
        np.testing.assert_array_equal(unfused(tmp_path / "back.onnx", feeds)["h_all"], want["h_all"])


def native(tmp_path, *, stride=1, ceil=0):
    """Convolution, ReLU, pool and LSTM in floating point."""
    random = np.random.default_rng(1)
    shapes = {
        "w": (4, 1, 3, 2),
        "b": (4,),
        "wx": (1, 32, 8),
        "uh": (1, 32, 8),
        "bias": (1, 64),
        "fc": (3, 8),
        "fb": (3,),
    }
    made = {name: (0.4 * random.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()}
    initializers = [numpy_helper.from_array(value, name) for name, value in made.items()]
    initializers.append(numpy_helper.from_array(np.array([0, 0, 8]), "shape"))
    initializers.append(numpy_helper.from_array(np.array([1]), "axis"))
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axis"], ["x4"]),
        helper.make_node("Conv", ["x4", "w", "b"], ["c"], name="conv", pads=[1, 0, 1, 0]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=ceil),
        helper.make_node("Transpose", ["p"], ["t"], perm=[2, 0, 1, 3]),
        helper.make_node("Reshape", ["t", "shape"], ["f"]),
        helper.make_node("LSTM", ["f", "wx", "uh", "bias"], ["", "h"], name="rnn", hidden_size=8),
        helper.make_node("Squeeze", ["h", "zero"], ["last"]),
        helper.make_node("Gemm", ["last", "fc", "fb"], ["logits"], transB=1),
    ]
    initializers.append(numpy_helper.from_array(np.array([0]), "zero"))
    info = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", ["n", 12, 5]), ("logits", None))]
    model = helper.make_model(
        helper.make_graph(nodes, "g", info[:1], info[1:], initializers), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 8
    return saved(model, tmp_path)


def test_a_plane_in_floating_point_equals_onnxruntime(tmp_path):
    path = native(tmp_path)
    x = np.random.default_rng(2).normal(size=(20, 12, 5)).astype(np.float32)
    network = load_native(path)
    want = unfused(path, {"x": x})["logits"]
    np.testing.assert_allclose(float_logits(network, x), want, rtol=1e-4, atol=1e-5)
    made = quantized(network, x)
    found = cell.logits(made, cell.run(made, made.input.codes(x)))
    assert np.sqrt(((found - want) ** 2).mean()) < 0.3 * want.std()


def _replaced(model, output, **changes):
    node = node_of(model, output)
    for name, value in changes.items():
        for each in [each for each in node.attribute if each.name == name]:
            node.attribute.remove(each)
        node.attribute.append(helper.make_attribute(name, value))


BAD = {
    "a mean of three": (
        averaged,
        lambda m: _replaced(m, "p", kernel_shape=[3]),
        "'pool' (AveragePool): its kernel has 3",
    ),
    "a ceiling": (pooled, lambda m: _replaced(m, "p", ceil_mode=1), "'pool' (MaxPool): ceil_mode=1: only 0"),
    "dilated": (pooled, lambda m: _replaced(m, "p", dilations=[2]), "dilations=[2]: only 1"),
    "grouped": (plane, lambda m: _replaced(m, "u0", group=2), "'conv2' (Conv): group=2"),
    "pads left out": (averaged, lambda m: _replaced(m, "p", pads=[1, 0]), "only count_include_pad=1"),
    "no steps": (plane, lambda m: _replaced(m, "by_step", perm=[0, 1, 2, 3]), "'conv2': its kernel does not go"),
    "steps for channels": (
        pooled,
        lambda m: _replaced(m, "xt", perm=[0, 1, 2]),
        "(Conv): its weights take 6 channels, its input has 100",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_layer_that_is_not_built_is_one_line(case, run, tmp_path):
    change, spoil, said = BAD[case]
    model = onnx.load(CONV)
    change(model)
    spoil(model)
    code, out, err = run("import", saved(model, tmp_path))
    assert (code, out, err.count("\n")) == (2, "", 1) and said in err, err
