"""Gradients against autograd, layers against plain loops, number formats against what was measured."""

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from scipy.signal import correlate

from gradloom.models.datasets import Dataset, default_split
from gradloom.models.network import ConvLayer, DenseLayer, LayerNetwork
from gradloom.models.onnx_import import load_pretrained
from gradloom.systems.held_out import cross_entropy
from gradloom.systems.images.mathematics import (
    NF4_LEVELS,
    FloatCache,
    adapter_logits,
    cached_value,
    evaluate_float,
    finetune_float,
    forward,
    int8_roundtrip,
    loss_and_gradients,
    nf4_roundtrip,
    train_adapters,
)
from gradloom.systems.images.program.schedule import epoch_order, initial_adapters


def problem(seed=0, n=6, taps=(9, 5), classes=4, rank=2):
    random = np.random.default_rng(seed).standard_normal
    adapters = [(random((rank, t)), random((classes, rank))) for t in taps]
    return adapters, [random((n, t)) for t in taps], random((n, classes)), np.arange(n) % classes


def autograd_loss(adapters, taps, base, labels, weights=1.0):
    logits = base
    for (a, b), x in zip(adapters, taps):
        logits = logits + anp.dot(anp.dot(x, a.T), b.T)
    logits = logits - anp.max(logits, axis=1, keepdims=True)
    chosen = logits[np.arange(len(labels)), labels]
    return anp.mean(weights * (anp.log(anp.sum(anp.exp(logits), axis=1)) - chosen))


def test_gradients_are_autograds():
    adapters, taps, base, labels = problem()
    loss, gradients = loss_and_gradients(adapters, taps, base, labels)
    np.testing.assert_allclose(loss, autograd_loss(adapters, taps, base, labels), rtol=1e-12)
    want = autograd.grad(autograd_loss)(adapters, taps, base, labels)
    for pair, pair2 in zip(gradients, want, strict=True):
        for got, other in zip(pair, pair2, strict=True):
            np.testing.assert_allclose(got, other, rtol=1e-9, atol=1e-12)


def test_cross_entropy_does_not_overflow():
    loss, d = cross_entropy(np.array([[1e4, 0, -1e4], [-1e4, 0, 1e4]]), np.array([1, 2]))
    np.testing.assert_array_equal(loss, [1e4, 0])
    np.testing.assert_array_equal(d, [[1, -1, 0], [0, 0, 0]])


@pytest.mark.parametrize("momentum, schedule", [(0.0, "constant"), (0.9, "constant"), (0.9, "linear")])
@pytest.mark.parametrize("factors", [None, np.array([0.5, 3, 1, 0.25, 2])])
def test_a_step_is_sgd_with_momentum(momentum, schedule, factors):
    adapters, taps, base, labels = problem(n=5)
    cache = FloatCache(taps=taps, logits=base)
    asked = {"momentum": momentum, "schedule": schedule, "seed": 4, "weights": factors}
    losses, got = train_adapters(cache, labels, adapters, lr=0.1, batch=3, epochs=2, **asked)
    weights = [w.copy() for pair in adapters for w in pair]
    velocity = [0.0] * len(weights)
    want_losses = []
    for epoch in range(2):
        order = epoch_order(5, epoch, 4)
        for index in (order[:3], order[3:]):
            pairs = list(zip(weights[::2], weights[1::2]))
            args = ([x[index] for x in taps], base[index], labels[index])
            want_losses.append(autograd_loss(pairs, *args))
            args = (*args, 1.0 if factors is None else factors[index])
            gradients = [g for pair in autograd.grad(autograd_loss)(pairs, *args) for g in pair]
            rate = 0.1 * (1 if schedule == "constant" else 1 - (len(want_losses) - 1) / 4)
            velocity = [momentum * v + rate * g for v, g in zip(velocity, gradients)]
            weights = [w - v for w, v in zip(weights, velocity)]
    np.testing.assert_allclose(losses, want_losses, rtol=1e-9)
    for pair, a, b in zip(got, weights[::2], weights[1::2], strict=True):
        np.testing.assert_allclose(pair[0], a, rtol=1e-9)
        np.testing.assert_allclose(pair[1], b, rtol=1e-9)
    np.testing.assert_array_equal(adapters[0][0], problem(n=5)[0][0][0])  # what was given is left alone


@pytest.mark.parametrize(
    "stride, pads, pool, kernel",
    [
        ((1, 1), (0, 0, 0, 0), 1, (3, 3)),
        ((2, 1), (1, 0, 2, 1), 2, (3, 2)),
        ((1, 3), (2, 2, 2, 2), 1, (5, 5)),
        ((1, 1), (1, 1, 1, 1), 3, (3, 3)),
    ],
)
def test_taps_and_logits_are_those_of_plain_loops(stride, pads, pool, kernel):
    random = np.random.default_rng(8).standard_normal
    conv = ConvLayer(weight=random((3, 2, *kernel)), bias=random(3), stride=stride, pads=pads, relu=True, pool=pool)
    shape = conv.output_shape((2, 10, 9))
    n = int(np.prod(shape))
    net = LayerNetwork(
        name="n",
        input_shape=(2, 10, 9),
        layers=(
            conv,
            DenseLayer(weight=random((4, n)), bias=random(4), relu=True),
            DenseLayer(weight=random((3, 4)), bias=random(3)),
        ),
    )
    x = random((2, 2, 10, 9))
    taps, logits = forward(net, x)
    for s in range(2):
        padded = np.pad(x[s], ((0, 0), pads[::2], pads[1::2]))
        y = np.stack([correlate(padded, w, "valid")[0] + b for w, b in zip(conv.weight, conv.bias)])
        y = np.maximum(y[:, :: stride[0], :: stride[1]], 0)
        y = np.array(
            [
                [
                    [y[c, i * pool : (i + 1) * pool, j * pool : (j + 1) * pool].max() for j in range(shape[2])]
                    for i in range(shape[1])
                ]
                for c in range(3)
            ]
        )
        hidden = np.maximum(net.layers[1].weight @ y.ravel() + net.layers[1].bias, 0)
        for tap, want in zip(taps, (x[s].ravel(), y.ravel(), hidden), strict=True):
            np.testing.assert_allclose(tap[s], want, atol=1e-12)
        np.testing.assert_allclose(logits[s], net.layers[2].weight @ hidden + net.layers[2].bias, atol=1e-12)


def test_images_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"expected \(n, 1, 28, 28\)"):
        forward(load_pretrained(), np.zeros((1, 28, 28)))


def test_nf4_decodes_to_the_levels_of_each_block():
    x = np.concatenate([NF4_LEVELS * 3, np.zeros(48), NF4_LEVELS[::-1] * 0.5])[None]
    np.testing.assert_allclose(nf4_roundtrip(x), x, atol=1e-15)
    assert nf4_roundtrip(np.zeros((2, 70))).tolist() == np.zeros((2, 70)).tolist()


def test_nf4_error_on_gaussians_is_the_measured_one():
    x = np.random.default_rng(0).standard_normal((100, 6400))
    assert abs(np.sqrt(np.mean((nf4_roundtrip(x) - x) ** 2)) - 0.092) < 0.002


def test_int8_is_within_half_a_step_of_each_block():
    x = np.random.default_rng(0).standard_normal((3, 100))
    error = np.abs(int8_roundtrip(x) - x)
    assert (error[:, :64] <= np.abs(x[:, :64]).max(1, keepdims=True) / 254 + 1e-12).all()
    assert (error[:, 64:] <= np.abs(x[:, 64:]).max(1, keepdims=True) / 254 + 1e-12).all()


def test_unknown_caches_are_refused():
    np.testing.assert_array_equal(cached_value(np.arange(3.0), "none"), np.arange(3.0))
    with pytest.raises(ValueError, match="cache='nf8': must be one of nf4, int8, none"):
        cached_value(np.zeros(3), "nf8")


@pytest.mark.parametrize(
    "more, message",
    [
        ({"lr": 0}, "lr=0"),
        ({"lr": float("nan")}, "lr=nan"),
        ({"momentum": 1.0}, "momentum=1.0"),
        ({"epochs": 0}, "epochs=0"),
        ({"batch": 0}, "batch=0"),
    ],
)
def test_bad_parameters_are_refused(more, message):
    adapters, taps, base, labels = problem()
    with pytest.raises(ValueError, match=message):
        train_adapters(FloatCache(taps=taps, logits=base), labels, adapters, **more)


def test_a_loss_that_is_not_finite_ends_it_with_the_adapters_before():
    adapters, taps, base, labels = problem()
    # Logits overflow float64 in the second step, adapters do not.
    train = FloatCache(taps=[tap * 1e250 for tap in taps], logits=base)
    losses, trained = train_adapters(train, labels, adapters, lr=1e-220, batch=len(labels), epochs=5)
    assert len(losses) == 1 and np.isfinite(losses).all()
    for pair, start in zip(trained, adapters):
        for one, other in zip(pair, start):
            np.testing.assert_array_equal(one, other)


def test_the_fine_tune_reaches_the_papers_accuracy():
    data = default_split(0, degrees=90).limited(test=2000)
    result = finetune_float(load_pretrained(), data, seed=0, dtype=np.float32)
    assert len(result.loss) == 520 and np.mean(result.loss[-52:]) < 0.2 * np.mean(result.loss[:52])
    assert 0.10 < result.accuracy_before < 0.20
    assert result.accuracy_after > 0.925


def test_evaluating_again_gives_the_same_accuracies():
    net, data = load_pretrained(), default_split(0, degrees=90).limited(train=100, test=300)
    result = finetune_float(net, data, epochs=2)
    assert evaluate_float(net, data.x_test, data.y_test) == result.accuracy_before
    assert evaluate_float(net, data.x_test, data.y_test, result.adapters) == result.accuracy_after


def test_other_numbers_of_classes_are_refused():
    data = default_split(0).limited(train=5, test=5)
    few = Dataset(x_train=data.x_train, y_train=data.y_train, x_test=data.x_test, y_test=data.y_test, classes=12)
    with pytest.raises(ValueError, match="data has 12 classes: lenet5 has 10 logits"):
        finetune_float(load_pretrained(), few)


def test_progress_is_reported_every_step():
    steps = []
    finetune_float(
        load_pretrained(),
        default_split(0).limited(train=30, test=10),
        epochs=2,
        batch=20,
        progress=lambda step, loss: steps.append(step),
    )
    assert steps == [1, 2, 3, 4]


def test_first_adapters_leave_the_base_logits_alone():
    adapters = initial_adapters((9, 5), 4, 2, 0)
    _, taps, base, _ = problem()
    np.testing.assert_array_equal(adapter_logits(adapters, taps, base), base)
