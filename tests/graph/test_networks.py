"""Networks of all kinds, and MLPerf Tiny's four with its own weights: equal to onnxruntime, and they learn."""

from pathlib import Path

import numpy as np
import pytest

from gradloom.graph.descent import FloatDescent, Momentum
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.methods import METHODS, lora
from gradloom.graph.onnx.load import load_network, network_of
from gradloom.graph.training import FloatTraining, before_loss

from .corpus import CORPUS
from .made import agreement

GOLDEN = Path(__file__).parents[1] / "golden/networks"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.onnx"))
#: Parameters, and operations of the list.
SIZES = {
    "mlperf_ad01": (265_864, 19),
    "mlperf_kws_dscnn": (22_604, 21),
    "mlperf_resnet8": (77_706, 22),
    "mlperf_vww_mobilenet": (210_850, 57),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_network_computes_what_onnxruntime_did(name, dtype):
    network, kept = load_network(GOLDEN / f"{name}.onnx"), np.load(GOLDEN / f"{name}.npz")
    assert (network.parameters, len(network.operations)) == SIZES[name]
    (made,) = FloatReading(network, dtype=dtype).run(kept["x"])
    assert np.abs(made - kept["y"]).max() <= 1e-5 * np.abs(kept["y"]).max()


@pytest.mark.parametrize("method", ["lora", *METHODS])
def test_a_benchmark_network_learns(method):
    """Labels turned around: every method makes the loss fall, and changes nothing but its own weights."""
    network = before_loss(load_network(GOLDEN / "mlperf_kws_dscnn.onnx"), "classes")
    kept = np.load(GOLDEN / "mlperf_kws_dscnn.npz")
    learning = lora(network, "linear,conv", rank=2) if method == "lora" else METHODS[method](network)
    training = FloatTraining(learning, "classes", Momentum(0.01, 0.9) if method == "full" else FloatDescent(3e-3))
    before = dict(training.reading.values)
    crossing, labels = training.prepare(kept["x"]), (kept["y"].argmax(1) + 1) % 12
    losses = [training.epoch(crossing, labels, 4, np.arange(8)) for _ in range(6)]
    assert losses[-1] < 0.9 * losses[0]
    changed = {name for name, value in training.reading.values.items() if value is not before[name]}
    assert changed == set(learning.learners)


def test_what_never_changes_runs_once_and_to_the_same_effect():
    network = before_loss(load_network(GOLDEN / "mlperf_resnet8.onnx"), "classes")
    x = np.load(GOLDEN / "mlperf_resnet8.npz")["x"][:3]
    training = FloatTraining(lora(network, "last:2"), "classes", FloatDescent(1e-3))
    assert len(training.frozen) == 16 and len(training.learnt) == 5
    crossing = training.prepare(x, batch=2)
    assert {len(each) for each in crossing.values()} == {3}
    (want,) = FloatReading(network, dtype=np.float32).run(x)
    np.testing.assert_allclose(training.logits(crossing).reshape(want.shape), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CORPUS)
def test_a_network_is_taken_and_computes_what_onnxruntime_does(name):
    model = CORPUS[name]()
    network = network_of(model)
    assert agreement(model, network, FloatReading(network))[0] <= 1e-5


def test_there_are_sixty():
    assert len({name.partition("-")[0] for name in CORPUS}) >= 60


@pytest.mark.parametrize("name", {name.partition("-")[0]: name for name in CORPUS}.values())
def test_gradients_are_slopes(name):
    """Along random directions of all weights and inputs' layers: the first half of the list is behind weights."""
    network = network_of(CORPUS[name]())
    reading = FloatReading(network)
    random = np.random.default_rng(3)
    feeds = {port.name: random.standard_normal((2, *port.shape)) for port in network.inputs}
    port = network.outputs[0]
    found = reading.forward(feeds)
    last = random.standard_normal(found[port.tensor.name].shape)
    gradients = reading.backward(found, {port.tensor.name: last}, set(reading.values))
    assert gradients.keys() == reading.values.keys()
    start = dict(reading.values)
    for weight in start:
        direction = random.standard_normal(start[weight].shape)
        sides = []
        for step in (1e-6, -1e-6):
            reading.values[weight] = start[weight] + step * direction
            sides.append(float((reading.forward(feeds)[port.tensor.name] * last).sum()))
        reading.values[weight] = start[weight]
        slope, size = (sides[0] - sides[1]) / 2e-6, np.abs(last).sum()
        assert abs(slope - (gradients[weight] * direction).sum()) <= 1e-5 * max(1, abs(slope)) + 1e-8 * size, weight
