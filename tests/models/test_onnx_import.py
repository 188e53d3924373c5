"""What PyTorch exports, read into a network that computes the same; the rest refused by node."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from gradloom.models import datasets
from gradloom.models.network import ConvLayer
from gradloom.models.onnx_import import load_onnx, load_pretrained
from gradloom.systems.images.mathematics import forward

FIXTURES = Path(__file__).parent / "fixtures"
REFUSED = ("average_pool", "branch")
SUPPORTED = sorted(p.name for p in FIXTURES.glob("*.onnx") if not p.name.startswith(REFUSED))


def runtime(path, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    fixed = session.get_inputs()[0].shape[0]
    parts = [x] if not isinstance(fixed, int) else x.reshape(-1, fixed, *x.shape[1:])
    return np.concatenate([session.run(None, {name: part})[0] for part in parts])


def agrees(path, net, shape=None):
    x = np.random.default_rng(3).standard_normal((4, *net.input_shape)).astype(np.float32)
    want = runtime(path, x.reshape(4, *shape) if shape else x)
    got = forward(net, net.pixel_map(x))[1]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * max(1, np.abs(want).max()))


class Graph:
    """A chain of nodes in the making: each call appends one that takes the last tensor."""

    def __init__(self, *shape):
        self.shape, self.nodes, self.weights = ("batch", *shape), [], []
        self.random = np.random.default_rng(5)
        self.tensor = "image"

    def constant(self, *shape, name=None, value=None, dtype=np.float32):
        array = self.random.standard_normal(shape).astype(dtype) if value is None else np.asarray(value, dtype)
        self.weights.append(numpy_helper.from_array(array, name or f"w{len(self.weights)}"))
        return self.weights[-1].name

    def __call__(self, op, *constants, first=(), name=None, domain=None, **attributes):
        out = f"t{len(self.nodes)}"
        if name is None:  # onnxruntime wants every name once
            name = f"the_{op}" if all(n.op_type != op for n in self.nodes) else f"{op}_{out}"
        self.nodes.append(
            helper.make_node(op, [*first, self.tensor, *constants], [out], name=name, domain=domain, **attributes)
        )
        self.tensor = out
        return self

    def conv(self, o, i, *k, bias=True, **attributes):
        return self("Conv", self.constant(o, i, *k), *([self.constant(o)] if bias else []), **attributes)

    def gemm(self, o, i, **attributes):
        return self("Gemm", self.constant(o, i), self.constant(o), transB=1, **attributes)

    def save(self, folder, opset=17):
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(self.tensor, TensorProto.FLOAT, None)],
            self.weights,
        )
        path = folder / "m.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)
        return path


@pytest.mark.parametrize("name", SUPPORTED)
def test_an_exported_network_computes_what_onnxruntime_does(name):
    net = load_onnx(FIXTURES / name)
    agrees(FIXTURES / name, net)


def test_the_fixtures_hold_what_they_are_for():
    kinds = {
        name: {n.op_type for n in onnx.load(FIXTURES / name, load_external_data=False).graph.node} for name in SUPPORTED
    }
    assert set.union(*kinds.values()) >= {
        "Conv",
        "BatchNormalization",
        "Relu",
        "MaxPool",
        "Flatten",
        "Reshape",
        "Gemm",
        "MatMul",
        "Identity",
        "Constant",
        "Shape",
        "Gather",
    }
    external = onnx.load(FIXTURES / "mlp.dynamo.onnx", load_external_data=False)
    assert any(t.data_location == TensorProto.EXTERNAL for t in external.graph.initializer)
    assert sum(p.stat().st_size for p in FIXTURES.iterdir()) < 300_000


def test_the_pretrained_network_computes_what_onnxruntime_does():
    net = load_pretrained()
    images, labels = datasets.mnist_test()
    x = net.pixel_map.activations(images[:200, None])
    got = forward(net, x)[1]
    np.testing.assert_allclose(got, runtime(datasets.DATA / "lenet5.onnx", x.astype(np.float32)), atol=1e-4)
    assert (got.argmax(1) == labels[:200]).mean() > 0.97


def test_layers_keep_the_names_they_had_in_pytorch():
    assert load_onnx(FIXTURES / "stride.dynamo.onnx").layer_names == ("0", "2", "6", "9")
    assert load_onnx(FIXTURES / "stride.script.onnx").layer_names == ("0", "2", "6", "9")


def test_both_exporters_give_the_same_network():
    for name in ("batchnorm", "stride", "mlp", "view"):
        old, new = (load_onnx(FIXTURES / f"{name}.{which}.onnx") for which in ("script", "dynamo"))
        for a, b in zip(old.layers, new.layers, strict=True):
            np.testing.assert_allclose(a.weight, b.weight, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(a.bias, b.bias, rtol=1e-5, atol=1e-6)
            assert a.relu == b.relu
            if isinstance(a, ConvLayer):
                assert (a.stride, a.pads, a.pool) == (b.stride, b.pads, b.pool)


def test_less_usual_nodes_compute_what_onnxruntime_does(tmp_path):
    g = Graph(2, 9, 8)
    g("Identity").conv(3, 2, 3, 2, bias=False, auto_pad="SAME_UPPER", strides=[2, 1])
    g("Add", g.constant(1, 3, 1, 1))
    g("BatchNormalization", g.constant(3), g.constant(3), g.constant(3), g.constant(value=[1, 2, 3]), epsilon=1e-3)
    g("MaxPool", kernel_shape=[2, 2], strides=[2, 2])("Relu")("Dropout")
    g.conv(4, 3, 2, 2, pads=[1, 0, 0, 1], kernel_shape=[2, 2], dilations=[1, 1], group=1)
    g("MaxPool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, pads=[0, 0, 0, 0])
    g("Flatten", axis=-3)
    g("MatMul", g.constant(8, 5))
    g("Add", first=[g.constant(5)])("Relu")
    g("Gemm", g.constant(5, 4), g.constant(1, 4), alpha=0.5, beta=2.0)
    g("Add", g.constant(value=0.25))("Identity")
    net = load_onnx(g.save(tmp_path))
    assert net.shapes == ((2, 9, 8), (3, 2, 4), (4, 1, 2), (5,), (4,)) and net.layers[0].pads == (1, 0, 1, 1)
    assert net.layer_names == ("conv1", "conv2", "fc1", "fc2")
    agrees(tmp_path / "m.onnx", net)


@pytest.mark.parametrize(
    "shape, target, image, given",
    [
        ((16,), None, (1, 4, 4), None),
        ((12,), None, (1, 1, 12), None),
        ((12,), None, (2, 3, 2), (2, 3, 2)),
        ((3, 5), [0, -1], (1, 3, 5), None),
        ((16,), [-1, 1, 4, 4], (1, 4, 4), None),
    ],
)
def test_inputs_that_are_not_images_become_some(tmp_path, shape, target, image, given):
    g = Graph(*shape)
    n = int(np.prod(shape))
    if target:
        g("Reshape", g.constant(value=target, dtype=np.int64))
    if target and len(target) == 4:
        g.conv(3, 1, 3, 3)("Flatten")
        n = 12
    g.gemm(3, n)
    net = load_onnx(g.save(tmp_path), input_shape=given)
    assert net.input_shape == image
    agrees(tmp_path / "m.onnx", net, shape)


def test_transposed_weights_are_computed_at_import(tmp_path):
    g = Graph(16)
    g.nodes.append(helper.make_node("Transpose", [g.constant(3, 16)], ["wt"], perm=[1, 0]))
    g("MatMul", "wt")
    agrees(g.save(tmp_path), load_onnx(g.save(tmp_path)), (16,))


def flat_gemm(g, o, i):
    return g("Flatten").gemm(o, i)


def test_scale_and_shift_go_into_the_layer_before_them(tmp_path):
    g = Graph(2, 5, 5).conv(3, 2, 3, 3)
    g("Mul", g.constant(1, 3, 1, 1))("Add", g.constant(3, 1, 1))("Sub", first=[g.constant()])("Relu")("Flatten")
    g.gemm(4, 27)("Div", g.constant(4))("Mul", g.constant(1, 1))("Sub", g.constant(1, 4))
    net = load_onnx(g.save(tmp_path))
    assert len(net.layers) == 2
    agrees(tmp_path / "m.onnx", net)


@pytest.mark.parametrize(
    "own, pads, outputs",
    [
        ({"pads": [1, 1, 0, 0]}, (2, 1, 0, 1), 3 * 5 * 5),
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (1, 0, 1, 2), 3 * 3 * 3),
    ],
)
def test_zeros_around_the_image_are_the_convolutions(tmp_path, own, pads, outputs):
    g = Graph(2, 5, 5)
    g("Pad", g.constant(value=[0, 0, 1, 0, 0, 0, 0, 1], dtype=np.int64), g.constant(value=0))
    g.conv(3, 2, 3, 3, **own)
    net = load_onnx(flat_gemm(g, 4, outputs).save(tmp_path))
    assert net.layers[0].pads == pads
    agrees(tmp_path / "m.onnx", net)


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_last_is_channels_first_with_other_weights(tmp_path, channels):
    """As tf2onnx writes what Keras flattens: only the images are not exchanged."""
    g = Graph(6, 5, channels)
    g("Mul", g.constant(channels))("Transpose", perm=[0, 3, 1, 2]).conv(4, channels, 3, 3, auto_pad="SAME_UPPER")
    g("Transpose", perm=[0, 2, 3, 1])("Add", g.constant(4))("Reshape", g.constant(value=[-1, 120], dtype=np.int64))
    g.gemm(4, 120)
    net = load_onnx(g.save(tmp_path))
    assert net.input_shape == (channels, 6, 5)
    x = np.random.default_rng(3).random((4, channels, 6, 5), np.float32)
    want = runtime(tmp_path / "m.onnx", np.ascontiguousarray(x.transpose(0, 2, 3, 1)))
    np.testing.assert_allclose(forward(net, net.pixel_map(x))[1], want, rtol=1e-5, atol=1e-5)


def test_what_is_flattened_by_its_own_size_is_read(tmp_path):
    """``view(x.size(0), -1)``, with a node beside it that nobody needs."""
    g = Graph(2, 5, 5).conv(3, 2, 3, 3)
    g.nodes += [
        helper.make_node("Sigmoid", ["t0"], ["unused"]),
        helper.make_node("Shape", ["image"], ["size"]),
        helper.make_node("Gather", ["size", g.constant(value=[0], dtype=np.int64)], ["n"]),
        helper.make_node("Concat", ["n", g.constant(value=[-1], dtype=np.int64)], ["target"], axis=0),
    ]
    net = load_onnx(g("Reshape", "target").gemm(4, 27).save(tmp_path))
    agrees(tmp_path / "m.onnx", net)


@pytest.mark.parametrize("tail", ["Softmax", "LogSoftmax"])
def test_a_softmax_at_the_end_is_left_out(tmp_path, tail):
    bare = load_onnx(Graph(6).gemm(3, 6).save(tmp_path))
    net = load_onnx(Graph(6).gemm(3, 6)(tail, axis=1)("Identity").save(tmp_path))
    np.testing.assert_array_equal(net.layers[0].weight, bare.layers[0].weight)


@pytest.mark.parametrize("tail", [None, "Sigmoid"])
def test_one_logit_is_a_threshold(tmp_path, tail):
    g = Graph(6).gemm(1, 6)
    net = load_onnx((g(tail) if tail else g).save(tmp_path))
    x = np.random.default_rng(3).standard_normal((20, *net.input_shape)).astype(np.float32)
    want = runtime(tmp_path / "m.onnx", x.reshape(20, 6))[:, 0] > (0.5 if tail else 0)
    assert net.one_logit and 0 < want.sum() < 20
    np.testing.assert_array_equal(forward(net, x)[1].argmax(axis=1), want)


def test_an_older_opset_is_refused(tmp_path):
    """In opset 6 this Sub has its constant along the rows."""
    g = Graph(1, 5, 5)
    g("Sub", g.constant(5), axis=2, broadcast=1)
    with pytest.raises(ValueError, match=r"m.onnx: opset 6: must be from 7 to"):
        load_onnx(flat_gemm(g, 3, 25).save(tmp_path, opset=6))


def test_a_graph_with_several_answers_is_refused(tmp_path):
    path = Graph(6).gemm(3, 6)("Softmax", axis=1).save(tmp_path)
    model = onnx.load(path)
    model.graph.output.append(helper.make_tensor_value_info("t0", TensorProto.FLOAT, None))
    onnx.save(model, path)
    with pytest.raises(ValueError, match=r"2 outputs \('t1', 't0'\): expected one"):
        load_onnx(path)


def test_a_recurrent_network_is_refused_by_what_takes_it():
    path = FIXTURES.parents[1] / "golden" / "recurrent" / "spar_convlstm64_W8A6C8IO6.onnx"
    with pytest.raises(ValueError, match=r"\(Scan\): it is of a recurrent network: gradloom infer .* lstm-kv260"):
        load_onnx(path)


def image_then(*steps):
    def build():
        g = Graph(2, 8, 8)
        for step in steps:
            step(g)
        return g

    return build


def conv(g):
    g.conv(4, 2, 3, 3)


def relu(g):
    g("Relu")


def node(op, *shapes, **attributes):
    return lambda g: g(op, *(g.constant(*s) for s in shapes), **attributes)


def normalised(g):
    g("BatchNormalization", *(g.constant(4) for _ in range(3)), g.constant(value=[1, 2, 3, 4]))


def conv_of(channels):
    return lambda g: g.conv(4, channels, 2, 2)


def padded(*pads, value=0, **attributes):
    return lambda g: g("Pad", g.constant(value=pads, dtype=np.int64), g.constant(value=value), **attributes)


def nan(g):
    g("Conv", g.constant(value=np.where(np.arange(72).reshape(4, 2, 3, 3) == 10, np.nan, 1)))


def integer(g):
    g("Flatten")("MatMul", g.constant(value=np.ones((128, 3)), dtype=np.int32))


@pytest.mark.parametrize(
    "build, message",
    [
        (
            image_then(conv, node("AveragePool", kernel_shape=[2, 2])),
            r"'the_AveragePool' \(AveragePool\).*not supported",
        ),
        (image_then(conv, node("Softmax")), r"\(Softmax\): axis=-1 of an input .* over the classes"),
        (image_then(conv, node("Gelu", domain="com.microsoft")), "'com.microsoft'"),
        (image_then(node("AveragePool", kernel_shape=[2, 2], name="")), r"node 't0' \(AveragePool\)"),
        (image_then(nan), r"'the_Conv' \(Conv\): its weights w0\[0?1?, ?.*\] are nan"),
        (image_then(integer), r"\(MatMul\): its inputs of .* do not fit: .*int32"),
        (image_then(node("Conv", (4, 2, 3, 3), dilations=[2, 2])), r"dilations=\[2, 2\]"),
        (image_then(node("Conv", (4, 1, 3, 3), group=2)), "group=2"),
        (image_then(node("Conv", (4, 2, 3, 3), kernel_shape=[5, 3])), r"kernel_shape=\[5, 3\]"),
        (image_then(node("Conv", (4, 2, 3))), "its weights have 3 dimensions, its input has 4"),
        (image_then(node("Conv", (4, 3, 3, 3))), "2 channels: the weight expects 3"),
        (image_then(node("Conv", (4, 2, 3, 3), pads=[3, 0, 0, 0])), r"\(Conv\).*top=3 must be less"),
        (image_then(node("Conv", (4, 2, 3, 3), pads=[0, -1, 0, 0])), r"pads=\[0, -1, 0, 0\]: expected 4"),
        (image_then(node("Conv", (4, 2, 9, 9))), r"\(Conv\).*larger than the padded input"),
        (image_then(node("MaxPool", kernel_shape=[2, 2], strides=[2, 2])), "MaxPool before the first"),
        (image_then(relu), "Relu before the first"),
        (
            image_then(conv, node("MaxPool", kernel_shape=[3, 3], strides=[2, 2])),
            r"strides=\[2, 2\]: pools must not overlap",
        ),
        (image_then(conv, node("MaxPool", kernel_shape=[2, 2])), r"strides=\[1, 1\]"),
        (image_then(conv, node("MaxPool", kernel_shape=[2, 3], strides=[2, 3])), "only square"),
        (image_then(conv, node("MaxPool", kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1])), "padded pools"),
        (image_then(conv, node("MaxPool", kernel_shape=[2, 2], strides=[2, 2], dilations=[2, 2])), "dilations"),
        (image_then(conv, node("MaxPool", kernel_shape=[4, 4], strides=[4, 4], ceil_mode=1)), "ceil_mode=1 on 6x6"),
        (image_then(conv, node("MaxPool", kernel_shape=[7, 7], strides=[7, 7])), "larger than its input 6x6"),
        (image_then(conv, relu, normalised), "follows a ReLU"),
        (image_then(conv, node("BatchNormalization", (3,), (3,), (3,), (3,))), r"\[3\], \[3\] do not fit"),
        (image_then(node("BatchNormalization", (3,), (3,), (3,), (3,))), r"'batch', 2, 8, 8\], \[3\].* do not fit"),
        (image_then(node("Sub", (3, 1, 1))), r"\(Sub\): its inputs of \['batch', 2, 8, 8\], \[3, 1, 1\] do not fit"),
        (image_then(node("Mul", (4, 2, 1, 1))), r"its inputs of \['batch', 2, 8, 8\], \[4, 2, 1, 1\] do not fit"),
        (image_then(node("Add", (1, 1, 2, 8, 8))), r"\(Add\): its constant has shape"),
        (image_then(lambda g: g("Div", g.constant(value=[[[1]], [[0]]]))), r"\(Div\): its constant holds 0"),
        (image_then(lambda g: g("Div", first=[g.constant()])), "it divides by its input"),
        (image_then(lambda g: g("Sub", g.constant(value=3, dtype=np.int64))), "do not fit: .*int64"),
        (image_then(lambda g: g("Mul", g.tensor)), "branches are not supported"),
        (image_then(conv, node("Mul", (4, 6, 6))), r"'the_Mul' \(Mul\): its constant differs within a channel"),
        (image_then(conv, relu, node("Sub", ())), r"\(Sub\): it follows a ReLU"),
        (image_then(node("Sub", ()), relu), "Relu before the first"),
        (image_then(conv, node("Flatten", axis=2)), r"\[404, 36\] of an input \['batch', 4, 6, 6\]: .* the batch"),
        (
            image_then(conv, lambda g: g("Reshape", g.constant(value=[0, 12, 12], dtype=np.int64))),
            r"\(Reshape\): the network ends here",
        ),
        (image_then(conv, node("Gemm", (144, 3), (3,))), r"\(Gemm\): its inputs of \['batch', 4, 6, 6\], .* rank 2"),
        (
            image_then(conv, node("Flatten"), node("Gemm", (143, 3), (3,))),
            r"shape \['batch', 144\]: its weights take 143",
        ),
        (image_then(conv, node("Flatten"), node("Gemm", (144, 3), (3,), transA=1)), "transA=1"),
        (image_then(conv, node("Flatten"), node("Gemm", (144, 3), (2, 3))), r"its bias has shape \[2, 3\]"),
        (image_then(conv, node("Add", (4, 6, 6))), "differs within a channel"),
        (image_then(conv, relu, node("Add", (4, 1, 1))), "follows a ReLU"),
        (image_then(conv, node("Clip", (), ())), r"operator Clip \(ReLU6 .* ReLU alone"),
        (image_then(padded(0, 0, 1, 1, 0, 0, 0, 0), relu), r"\(Relu\): it follows a Pad"),
        (image_then(padded(0, 0, 1, 1, 0, 0, 0, 0)), "not computed from the input by any layer"),
        (image_then(conv, padded(0, 0, 1, 1, 0, 0, 0, 0)), r"\(Pad\): no Conv follows it"),
        (image_then(padded(0, 1, 0, 0, 0, 0, 0, 0)), r"pads=\[0, 1, .* only zeros around the image"),
        (image_then(padded(0, 0, -1, 0, 0, 0, 0, 0)), r"pads=\[0, 0, -1, .* only zeros around"),
        (image_then(padded(0, 0, 1, 0, 0, 0, 0, 0, value=0.5)), r"it pads with 0.5: only 0"),
        (image_then(padded(0, 0, 1, 0, 0, 0, 0, 0, mode="edge")), r"mode='edge': only constant"),
        (image_then(node("Conv", (4, 2, 3, 3), auto_pad="VALID", pads=[1, 0, 0, 0])), "one of them must be left out"),
        (image_then(node("Transpose", perm=[0, 1, 3, 2]), conv), r"\(Conv\): its input's axes .* channels last"),
        (image_then(node("Transpose", perm=[0, 2, 1, 3]), conv_of(8)), r"\(Conv\): its input's axes are exchanged"),
        (image_then(node("Transpose", perm=[1, 0, 2, 3])), r"perm=\[1, 0, 2, 3\]: the first .* the batch"),
        (image_then(node("Flatten"), node("Gemm", (128, 3), (3,)), node("Sigmoid")), "behind one logit"),
        (image_then(node("Flatten"), node("Gemm", (128, 1), (1,)), node("Softmax")), "one logit, .* the same"),
        (image_then(node("Flatten"), node("Gemm", (128, 3), (3,)), node("Softmax", axis=0)), "axis=0"),
        (
            image_then(node("Flatten"), node("Gemm", (128, 3), (3,)), node("Softmax"), node("Gemm", (3, 3), (3,))),
            r"\(Gemm\): it follows node 'the_Softmax' \(Softmax\): only changes of the shape",
        ),
        (image_then(conv), "must be a Dense"),
        (image_then(conv, node("Flatten"), node("Gemm", (144, 3), (3,)), relu), "without ReLU"),
    ],
)
def test_what_is_not_supported_is_refused_by_node(tmp_path, build, message):
    with pytest.raises(ValueError, match=message) as error:
        load_onnx(build().save(tmp_path))
    assert "m.onnx" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["average_pool.dynamo", "average_pool.script", "branch.dynamo", "branch.script"])
def test_exported_networks_that_are_not_supported_are_refused_by_node(name):
    with pytest.raises(ValueError, match=r"node '\S+' \((AveragePool|Add)\)"):
        load_onnx(FIXTURES / f"{name}.onnx")


@pytest.mark.parametrize("keep", [0.0, 0.001, 0.25, 0.6, 0.95, 0.999])
def test_a_truncated_file_is_refused(tmp_path, keep):
    content = (datasets.DATA / "lenet5.onnx").read_bytes()
    (tmp_path / "m.onnx").write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(ValueError, match="m.onnx"):
        load_onnx(tmp_path / "m.onnx")


def test_missing_or_truncated_external_data_is_refused(tmp_path):
    shutil.copy(FIXTURES / "mlp.dynamo.onnx", tmp_path)
    with pytest.raises(ValueError, match="external data"):
        load_onnx(tmp_path / "mlp.dynamo.onnx")
    content = (FIXTURES / "mlp.dynamo.onnx.data").read_bytes()
    (tmp_path / "mlp.dynamo.onnx.data").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="external data"):
        load_onnx(tmp_path / "mlp.dynamo.onnx")


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        load_onnx(tmp_path / "none.onnx")
    (tmp_path / "m.onnx").write_text("certainly not a protocol buffer")
    with pytest.raises(ValueError, match="m.onnx"):
        load_onnx(tmp_path / "m.onnx")
    np.savez(tmp_path / "a.npz", x=1)
    (tmp_path / "m.onnx").write_bytes((tmp_path / "a.npz").read_bytes())
    with pytest.raises(ValueError, match=r"m.onnx: expected an ONNX model; it is an archive of NumPy"):
        load_onnx(tmp_path / "m.onnx")


def test_inputs_of_unknown_or_other_size_are_refused(tmp_path):
    with pytest.raises(ValueError, match="all but the batch fixed"):
        load_onnx(Graph(1, "h", "w").conv(2, 1, 3, 3).save(tmp_path))
    with pytest.raises(ValueError, match=r"input_shape=\(1, 3, 3\): the model's input holds \[16\]"):
        load_onnx(Graph(16).gemm(3, 16).save(tmp_path), input_shape=(1, 3, 3))
