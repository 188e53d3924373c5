"""Shapes, sizes and counts of a network, and what it refuses."""

import numpy as np
import pytest

from gradloom.models.network import ConvLayer, DenseLayer, LayerNetwork
from gradloom.models.onnx_import import load_pretrained
from gradloom.systems.held_out import cross_entropy
from gradloom.systems.images.mathematics import forward


def conv(o=2, i=1, k=3, **more):
    return ConvLayer(**{"weight": np.ones((o, i, k, k)), "bias": np.zeros(o), **more})


def dense(o, i, **more):
    return DenseLayer(**{"weight": np.ones((o, i)), "bias": np.zeros(o), **more})


def test_the_pretrained_network_is_instantfts_lenet():
    net = load_pretrained()
    assert net.parameters == 107_786
    assert net.taps == (784, 1176, 784, 120, 84)
    assert net.shapes == ((1, 28, 28), (6, 14, 14), (16, 7, 7), (120,), (84,), (10,))
    assert net.classes == 10
    assert net.layer_macs == (117_600, 470_400, 94_080, 10_080, 840) and net.macs == 693_000
    assert net.layer_names == ("conv1", "conv2", "fc1", "fc2", "fc3")
    assert net.adapter_parameters(4) == 4 * (784 + 1176 + 784 + 120 + 84) + 5 * 4 * 10


def test_stride_padding_and_pool_give_the_shape():
    layer = ConvLayer(weight=np.ones((2, 1, 3, 2)), bias=np.zeros(2), stride=(2, 1), pads=(1, 0, 0, 1), pool=2)
    assert layer.convolved((1, 9, 7)) == (2, 4, 7)
    assert layer.output_shape((1, 9, 7)) == (2, 2, 3)
    assert layer.macs((1, 9, 7)) == 4 * 7 * 2 * 6


def test_made_names_keep_clear_of_given_ones():
    layers = (dense(4, 4, name="fc2"), dense(4, 4), dense(4, 4), dense(2, 4, name="out"))
    assert LayerNetwork(name="n", input_shape=(1, 1, 4), layers=layers).layer_names == ("fc2", "fc3", "fc4", "out")


def test_weights_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        load_pretrained().layers[0].weight[0] = 0


def test_nameless_layers_are_named_by_kind_and_place():
    assert LayerNetwork(name="n", input_shape=(1, 4, 4), layers=(conv(), dense(5, 8), dense(3, 5))).layer_names == (
        "conv1",
        "fc1",
        "fc2",
    )


def test_one_logit_becomes_two_with_the_same_loss():
    """Cross-entropy of (0, z) is binary cross-entropy of z, and its gradient that of z."""
    net = LayerNetwork(name="n", input_shape=(1, 1, 3), layers=(dense(1, 3, weight=[[1.0, -2.0, 0.5]], bias=[0.25]),))
    assert net.one_logit and net.classes == 2 and not load_pretrained().one_logit
    x, labels = np.random.default_rng(1).standard_normal((8, 1, 1, 3)), np.arange(8) % 2
    logits = forward(net, x)[1]
    z = x[:, 0, 0] @ [1, -2, 0.5] + 0.25
    np.testing.assert_array_equal(logits, np.stack([0 * z, z], axis=1))
    losses, gradients = cross_entropy(logits, labels)
    np.testing.assert_allclose(losses, np.log1p(np.exp(z)) - labels * z)
    np.testing.assert_allclose(gradients[:, 1], 1 / (1 + np.exp(-z)) - labels)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: conv(weight=np.ones((2, 1, 3))), r"conv weight has shape \(2, 1, 3\): expected 4"),
        (lambda: conv(weight=np.ones((0, 1, 3, 3))), "at least 1"),
        (lambda: conv(bias=np.zeros(3)), "conv bias has 3 values: expected 2"),
        (lambda: conv(weight=np.full((2, 1, 3, 3), np.nan)), r"conv weight\[0, 0, 0, 0\] is nan"),
        (lambda: conv(stride=(0, 1)), r"conv stride=\(0, 1\)"),
        (lambda: conv(pads=(0, 0, 0)), r"conv pads=\(0, 0, 0\)"),
        (lambda: conv(pads=(3, 0, 0, 0)), "top=3 must be less than the kernel's 3"),
        (lambda: conv(pool=0), "conv pool=0"),
        (lambda: dense(2, 3, bias=np.zeros(1)), "dense bias has 1 values: expected 2"),
        (lambda: dense(2, 3, bias=[0, np.inf]), r"dense bias\[1\] is inf"),
        (lambda: LayerNetwork(name="n", input_shape=(1, 4, 4), layers=()), "layers is empty"),
        (lambda: LayerNetwork(name="n", input_shape=(1, 4, 4), layers=("x",)), r"layers\[0\] is a str"),
        (lambda: LayerNetwork(name="n", input_shape=(1, 0, 4), layers=(dense(2, 4),)), r"input_shape=\(1, 0, 4\)"),
        (lambda: LayerNetwork(name="n", input_shape=(1, 4, 4), layers=(conv(),)), "must be a Dense"),
        (lambda: LayerNetwork(name="n", input_shape=(1, 1, 4), layers=(dense(2, 4, relu=True),)), "without ReLU"),
        (
            lambda: LayerNetwork(name="n", input_shape=(1, 4, 4), layers=(conv(), dense(2, 9))),
            "fc1: .*8 elements.*expects 9",
        ),
        (
            lambda: LayerNetwork(name="n", input_shape=(2, 4, 4), layers=(conv(), dense(2, 8))),
            "conv1: input has 2 channels",
        ),
        (lambda: LayerNetwork(name="n", input_shape=(1, 2, 4), layers=(conv(), dense(2, 8))), "kernel 3x3 is larger"),
        (lambda: LayerNetwork(name="n", input_shape=(1, 4, 4), layers=(conv(pool=3), dense(2, 8))), "pool=3 is larger"),
        (
            lambda: LayerNetwork(name="n", input_shape=(1, 1, 4), layers=(dense(4, 4), conv(), dense(2, 4))),
            "conv1: .*needs",
        ),
        (
            lambda: LayerNetwork(
                name="n", input_shape=(1, 1, 4), layers=(dense(4, 4, name="a"), dense(2, 4, name="a"))
            ),
            "'a' occurs 2 times",
        ),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
