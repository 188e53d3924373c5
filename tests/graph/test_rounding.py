"""Codes of weights that samples choose."""

from pathlib import Path

import numpy as np
import pytest

from gradloom.graph.base import Tensor
from gradloom.graph.integers import IntegerReading
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.methods import lora
from gradloom.graph.network import Network, Port
from gradloom.graph.onnx.load import load_network, network_of
from gradloom.graph.operations import Convolution, Linear
from gradloom.graph.rounding import rounded
from gradloom.rtl.formats.tiles.codes import NARROW, coded

from .corpus import CORPUS

GOLDEN = Path(__file__).parents[1] / "golden/networks"


def away(made, want):
    return np.sqrt(np.square(made - want).mean() / np.square(want - want.mean(0)).mean())


def alike(count, shape, seed):
    """Samples whose neighbours are alike, as those of pictures and sounds are."""
    made = np.random.default_rng(seed).standard_normal((count, *shape))
    for axis in range(1, made.ndim):
        made = made.cumsum(axis) / np.sqrt(made.shape[axis])
    return made


@pytest.mark.parametrize("name", ["mlperf_kws_dscnn", "mlperf_ad01"])
def test_codes_that_samples_choose_lose_less(name):
    """On other samples than those that chose."""
    network = load_network(GOLDEN / f"{name}.onnx")
    shape, scale = network.inputs[0].shape, 40 if "kws" in name else 4
    known, x = (scale * alike(count, shape, seed) for count, seed in ((100, 0), (40, 1)))
    want = FloatReading(network).run(x)[0]
    nearest, chosen = (IntegerReading(each).run(x)[0] for each in (network, rounded(network, known)))
    assert away(chosen, want) < 0.7 * away(nearest, want)


def test_later_codes_make_up_for_the_error_of_earlier_ones():
    """A layer without a bias, whose scale is the result's: nothing else could make it better."""
    x, y = Tensor("x", (), 40), Tensor("y", (), 30)
    weight = np.random.default_rng(2).standard_normal((30, 40))
    ports = [Port(t.name, t.shape, t, t.shape, (0,)) for t in (x, y)]
    network = Network((Linear((x,), y, "a", bias=False),), {"a.weight": weight}, (ports[0],), (ports[1],))
    made = rounded(network, alike(200, (40,), 0)).values["a.weight"]
    given = alike(50, (40,), 1)
    chosen, nearest = (np.square(given @ (each - weight).T).mean() for each in (made, coded(weight, NARROW).values))
    assert chosen < 0.1 * nearest


def test_weights_are_multiples_of_a_power_of_two():
    network = load_network(GOLDEN / "mlperf_resnet8.onnx")
    made = rounded(network, 100 + 40 * alike(4, network.inputs[0].shape, 0))
    for each in made.operations:
        if isinstance(each, Linear | Convolution):
            value = made.values[f"{each.layer}.weight"]
            codes = value / np.exp2(np.frexp(np.abs(value).max())[1] - 7.0)
            assert np.array_equal(codes, np.rint(codes)) and 64 <= np.abs(codes).max() <= 127, each.layer


def test_what_learns_and_layers_of_two_codes_stay_and_scales_between_change_nothing():
    """Factors pass a ReLU and a sum, but not what an adapter reads."""
    learning = lora(load_network(GOLDEN / "mlperf_resnet8.onnx"), "t9,t14", rank=2)
    network, x = learning.network, 100 + 40 * alike(6, (3, 32, 32), 3)
    layers = {each.layer for each in network.operations if isinstance(each, Linear | Convolution)}
    made = rounded(network, x, learning.learners, dict.fromkeys(layers, 2))
    for name in (*learning.learners, "t9.weight", "t14.weight"):
        np.testing.assert_array_equal(made.values[name], network.values[name], err_msg=name)
    sizes = {name: [np.abs(each.values[f"{name}.weight"]).max() for each in (made, network)] for name in layers}
    assert max(one / other for one, other in sizes.values()) > 1.2
    found, want = (FloatReading(each).forward(x) for each in (made, network))
    reads = next(each.i[0].name for each in network.operations if getattr(each, "layer", None) == "t9")
    # Biases take the mean error of sixteen bits.
    assert away(found[reads], want[reads]) < 1e-2
    assert away(found[network.outputs[0].tensor.name], want[network.outputs[0].tensor.name]) < 1e-2


@pytest.mark.parametrize("name", ["cct-14", "autoencoder-11"])
def test_networks_of_other_operations(name):
    network = network_of(CORPUS[name]())
    x = np.random.default_rng(0).standard_normal((8, *network.inputs[0].shape))
    made = rounded(network, x)
    assert isinstance(made, Network) and made.values.keys() == network.values.keys()
    want = FloatReading(network).run(x)[0]
    assert away(FloatReading(made).run(x)[0], want) < 0.2
