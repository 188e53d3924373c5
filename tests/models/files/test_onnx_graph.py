"""Graphs of ONNX files, as every reader meets them."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gradloom.models.files.onnx_graph import LOWEST_OPSET, OnnxGraph

FLOAT = TensorProto.FLOAT


def model(nodes, *, sizes=("n", 4), constants=(), outputs=("y",), opset=17):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, sizes)],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in dict(constants).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def kinds(graph):
    return [each.kind for each in graph.nodes]


def test_what_no_output_needs_is_gone():
    graph = OnnxGraph(model([node("Relu", "x", "y"), node("Sigmoid", "x", "dead"), node("Neg", "dead", "deader")]))
    assert kinds(graph) == ["Relu"]


def test_a_value_that_only_its_shape_was_asked_of_is_gone():
    nodes = [
        node("Sigmoid", "x", "s"),
        node("Shape", "s", "size"),
        node("Reshape", "x size", "r"),
        node("Relu", "r", "y"),
    ]
    assert kinds(OnnxGraph(model(nodes))) == ["Reshape", "Relu"]


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Identity", "x", "i"), node("Relu", "i", "r"), node("Identity", "r", "y")],
        [node("Dropout", "x", "i"), node("Relu", "i", "y")],
        [node("Dropout", "x ratio off", "i mask"), node("Relu", "i", "y")],
    ],
)
def test_identity_and_dropout_vanish(nodes):
    graph = OnnxGraph(model(nodes, constants={"ratio": np.float32(0.5), "off": np.array(False)}))
    assert kinds(graph) == ["Relu"]
    assert graph.nodes[0].inputs == ("x",) and graph.outputs == list(graph.nodes[0].outputs)


@pytest.mark.parametrize(
    "nodes", [[node("Dropout", "x ratio on", "y")], [node("Dropout", "x", "i mask"), node("Where", "mask i x", "y")]]
)
def test_a_dropout_that_drops_is_refused(nodes):
    with pytest.raises(ValueError, match=r"\(Dropout\): .*evaluation mode"):
        OnnxGraph(model(nodes, constants={"ratio": np.float32(0.5), "on": np.array(True)}))


@pytest.mark.parametrize(
    ("attributes", "value"),
    [
        ({"value_float": 0.7}, np.float32(0.7)),
        ({"value_ints": [3, 4]}, np.array([3, 4])),
        ({"value": numpy_helper.from_array(np.float32([1, 2]))}, np.float32([1, 2])),
    ],
)
def test_constants_of_every_form_are_read(attributes, value):
    graph = OnnxGraph(model([node("Constant", "", "c", **attributes), node("Relu", "x", "y")], outputs=("y", "c")))
    np.testing.assert_array_equal(graph.constants.values["c"], value)


def test_open_sizes_have_numbers_that_no_constant_may_depend_on():
    nodes = [
        node("Shape", "x", "size"),
        node("Cast", "size", "sizes", to=FLOAT),
        node("Gather", "sizes zero", "n"),
        node("Gather", "sizes one", "four"),
        node("Mul", "x n", "a"),
        node("Mul", "a four", "y"),
    ]
    graph = OnnxGraph(model(nodes, constants={"zero": np.int64(0), "one": np.int64(1)}))
    (pin,) = graph.open_sizes
    assert graph.open_sizes[pin] == "n" and graph.shapes["x"] == (pin, 4)
    first, second = graph.nodes
    assert second.constant(1, "factor") == 4
    with pytest.raises(ValueError, match="'n' depends on a size that the file leaves open"):
        first.constant(1, "factor")


def test_shapes_go_through_computed_shapes():
    """``x.view(x.shape[0], -1)``, as PyTorch exports it."""
    nodes = [
        node("Shape", "x", "size"),
        node("Gather", "size zero", "n"),
        node("Unsqueeze", "n axes", "first"),
        node("Concat", "first rest", "target", axis=0),
        node("Reshape", "x target", "y"),
    ]
    constants = {"zero": np.int64(0), "axes": np.array([0]), "rest": np.array([-1])}
    graph = OnnxGraph(model(nodes, sizes=("n", 3, 4), constants=constants))
    assert kinds(graph) == ["Reshape"]
    assert graph.shapes["y"] == (*graph.open_sizes, 12)
    assert graph.fixed["y"] == (0, 12)


def test_nodes_come_after_their_inputs_in_any_file():
    graph = OnnxGraph(model([node("Relu", "s", "y"), node("Sigmoid", "x", "s")]))
    assert kinds(graph) == ["Sigmoid", "Relu"]


def test_a_circle_is_refused():
    with pytest.raises(ValueError, match="depends on its own result"):
        OnnxGraph(model([node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")]))


@pytest.mark.parametrize("opset", [1, LOWEST_OPSET - 1, onnx.defs.onnx_opset_version() + 1])
def test_other_opsets_are_refused(opset):
    with pytest.raises(ValueError, match=f"opset {opset}: must be from {LOWEST_OPSET} to"):
        OnnxGraph(model([node("Relu", "x", "y")], opset=opset))


@pytest.mark.parametrize(
    "wrong",
    [
        node("Relu", "x", "y", slope=0.1),
        node("Relu", "x x", "y"),
        node("Gemm", "x", "y"),
        node("Relu", "nowhere", "y"),
        node("Conv", "x w", "y", kernel_shape=[7, 7]),
    ],
)
def test_a_node_that_is_not_of_its_opset_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=rf"node 'y' \({wrong.op_type}\): "):
        OnnxGraph(model([wrong], constants={"w": np.ones((1, 4, 3, 3), np.float32)}))


def test_an_attribute_that_nobody_read_is_refused():
    nodes = [node("Gemm", "x w", "y", alpha=1.0, transA=0, transB=1, beta=0.5)]
    graph = OnnxGraph(model(nodes, constants={"w": np.ones((2, 4), np.float32)}))
    with pytest.raises(ValueError, match=r"node 'y' \(Gemm\): attribute beta=0.5 is not supported"):
        graph.each(lambda each: each.attribute("transB"))
    graph = OnnxGraph(model(nodes, constants={"w": np.ones((2, 4), np.float32)}))
    with pytest.raises(ValueError, match="attribute transB=1"):
        graph.each(lambda each: each.attribute("beta"))
    graph.each(lambda each: [each.attribute(name) for name in ("beta", "transB")])


def test_attributes_have_the_defaults_of_their_opset():
    (soft,) = OnnxGraph(model([node("Softmax", "x", "y")], opset=11)).nodes
    assert soft.attribute("axis") == 1
    (soft,) = OnnxGraph(model([node("Softmax", "x", "y")], opset=13)).nodes
    assert soft.attribute("axis") == -1


def test_bounds_come_as_inputs_or_as_attributes():
    wanted = [1, 3]
    (new,) = OnnxGraph(
        model([node("Slice", "x a b", "y")], constants={"a": np.array([1]), "b": np.array([3])}, opset=13)
    ).nodes
    (old,) = OnnxGraph(model([node("Slice", "x", "y", starts=[1], ends=[3])], opset=9)).nodes
    for each in (new, old):
        assert each.integers(1, "starts", "starts") + each.integers(2, "ends", "ends") == wanted


def test_what_is_missing_or_computed_is_refused():
    (gemm,) = OnnxGraph(model([node("Gemm", "x x", "y")], sizes=(4, 4))).nodes
    with pytest.raises(ValueError, match="its weights 'x' is computed by the network"):
        gemm.weights(1)
    with pytest.raises(ValueError, match="has no input 3"):
        gemm.source(2)
    assert gemm.optional(2) is None and not gemm.is_constant(1)


def test_what_an_inner_graph_reads_is_needed():
    body = helper.make_graph(
        [node("Add", "state outside", "next"), node("Identity", "next", "seen")],
        "body",
        [helper.make_tensor_value_info(name, FLOAT, (4,)) for name in ("state", "step")],
        [helper.make_tensor_value_info(name, FLOAT, (4,)) for name in ("next", "seen")],
    )
    nodes = [node("Sigmoid", "start", "outside"), node("Scan", "start x", "last y", body=body, num_scan_inputs=1)]
    graph = OnnxGraph(model(nodes, constants={"start": np.zeros(4, np.float32)}, sizes=(5, 4)))
    assert kinds(graph) == ["Sigmoid", "Scan"]
    inner = OnnxGraph(graph.model, body, {"outside": np.ones(4, np.float32)})
    assert kinds(inner) == ["Add"] and inner.outputs == ["next", "next"]


def test_a_split_into_no_number_of_parts_does_not_end_the_process():
    with pytest.raises(ValueError, match=r"\(Split\): .*neither num_outputs nor sizes"):
        OnnxGraph(model([node("Split", "x", "y z")], outputs=("y", "z"), opset=21))
