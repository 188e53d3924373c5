"""What is refused: by name, all at once, and with what to do."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gradloom.graph.descent import FloatDescent
from gradloom.graph.losses import cross_entropy, logistic, squares
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.methods import METHODS, Learning, instant, left_out, lesser_ranks, lora, targets
from gradloom.graph.onnx.load import load_network, network_of
from gradloom.graph.training import FloatTraining, before_loss

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


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda g: g("Conv", g.x, g.w(4, 3, 3, 3), strides=[0, 1]), "strides=[0, 1]: must be above 0"),
        (lambda g: g("Conv", g.x, g.w(4, 3, 3, 3), group=0), "group=0: must be above 0"),
        (lambda g: g("Conv", g.x, g.w(4, 3, 3, 3), kernel_shape=[5, 5]), "kernel_shape=[5, 5] do not fit"),
        (lambda g: g("Conv", g.x, g.w(4, 3, 3, 3), pads=[1, -1, 1, 1]), "pads=[1, -1, 1, 1]: must be 4 numbers of 0"),
        (lambda g: g("Conv", g.x, g.w(4, 3, 3, 3), g.w(5, name="c.bias")), "c.bias has shape [5]: must be [4]"),
        (lambda g: g("MaxPool", g.x, kernel_shape=[2, 2], pads=[2, 0, 0, 0]), "must be smaller than it"),
        (lambda g: g("BatchNormalization", g.x, *(g.near(2) for _ in range(4))), "has shape [2]: must be [3]"),
        (lambda g: g("Gemm", g("Flatten", g.x), g.w(5, 49), transB=1), "[5, 49]: expected 48 inputs"),
        (lambda g: g("Gemm", g("Flatten", g.x), g.w(5, 47), transB=1), "[5, 47]: expected 48 inputs"),
        (lambda g: g("Gather", g.x, g.integers(3), axis=1), "index [3] lies beyond an axis of 3"),
        (lambda g: g("Transpose", g.x, perm=[0, 2, 1]), "perm=[0, 2, 1]: must be an order of 4 axes"),
        (lambda g: g("ReduceMean", g.x, axes=[2], keepdims=3), "keepdims=3: must be 0 or 1"),
        (lambda g: g("Split", g.x, g.integers(1, 1), axis=1, outputs=2)[0], "Mismatch between the sum of 'split' (2)"),
        (
            lambda g: g("Slice", g.x, g.integers(0), g.integers(1, 1), g.integers(1)),
            "missing input value for starts and",
        ),
    ],
)
def test_numbers_that_do_not_fit_each_other_are_named(make, said):
    """onnxruntime refuses all of these; some would read as other networks."""
    g = Maker(13, 3, 4, 4)
    assert said in refusal(g.model(g("Relu", make(g))))


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


def test_an_open_axis_is_named_where_a_node_wants_another_size():
    g = Maker(13, "length", 8)
    said = refusal(g.model(g("Add", g.x, g.constant(np.zeros((1, 5, 8))))))
    assert "do not fit" in said and "input 'x' leaves axis 1 open (length)" in said


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


def test_names_that_are_given_one_by_one_must_be_layers():
    network = network_of(CORPUS["resnet-13"]())
    first, second, *_ = (each.layer for each in targets(network, "*"))
    assert [each.layer for each in targets(network, [second, first])] == [first, second]
    assert [each.layer for each in targets(network, f" {first} ,, {first}")] == [first]
    with pytest.raises(ValueError, match="^nothing: the network has no layer of this name$"):
        targets(network, [first, "nothing"])
    with pytest.raises(ValueError, match="^targets=last:0: no layer of this name; there are "):
        targets(network, "last:0")
    with pytest.raises(ValueError, match="^targets= , : names no layer$"):
        targets(network, " , ")
    with pytest.raises(ValueError, match="^only=x: no layer of this name"):
        targets(network, "x", "only")


def test_ranks_of_an_adapter_are_from_one_to_the_smaller_side():
    g = Maker(13, 6, 4)
    network = network_of(g.model(g.linear(g("Relu", g.linear(g.x, 4, 7)), 7, 5)))
    first, second = (each.layer for each in targets(network, "linear"))
    assert lesser_ranks(network, "linear", 4) == {} and lesser_ranks(network, "linear", 5) == {first: 4}
    assert lora(network, "linear", rank=5, lesser={first: 4}).parameters == 4 * (4 + 7) + 5 * (7 + 5)
    scales = [
        each.scale for each in lora(network, "linear", rank=4, alpha=6).network.operations if hasattr(each, "scale")
    ]
    assert scales == [1.5, 1.5]
    for rank in (0, 5):
        with pytest.raises(ValueError, match=f"^rank={rank}: must be from 1 to 4 beside "):
            lora(network, "linear", rank=rank)
    with pytest.raises(ValueError, match="^method=instantft: the result has 6 rows, must have one: a row of logits$"):
        instant(network)


def test_what_a_method_learns_must_be_there():
    g = Maker(13, 6)
    plain = network_of(g.model(g("Relu", g.x)))
    with pytest.raises(ValueError, match="^method=head: the network has no linear layer and no convolution$"):
        METHODS["head"](plain)
    with pytest.raises(ValueError, match="^method=bias: these layers have no bias, and there is no norm$"):
        METHODS["bias"](plain)
    g = Maker(13, 6)
    network = network_of(g.model(g.gemm(g("Relu", g.gemm(g.x, 6, 5, "one")), 5, 3, "two")))
    assert METHODS["head"](network).learners == ("two.weight", "two.bias")
    assert METHODS["bias"](network).learners == ("one.bias", "two.bias")
    assert METHODS["bias"](network, "one").learners == ("one.bias",)
    assert METHODS["full"](network, "two").learners == ("two.weight", "two.bias")
    assert METHODS["full"](network).parameters == 6 * 5 + 5 + 5 * 3 + 3
    assert instant(network, "two", rank=2).parameters == 2 * (5 + 3)
    x = Maker(13, 4, 6)
    rows = network_of(x.model(x.gemm(x("ReduceMean", x.linear(x.x, 6, 5), axes=[1], keepdims=0), 5, 3)))
    with pytest.raises(ValueError, match="none of these layers reads one row, or what another layer has made$"):
        instant(rows, next(each.layer for each in targets(rows, "*")))
    with pytest.raises(ValueError, match="^nothing that learns reaches the result$"):
        FloatTraining(Learning(network, ("none",)), "values", FloatDescent(0.1))


def test_losses_name_what_does_not_fit():
    logits = np.zeros((2, 3))
    for labels, said in (([0], "labels=1: must be 2"), ([0, -1], "labels=-1..0: must be from 0 to 2")):
        with pytest.raises(ValueError, match=said):
            cross_entropy(logits, np.array(labels))
    with pytest.raises(ValueError, match="labels=0.0..1.0: must be from 0 to 2"):
        cross_entropy(logits, np.array([0.0, 1.0]))
    cross_entropy(logits, np.array([0, 2]), smoothing=0.999)
    for smoothing in (-0.1, 1.0):
        with pytest.raises(ValueError, match=f"smoothing={smoothing}: must be at least 0 and below 1"):
            cross_entropy(logits, np.array([0, 1]), smoothing=smoothing)
    with pytest.raises(ValueError, match="weights=2: must be 3, one a class"):
        cross_entropy(logits, np.array([0, 1]), weights=[1, 2])
    with pytest.raises(ValueError, match=r"targets=\[3, 2\]: must be \[2, 3\]"):
        squares(logits, np.zeros((3, 2)))
    assert squares(logits, np.full((2, 3, 1), 0.5))[0] == 0.25
    with pytest.raises(ValueError, match="targets=-1..0: must be from 0 to 1"):
        logistic(logits[:1], np.array([[-1, 0, 0]]))


def test_a_loss_that_is_no_number_is_told():
    g = Maker(13, 3)
    network = network_of(g.model(g.gemm(g.x, 3, 2, "one")))
    training = FloatTraining(METHODS["head"](network), "values", FloatDescent(0.1))
    kept = training.prepare(np.full((1, 3), np.inf, np.float32))
    with pytest.raises(ValueError, match="loss=(inf|nan): the step is too large or the data are not finite; lower the"):
        with np.errstate(invalid="ignore"):
            training.step(kept, np.zeros((1, 2)))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda g: g("Softmax", g("Add", g.x, g.constant(np.full((4, 4), -np.inf)))),
            "a mask that leaves nothing in a",
        ),
        (lambda g: g("Mul", g("Add", g.x, hidden(g)), g.w(4, 4)), "which has minus infinity: only a softmax takes it"),
        (lambda g: g("Relu", g("Add", g.x, hidden(g))), "which has minus infinity: only a softmax takes it"),
        (lambda g: g("Add", g.x, hidden(g)), "has minus infinity: only a softmax takes it"),
    ],
)
def test_minus_infinity_is_for_a_softmax(make, said):
    g = Maker(13, 4, 4)
    assert said in refusal(g.model(make(g)))


def hidden(g):
    """What no row sees of later ones."""
    return g.constant(np.where(np.tri(4) > 0, 0.0, -np.inf))


def test_an_input_has_a_shape_that_is_known():
    def taken(*inputs, node=("Add", "a", "b")):
        graph = helper.make_graph(
            [helper.make_node(node[0], node[1:], ["y"])],
            "net",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
            [helper.make_empty_tensor_value_info("y")],
        )
        return refusal(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))

    assert "input 'a' has no shape: export the network with one" in taken(("a", ()), ("b", ("n", 3)))
    assert "inputs 'a', 'b' differ in axis 0: it must be the samples of each" in taken(("a", (2, 3)), ("b", (1, 3)))
    turned = taken(("a", ("n", 3)), node=("Transpose", "a"))
    assert "result 'y': its axis 0 is not the samples; export the network with the batch first" in turned


def test_a_network_has_one_result_for_a_loss():
    g = Maker(13, 4)
    network = network_of(g.model(g("Relu", g.x), g("Exp", g.x)))
    with pytest.raises(ValueError, match="^model: has 2 results: targets are of one; export it with one$"):
        before_loss(network, "values")


def test_a_loss_must_fit_the_last_layer():
    g = Maker(13, 4)
    single = network_of(g.model(g("Sigmoid", g.gemm(g.x, 4, 1))))
    with pytest.raises(ValueError, match="^loss=classes: the last layer has one output; take loss=labels, or values$"):
        before_loss(single, "classes")
    assert len(before_loss(single, "labels").operations) == len(single.operations) - 1
    assert before_loss(single, "values") is single
    g = Maker(13, 4)
    pair = network_of(g.model(g("Softmax", g.gemm(g.x, 4, 2), axis=-1)))
    assert len(before_loss(pair, "classes").operations) == len(pair.operations) - 1
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
