"""Networks of all kinds, as exporters write them: taken, and equal to onnxruntime."""

import numpy as np
import pytest

from gradloom.graph.mathematics import FloatReading
from gradloom.graph.onnx.load import network_of

from .corpus import CORPUS
from .made import agreement


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
