"""Backward passes of the baselines against autograd, and their work against the shapes."""

import autograd
import autograd.numpy as anp
import numpy as np
import pytest

from gradloom.models.datasets import default_split
from gradloom.models.network import ConvLayer, DenseLayer, LayerNetwork
from gradloom.models.onnx_import import load_pretrained
from gradloom.systems.images import baselines
from gradloom.systems.images.baselines import METHODS, BaselineTrainer, compare, table, work
from gradloom.systems.images.mathematics import forward


@pytest.fixture(scope="module")
def net():
    random = np.random.default_rng(1).standard_normal
    return LayerNetwork(
        name="small",
        input_shape=(2, 9, 8),
        layers=(
            ConvLayer(weight=random((3, 2, 3, 2)), bias=random(3), stride=(2, 1), pads=(1, 0, 0, 1), relu=True, pool=2),
            ConvLayer(weight=random((4, 3, 2, 2)), bias=random(4), pads=(1, 1, 0, 0)),
            DenseLayer(weight=random((5, 32)), bias=random(5), relu=True),
            DenseLayer(weight=random((3, 5)), bias=random(3)),
        ),
    )


def autograd_logits(net, parameters, x, lora):
    """Written anew with autograd's convolution by explicit windows, a loop a position."""
    for layer, values in zip(net.layers, parameters):
        w, b = (layer.weight.reshape(layer.outputs, -1), layer.bias) if lora or not values else values
        if lora and values:
            w = w + anp.dot(values[1], values[0])
        if isinstance(layer, ConvLayer):
            t, left, bottom, right = layer.pads
            x = anp.pad(x, ((0, 0), (0, 0), (t, bottom), (left, right)), "constant")
            (kh, kw), (sh, sw) = layer.kernel, layer.stride
            oh, ow = (x.shape[2] - kh) // sh + 1, (x.shape[3] - kw) // sw + 1
            y = anp.stack(
                [
                    anp.stack(
                        [
                            anp.dot(x[:, :, i * sh : i * sh + kh, j * sw : j * sw + kw].reshape(len(x), -1), w.T) + b
                            for j in range(ow)
                        ],
                        -1,
                    )
                    for i in range(oh)
                ],
                -2,
            )
            k = layer.pool
            y = y[:, :, : oh // k * k, : ow // k * k]
            y = y.reshape((len(x), layer.outputs, oh // k, k, ow // k, k))
            x = anp.max(anp.max(y, axis=5), axis=3)
        else:
            x = anp.dot(x.reshape(len(x), -1), w.T) + b
        if layer.relu:
            x = anp.maximum(x, 0)
    return x


@pytest.mark.parametrize("method", ["full", "lora-all", "lora-last"])
def test_gradients_are_autograds(net, method):
    random = np.random.default_rng(3)
    trainer = BaselineTrainer(net, method, rank=2, dtype=np.float64)
    for layer in trainer.layers:
        if layer.lora:
            layer.lora[1][:] = random.standard_normal(layer.lora[1].shape)
    parameters = [list(layer.parameters) for layer in trainer.layers]
    x, labels = random.standard_normal((5, 2, 9, 8)), np.array([0, 1, 2, 2, 0])

    def loss(parameters):
        logits = autograd_logits(net, parameters, x, method != "full")
        chosen = logits[np.arange(5), labels]
        return anp.mean(anp.log(anp.sum(anp.exp(logits), axis=1)) - chosen)

    np.testing.assert_allclose(trainer.gradients(x, labels), loss(parameters), rtol=1e-10)
    for layer, want in zip(trainer.layers, autograd.grad(loss)(parameters), strict=True):
        assert len(layer.gradients) == len(want)
        for got, other in zip(layer.gradients, want):
            np.testing.assert_allclose(got, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("method", ["full", "lora-all", "lora-last"])
def test_an_untrained_trainer_is_the_base_network(net, method):
    x = np.random.default_rng(4).standard_normal((3, 2, 9, 8))
    np.testing.assert_allclose(
        BaselineTrainer(net, method, dtype=np.float64).forward(x), forward(net, x)[1], atol=1e-12
    )


def test_work_is_counted_from_the_shapes():
    net = load_pretrained()
    cost = {method: work(net, method) for method in METHODS}
    assert cost["full"].trainable == 107_786 and cost["full"].backward == 2 * 693_000 - 117_600
    assert cost["lora-last"].trainable == cost["lora-last"].forward - 693_000 == 4 * (84 + 10)
    assert cost["lora-last"].backward == 4 * (84 + 2 * 10)
    assert cost["instantft"].trainable == cost["instantft"].forward == 4 * (2948 + 50)
    assert cost["instantft"].backward == 4 * (2948 + 100)
    assert cost["instantft"].forward_first == 693_000 + 11_992
    assert cost["lora-all"].trainable == 4 * (25 + 6 + 150 + 16 + 784 + 120 + 120 + 84 + 84 + 10)
    assert cost["lora-all"].backward > 50 * cost["instantft"].backward


@pytest.mark.parametrize("method", ["full", "lora-all", "lora-last"])
def test_trainable_is_what_the_trainer_trains(net, method):
    assert (
        sum(w.size for layer in BaselineTrainer(net, method, rank=3).layers for w in layer.parameters)
        == work(net, method, 3).trainable
    )


@pytest.mark.parametrize("method", ["full", "lora-all", "lora-last"])
def test_every_method_learns(method):
    data = default_split(0, degrees=90).limited(train=60, test=1)
    network = load_pretrained()
    losses = BaselineTrainer(network, method).train(
        network.pixel_map.activations(data.x_train), data.y_train, lr=0.02, batch=20, epochs=6, seed=0
    )
    assert len(losses) == 18 and np.mean(losses[-3:]) < 0.9 * np.mean(losses[:3])


def test_the_comparison_has_a_row_a_method():
    data = default_split(0, degrees=90).limited(train=100, test=200)
    rows = compare(load_pretrained(), data, epochs=2)
    assert [row.method for row in rows] == list(METHODS)
    assert len({row.accuracy_before for row in rows}) == 1
    for row in rows:
        assert row.backward_macs == 100 * work(load_pretrained(), row.method).backward
    assert table(rows).count("\n") == 4


def test_unknown_methods_are_refused(net):
    with pytest.raises(ValueError, match="method='dora': must be one of full, lora-all"):
        work(net, "dora")
    with pytest.raises(ValueError, match="use finetune_float"):
        BaselineTrainer(net, "instantft")


def test_the_command_prints_the_table(capsys):
    baselines.main(["--methods", "lora-last", "--limit", "40", "--test", "50", "--epochs", "1", "--json"])
    assert '"method": "lora-last"' in capsys.readouterr().out
