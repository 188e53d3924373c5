"""What is refused: by name, all at once, and with what to do."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gradloom.graph.losses import cross_entropy, logistic, squares
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.methods import left_out, lora, targets
from gradloom.graph.onnx.load import load_network, network_of
from gradloom.graph.training import before_loss

from .corpus import CORPUS
from .made import Maker


def refusal(model):
    with pytest.raises(ValueError) as error:
        network_of(model)
    said = str(error.value)
    assert "\n" not in said
    return said


def test_all_operators_without_a_reader_are_named_at_once():
    g = Maker(13, 3, 4, 4)
    x = g("Cosh", g("Relu", g("LpPool", g.x, kernel_shape=[2, 2])))
    said = refusal(g.model(g("Atan", x)))
    assert "'/net/LpPool_0' (LpPool), '/net/Cosh_2' (Cosh), '/net/Atan_3' (Atan): no such operation; taken are" in said
    assert "Relu" in said.partition("taken are")[2]


@pytest.mark.parametrize("count, more", [(8, ": no such operation"), (9, " and 1 more: no such operation")])
def test_eight_nodes_are_named_and_the_others_counted(count, more):
    g = Maker(13, 3, 4, 4)
    x = g.x
    for _ in range(count):
        x = g("Cosh", x)
    said = refusal(g.model(x))
    assert f"'/net/Cosh_7' (Cosh){more}; taken are" in said and "Cosh_8" not in said


def test_all_nodes_that_cannot_be_read_are_named_at_once():
    g = Maker(13, 3, 4, 4)
    a = g("Max", g.x, g("Relu", g.x))
    b = g("Pow", g.x, g.constant(np.ones((3, 1, 1))))
    said = refusal(g.model(g("Add", a, b)))
    assert "Max_1" in said and "Pow_2" in said and "Add" not in said


def test_a_loop_is_named():
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Identity", ["h"], ["k"])],
        "body",
        [
            helper.make_tensor_value_info("n", TensorProto.INT64, ()),
            helper.make_tensor_value_info("c", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("h", TensorProto.FLOAT, (3,)),
        ],
        [
            helper.make_tensor_value_info("d", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("k", TensorProto.FLOAT, (3,)),
        ],
    )
    g = Maker(13, 3)
    y = g("Loop", g.integers(3), "", g.x, body=body)
    assert "(Loop): a network with a loop" in refusal(g.model(y))


def test_an_open_axis_is_named():
    g = Maker(13, "length", 8)
    assert "input 'x': axis 1 is left open (length)" in refusal(g.model(g("Relu", g.x)))


def test_an_integer_graph_is_to_be_exported_in_float():
    g = Maker(13, 8)
    y = g("QuantizeLinear", g.x, g.constant(0.1), g.constant(0, dtype=np.int8))
    said = refusal(g.model(g("DequantizeLinear", y, g.constant(0.1), g.constant(0, dtype=np.int8))))
    assert "'/net/QuantizeLinear_0' (QuantizeLinear)" in said and "before its quantisation" in said


def test_weights_that_are_not_finite_are_named():
    g = Maker(13, 8)
    weights = np.ones((4, 8))
    weights[2, 3] = np.nan
    assert "fc.weight[2, 3] are nan: weights must be finite" in refusal(
        g.model(g("Gemm", g.x, g.constant(weights, "fc.weight"), transB=1))
    )


def test_inputs_that_the_data_do_not_name_are_listed():
    network = network_of(CORPUS["cross_attention-13"]())
    with pytest.raises(ValueError, match="inputs='x', 'prompt': the network has several"):
        FloatReading(network).run(np.zeros((1, 6, 12)))


def test_data_of_another_shape_are_refused():
    network = network_of(CORPUS["resnet-13"]())
    with pytest.raises(ValueError, match=r"input 'x' has shape \[3, 16, 17\]: must be \[3, 16, 16\]"):
        FloatReading(network).run(np.zeros((1, 3, 16, 17)))


@pytest.mark.parametrize(
    "make,said",
    [
        (lambda g: g("MaxPool", g.x, outputs=2, kernel_shape=[2, 2]), "its indices are used"),
        (lambda g: (g("Softmax", g.x, axis=0),), "over the samples"),
        (lambda g: (g("Resize", g.x, "", g.constant([1, 1, 2, 2]), mode="cubic"),), "mode='cubic'"),
        (lambda g: (g("ReduceMean", g.x, axes=[0]),), "over the samples"),
        (lambda g: (g("Transpose", g("Relu", g.x), perm=[1, 0, 2, 3]),), "its axis 0 is not the samples"),
    ],
)
def test_a_node_that_means_more_than_is_taken_is_refused(make, said):
    g = Maker(13, 3, 4, 4)
    assert said in refusal(g.model(*make(g)))


def test_a_file_is_named(tmp_path):
    path = tmp_path / "net.onnx"
    with pytest.raises(ValueError, match="net.onnx: no such file"):
        load_network(path)
    g = Maker(13, 3)
    onnx.save(g.model(g("Cosh", g.x)), path)
    with pytest.raises(ValueError, match=r"net.onnx: node '/net/Cosh_0' \(Cosh\): no such operation"):
        load_network(path)


def test_targets_and_ranks_name_what_there_is():
    network = network_of(CORPUS["mobilenet-13"]())
    with pytest.raises(ValueError, match="targets=block: no layer of this name; there are conv"):
        targets(network, "block")
    depthwise = next(each.layer for each in targets(network, "*") if getattr(each, "groups", 1) > 1)
    for asked in ("conv", "last:99"):
        assert depthwise not in {each.layer for each in targets(network, asked)}
    assert depthwise in left_out(network, "conv,last:1") and not left_out(network, "last:1,linear")
    assert left_out(network, f"conv,{depthwise}") == [each for each in left_out(network, "conv") if each != depthwise]
    grouped = [each for each in network.operations if getattr(each, "layer", "") == depthwise]
    alone = network.with_operations(grouped)
    with pytest.raises(ValueError, match=f"targets=conv: channels of all of these .* transposed: {depthwise}; name"):
        targets(alone, "conv")
    with pytest.raises(ValueError, match=f"targets={depthwise}: its channels are in groups"):
        lora(network, depthwise)
    with pytest.raises(ValueError, match="rank=9: must be from 1 to 4 beside"):
        lora(network, "linear", rank=9)


def test_a_loss_must_fit_the_last_layer():
    network = network_of(CORPUS["softmax-13"]())
    assert len(before_loss(network, "classes").operations) == len(network.operations) - 1
    with pytest.raises(ValueError, match="loss=labels: the network ends with a softmax"):
        before_loss(network, "labels")
    with pytest.raises(ValueError, match="loss=hinge: must be one of classes, labels, values"):
        before_loss(network, "hinge")
    with pytest.raises(ValueError, match="labels=0..5: must be from 0 to 4"):
        cross_entropy(np.zeros((2, 5)), np.array([0, 5]))
    with pytest.raises(ValueError, match=r"targets=\[2, 3\]: must be \[2, 5\]"):
        squares(np.zeros((2, 5)), np.zeros((2, 3)))
    with pytest.raises(ValueError, match="targets=0..2: must be from 0 to 1"):
        logistic(np.zeros((1, 3)), np.array([[0, 1, 2]]))
