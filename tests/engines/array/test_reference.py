import numpy as np
import onnx
import onnxruntime
import pytest

from gradloom.sim.reference import array


def slow_conv(x, weight, bias, *, stride, pads, relu, pool):
    """The definition in Python's own integers."""
    top, left, bottom, right = pads
    x = np.pad(x.astype(object), [(0, 0), (0, 0), (top, bottom), (left, right)])
    kh, kw = weight.shape[2:]
    height, width = (x.shape[2] - kh) // stride[0] + 1, (x.shape[3] - kw) // stride[1] + 1
    out = np.empty((len(x), len(weight), height, width), object)
    saturated = np.zeros(len(x), int)
    for n, o, y, z in np.ndindex(out.shape):
        part = x[n, :, y * stride[0] : y * stride[0] + kh, z * stride[1] : z * stride[1] + kw]
        total = int((part * weight[o].astype(object)).sum()) + (int(bias[o]) << 12)
        value, rest = divmod(total, 4096)
        value += rest > 2048 or (rest == 2048 and value & 1)
        clipped = min(max(value, -1 << 23), (1 << 23) - 1)
        saturated[n] += clipped != value
        out[n, o, y, z] = max(clipped, 0) if relu else clipped
    blocks = out[:, :, : height // pool * pool, : width // pool * pool]
    blocks = blocks.reshape(*out.shape[:2], height // pool, pool, width // pool, pool)
    return blocks.max(axis=(3, 5)).astype(np.int64), saturated


@pytest.mark.parametrize("seed", range(6))
def test_convolution_is_its_definition(seed):
    rng = np.random.default_rng(seed)
    stride, kernel = tuple(rng.integers(1, 4, 2)), rng.integers(1, 5, 2)
    pads = tuple(int(rng.integers(0, k)) for k in (*kernel, *kernel))
    x = rng.integers(-1 << 19, 1 << 19, (3, 2, 8, 9))
    weight = rng.integers(-1 << 15, 1 << 15, (3, 2, *kernel))
    bias = rng.integers(-1 << 23, 1 << 23, 3)
    options = dict(stride=stride, pads=pads, relu=bool(seed % 2), pool=1 + seed % 2)
    want, saturated = slow_conv(x, weight, bias, **options)
    got, count = array.conv_layer(x, weight, bias, chunk=2, **options)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(count, saturated)


def test_sums_beyond_53_bits_are_exact():
    weight = np.full((1, 3), (1 << 27) + 1)
    x = np.full((3, 1), (1 << 27) + 1)
    assert array.matmul_exact(weight, x)[0, 0] == 3 * ((1 << 27) + 1) ** 2
    with pytest.raises(ValueError, match="63 bits"):
        array.matmul_exact(weight << 8, x)
    with pytest.raises(ValueError, match="48 bits"):
        array.post_process([1 << 47], [0], relu=False)


def test_window_times_weight_is_the_convolution():
    rng = np.random.default_rng(4)
    x, weight = rng.integers(-999, 999, (2, 7, 6)), rng.integers(-99, 99, (3, 2, 3, 2))
    options = dict(stride=(2, 1), pads=(1, 0, 2, 1))
    p = array.windows(x, kernel=(3, 2), max_kernel=5, **options)
    spread = np.zeros((3, 2, 5, 5), int)
    spread[:, :, :3, :2] = weight
    sums = np.einsum("chwk,ock->ohw", p, spread.reshape(3, 2, 25))
    got, _ = array.conv_layer(x[None], weight, np.zeros(3, int), relu=False, **options)
    np.testing.assert_array_equal(got[0], array.post_process(sums, np.zeros(3, int), relu=False)[0])


def test_lenet_is_within_rounding_of_onnxruntime():
    """Each layer adds half a unit, and grows what the layer before it was off by its weights' 1-norm."""
    rng = np.random.default_rng(5)
    shapes = [(6, 1, 5, 5), (16, 6, 5, 5), (120, 784), (84, 120), (10, 84)]
    weights = [np.rint(rng.normal(size=s) * 4096 / np.prod(s[1:]) ** 0.5).astype(np.int64) for s in shapes]
    biases = [rng.integers(-1 << 13, 1 << 13, s[0]) for s in shapes]
    x = rng.integers(0, 256, (64, 1, 28, 28)) << 8

    y, error = x, 0.0
    for n, (w, b) in enumerate(zip(weights, biases, strict=True)):
        if w.ndim == 4:
            y, saturated = array.conv_layer(y, w, b, pads=(2, 2, 2, 2), relu=True, pool=2)
        else:
            y, saturated = array.dense_layer(y.reshape(len(y), -1), w, b, relu=n < 4)
        assert not saturated.any()
        error = 0.5 + error * np.abs(w / 4096).reshape(len(w), -1).sum(axis=1).max()

    helper, nodes, stored, name = onnx.helper, [], [], "x"
    for n, (w, b) in enumerate(zip(weights, biases, strict=True)):
        stored += [
            onnx.numpy_helper.from_array((w / 4096).astype(np.float32), f"w{n}"),
            onnx.numpy_helper.from_array((b / 65536).astype(np.float32), f"b{n}"),
        ]
        if n == 2:
            nodes.append(helper.make_node("Flatten", [name], ["flat"]))
            name = "flat"
        operator, options = ("Conv", {"pads": [2, 2, 2, 2]}) if w.ndim == 4 else ("Gemm", {"transB": 1})
        nodes.append(helper.make_node(operator, [name, f"w{n}", f"b{n}"], [f"y{n}"], **options))
        name = f"y{n}"
        if n < 4:
            nodes.append(helper.make_node("Relu", [name], [f"r{n}"]))
            name = f"r{n}"
        if w.ndim == 4:
            nodes.append(helper.make_node("MaxPool", [name], [f"p{n}"], kernel_shape=[2, 2], strides=[2, 2]))
            name = f"p{n}"
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "lenet",
        [value("x", onnx.TensorProto.FLOAT, x.shape)],
        [value(name, onnx.TensorProto.FLOAT, [64, 10])],
        stored,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    want = session.run(None, {"x": (x / 65536).astype(np.float32)})[0]
    # float32: relative 2**-24 for each of 784 terms at most, of values below the largest product.
    slack = 784 * 2.0**-24 * np.abs(want).max() * len(weights)
    assert np.abs(y / 65536 - want).max() <= error / 65536 + slack
    assert np.abs(y / 65536 - want).max() > 0
