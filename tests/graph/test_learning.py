"""Losses, optimisers, adapters: against slopes, other formulas, and PyTorch where it is installed."""

import numpy as np
import pytest
from onnx import numpy_helper

from gradloom.graph.dependence import dependent, kept
from gradloom.graph.descent import FloatDescent, Momentum
from gradloom.graph.losses import cross_entropy, logistic, squares
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.methods import METHODS, instant, lora
from gradloom.graph.onnx.load import network_of
from gradloom.graph.operations import Convolution, Linear

from .corpus import CORPUS
from .made import Maker, agreement

RANDOM = np.random.default_rng(2)


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: cross_entropy(x, np.array([1, 0, 3])),
        lambda x: cross_entropy(x, np.array([1, 0, 3]), smoothing=0.1, weights=[1, 2, 0.5, 3]),
        lambda x: logistic(x, np.array([[0, 1, 1, 0.5]] * 3)),
        lambda x: squares(x, np.ones((3, 4))),
    ],
    ids=["classes", "smoothed and weighted", "labels", "values"],
)
def test_the_gradient_of_a_loss_is_its_slope(loss):
    x, direction = RANDOM.standard_normal((2, 3, 4))
    slope = (loss(x + 1e-6 * direction)[0] - loss(x - 1e-6 * direction)[0]) / 2e-6
    assert slope == pytest.approx((loss(x)[1] * direction).sum(), rel=1e-6)


def test_a_loss_of_known_value():
    x = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]))
    assert cross_entropy(x, np.array([0, 2]))[0] == pytest.approx(-np.log([0.5, 0.8]).mean())
    weighted = cross_entropy(x, np.array([0, 2]), weights=[3, 1, 1])[0]
    assert weighted == pytest.approx(-(3 * np.log(0.5) + np.log(0.8)) / 4)
    smooth = cross_entropy(x[:1], np.array([0]), smoothing=0.3)[0]
    assert smooth == pytest.approx(-(0.8 * np.log(0.5) + 0.2 * np.log(0.25)))
    assert logistic(np.array([[0.0, 2.0]]), np.array([[1, 0]]))[0] == pytest.approx((np.log(2) + np.log1p(np.e**2)) / 2)


def test_optimisers_take_the_steps_of_their_formulas():
    values, g = {"w": np.array([1.0, -2.0])}, np.array([0.5, 4.0])
    momentum = Momentum(0.1, 0.9)
    momentum(values, {"w": g})
    momentum(values, {"w": g})
    np.testing.assert_allclose(values["w"], np.array([1.0, -2.0]) - 0.1 * g * 2.9)
    values = {"w": np.array([1.0, -2.0])}
    Momentum(0.1, weight_decay=0.5)(values, {"w": g})
    np.testing.assert_allclose(values["w"], np.array([1.0, -2.0]) * 0.95 - 0.1 * g)
    values = {"w": np.array([1.0, -2.0])}
    FloatDescent(0.1, weight_decay=0.5)(values, {"w": g})
    # The first step is the rate, whatever the gradient, after the decay.
    np.testing.assert_allclose(values["w"], np.array([1.0, -2.0]) * 0.95 - 0.1, rtol=1e-6)


@pytest.mark.parametrize("name", ["resnet-13", "cct-14", "unet_of_noise-21", "tcn-18", "mobilenet-18"])
def test_adapters_are_merged_weights_and_have_their_gradients(name):
    """``W x + s B A x`` is ``(W + s B A) x``, for kernels too; and the gradients are slopes."""
    network = network_of(CORPUS[name]())
    learning = lora(network, "conv,linear" if name != "cct-14" else "linear", rank=1, alpha=3)
    reading, random = FloatReading(learning.network), np.random.default_rng(4)
    for weight in learning.learners:
        reading.values[weight] = random.standard_normal(reading.values[weight].shape) * 0.3
    feeds = {port.name: random.standard_normal((2, *port.shape)) for port in network.inputs}
    merged = FloatReading(network)
    for each in learning.network.operations:
        if isinstance(each, Linear | Convolution) and each.rank:
            a, b = (reading.values[weight.name] for weight in each.adapter)
            product = (b.reshape(len(b), -1) @ a.reshape(len(a), -1)).reshape(each.shape)
            merged.values[f"{each.layer}.weight"] = merged.values[f"{each.layer}.weight"] + 3 * product
    (want,), (made,) = merged.run(feeds), reading.run(feeds)
    np.testing.assert_allclose(made, want, atol=1e-9 * np.abs(want).max())
    name = learning.network.outputs[0].tensor.name
    found = reading.forward(feeds)
    last = random.standard_normal(found[name].shape)
    gradients = reading.backward(found, {name: last}, learning.learners)
    assert gradients.keys() == set(learning.learners)
    for weight in learning.learners[::3]:
        start, direction = reading.values[weight], random.standard_normal(gradients[weight].shape)
        sides = []
        for step in (1e-6, -1e-6):
            reading.values[weight] = start + step * direction
            sides.append((reading.forward(feeds)[name] * last).sum())
        reading.values[weight] = start
        slope = (sides[0] - sides[1]) / 2e-6
        assert slope == pytest.approx((gradients[weight] * direction).sum(), rel=1e-4, abs=1e-6 * np.abs(last).sum())


def test_what_learns_is_what_a_method_says():
    network = network_of(CORPUS["cct-14"]())
    for name, parts in (("head", {"weight", "bias"}), ("bias", {"weight", "bias"})):
        learners = METHODS[name](network).learners
        assert learners and {each.rpartition(".")[2] for each in learners} <= parts
    assert METHODS["head"](network).parameters == 12 * 5 + 5
    assert METHODS["full"](network).parameters == network.parameters
    norms = sum(type(each).__name__ == "Norm" for each in network.operations)
    assert sum(each.endswith(".weight") for each in METHODS["bias"](network).learners) == norms == 5


def test_taps_reach_the_logits_past_the_network():
    """InstantFT: means of all layers' inputs are kept, and the logits of the network; what learns is behind them."""
    network = network_of(CORPUS["resnet-13"]())
    learning = instant(network, rank=2)
    operations = learning.network.operations
    layers = [each for each in network.operations if isinstance(each, Linear | Convolution)]
    # Pixels of the image itself have no tap.
    inputs = dict.fromkeys(each.i[0].name for each in layers if each.i[0] != network.inputs[0].tensor)
    crossing = [t for t in kept(operations, learning.learners)]
    assert len(crossing) == len(inputs) + 1 and network.outputs[0].tensor in crossing
    assert len(learning.learners) == 2 * len(inputs)
    reading, x = FloatReading(learning.network), RANDOM.standard_normal((2, 3, 16, 16))
    (want,) = FloatReading(network).run(x)
    np.testing.assert_array_equal(reading.run(x)[0], want)
    b = next(name for name in learning.learners if name.endswith("lora_B.weight"))
    a = b.replace("_B", "_A")
    reading.values[b] = RANDOM.standard_normal(reading.values[b].shape)
    found = reading.forward(x)
    source = found[layers[1].i[0].name]
    added = source.mean((1, 2)) @ reading.values[a].T @ reading.values[b].T
    np.testing.assert_allclose(reading.run(x)[0] - want, added, atol=1e-12)
    some = instant(network, "last:1", rank=3)
    assert some.parameters == 3 * (layers[-1].i[0].features + network.outputs[0].tensor.features)
    with pytest.raises(ValueError, match="none of these layers reads one row"):
        instant(network, layers[0].layer)


def test_what_crosses_into_the_part_that_learns_is_kept():
    network = network_of(CORPUS["resnet-13"]())
    operations = network.operations
    head = METHODS["head"](network).learners
    assert [t.shape for t in kept(operations, head)] == [(1, 1, 16)]
    assert len(dependent(operations, head)) == 1
    first = {operations[0].weights[0].name}
    assert [t.name for t in kept(operations, first)] == [network.inputs[0].tensor.name]
    # A shortcut crosses beside the last convolution's input.
    last = [each for each in operations if isinstance(each, Convolution)][-2]
    assert len(kept(operations, {last.weights[0].name})) == 2


def test_gradients_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    network = network_of(CORPUS["ds_cnn-18"]())
    reading = FloatReading(network)
    x, labels = RANDOM.standard_normal((3, 1, 49, 10)), np.array([1, 5, 7])
    held = {name: torch.tensor(value, requires_grad=True) for name, value in reading.values.items()}
    y = torch.tensor(x)
    for each in network.operations:
        if isinstance(each, Convolution):
            w, b = (held[weight.name] for weight in each.weights)
            pads = each.pads
            y = functional.pad(y, (*pads[1], *pads[0]))
            y = functional.relu(functional.conv2d(y, w, b, each.stride, groups=each.groups))
    fc = next(each for each in network.operations if isinstance(each, Linear))
    logits = functional.linear(y.mean((2, 3)), *(held[weight.name] for weight in fc.weights))
    loss = functional.cross_entropy(logits, torch.tensor(labels), label_smoothing=0.1)
    loss.backward()
    found = reading.forward(x)
    made, last = cross_entropy(found[fc.o.name], labels, smoothing=0.1)
    gradients = reading.backward(found, {fc.o.name: last}, set(held))
    assert made == pytest.approx(loss.item(), rel=1e-12)
    for name, value in held.items():
        np.testing.assert_allclose(gradients[name], value.grad.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("first", [True, False])
def test_an_adapter_in_a_file_is_the_layers_own(first):
    """Two products beside a layer: A and B learn under the layer's name, and the result is the file's."""
    g = Maker(13, 6)
    a, b = g.w(6, 2, name="A"), g.w(2, 5, name="B")
    whole, added = g.gemm(g.x, 6, 5, "fc"), g("MatMul", g("MatMul", g.x, a), b)
    model = g.model(g("Relu", g("Add", *((whole, added) if first else (added, whole)))))
    network = network_of(model)
    assert agreement(model, network, FloatReading(network))[0] <= 1e-5
    (layer,) = (each for each in network.operations if isinstance(each, Linear))
    assert (layer.layer, layer.rank) == ("fc", 2)
    names = [weight.name for weight in layer.adapter]
    assert [network.origins[name] for name in names] == ["A", "B"]
    weights = {each.name: numpy_helper.to_array(each) for each in g.weights}
    for name, own in zip(names, "AB"):
        np.testing.assert_array_equal(network.values[name], weights[own].T.astype(np.float64))


@pytest.mark.parametrize(("rank", "shown"), [(5, False), (2, True)])
def test_products_that_are_no_adapter_are_layers(rank, shown):
    """As many features between them as the layer has, or another reads those."""
    g = Maker(13, 6)
    hidden = g("MatMul", g.x, g.w(6, rank))
    made = g("Add", g.gemm(g.x, 6, 5, "fc"), g("MatMul", hidden, g.w(rank, 5)))
    model = g.model(made, *([hidden] if shown else []))
    network = network_of(model)
    assert agreement(model, network, FloatReading(network))[0] <= 1e-5
    assert [each.rank for each in network.operations if isinstance(each, Linear)] == [0, 0, 0]
