"""Adapters beside folded layers: a small matrix learns for all places that repeat it."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.compiler.commands.gathers import runs, shifts
from gradloom.compiler.commands.tied import fits, repeated_rows
from gradloom.compiler.integers.held import Counts, Held
from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.compiler.passes.arranging import arranged
from gradloom.compiler.passes.folding import _Folded, folded, passes
from gradloom.compiler.weights.matrices import matrices, stacked
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.network import Tie
from gradloom.graph.operations import Linear

from .nets import conv, headed, tensor
from .same import ORDERS, steps

#: Sides and features of the input, and layers by their features, rank and shape.
NETWORKS = {
    "patches": ((8, 8, 3), [(16, 2, {"kernel": 3, "pads": 1}), (16, 2, {"kernel": 3, "pads": 1})]),
    "strides": ((6, 16, 16), [(16, 3, {"kernel": 1}), (32, 4, {"kernel": 3, "pads": 1, "stride": 2})]),
    "more features than a tile": ((4, 8, 64), [(128, 2, {"kernel": 1}), (64, 2, {"kernel": (3, 1), "pads": (1, 0)})]),
    "more places than a row may lie apart": ((4, 16, 1), [(4, 2, {"kernel": 1}), (8, 1, {"kernel": 3, "pads": 1})]),
    "lines of several tiles": ((20, 16, 16), [(16, 4, {"kernel": 3, "pads": 1}), (16, 4, {"kernel": 3, "pads": 1})]),
    "a sequence": ((24, 8), [(16, 4, {"kernel": 5, "pads": 2}), (8, 2, {"kernel": 3, "pads": 2, "dilation": 2})]),
}


def made(name):
    sides, layers = NETWORKS[name]
    x = tensor("x", *sides)
    listed = []
    for number, (features, rank, shape) in enumerate(layers):
        i = listed[-1].o if listed else x
        listed.append(replace(conv(i, f"layer{number}", features, positive=number == 0, **shape), rank=rank))
    learners = [weight.name for each in listed for weight in each.adapter]
    network = headed(listed, [x])
    ready = arranged(network).network
    if max(features for features, *_ in layers) > 64:
        # No fold is worth its cycles here.
        folds = {
            t.name: 2 if len(t.sides) == 2 and t.rows > 1 else 1 for each in ready.operations for t in (*each.i, each.o)
        }
        return network, learners, _Folded(ready, folds, None).network()
    return network, learners, folded(ready, learners)


@pytest.mark.parametrize("name", NETWORKS)
def test_folded_layers_with_adapters_are_the_same(name):
    network, learners, ready = made(name)
    assert ready.ties and set(ready.ties) <= set(learners)
    feeds = {port.name: np.random.default_rng(3).standard_normal((3, *port.shape)) for port in network.inputs}
    (want,), (got,) = (FloatReading(each).run(feeds) for each in (network, ready))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)
    for each in ready.ties:
        np.testing.assert_array_equal(ready.learnt(each), network.values[each])
    steps(ready, learners, samples=3, loss="classes", count=2, order=ORDERS[0])
    steps(ready, learners[:1], samples=1, loss="classes", order=ORDERS[1])


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_of_all_places_are_those_of_the_layer_without_folds(name):
    network, learners, ready = made(name)
    exact, plain = IntegerNetwork(ready, learners), FloatReading(network)
    x = np.random.default_rng(3).standard_normal((3, *network.inputs[0].shape))
    last = np.random.default_rng(4).standard_normal((3, 5))
    found = exact.forward({port.tensor.name: port.taken(x) for port in ready.inputs})
    gradients = exact.backward(found, Held(last, Counts()))
    seen = plain.forward(x)
    t = network.outputs[0].tensor
    wanted = plain.backward(seen, {t.name: last.reshape(3, *t.shape)}, learners)
    for each in learners:
        want = stacked(matrices(network.operations[0], each, wanted[each])).ravel()
        got = gradients[each].ravel()
        assert got @ want >= 0.98 * np.linalg.norm(got) * np.linalg.norm(want), each


@pytest.mark.parametrize(("name", "samples", "there"), [("lines of several tiles", 3, True), ("strides", 3, False)])
def test_lines_of_kernels_are_shifts_of_rows_where_both_images_have_the_same_lines(name, samples, there):
    """Then no tensor has what comes by all taps; a tile's rows and those that they meet are in parts of two."""
    _, learners, ready = made(name)
    each, tie = ready.operations[1], ready.ties["layer1.lora_A.weight"]
    found = shifts(each, repeated_rows(each, "layer1.lora_A.weight", tie), samples)
    assert (found is not None) == there
    if found is not None:
        far = {run.source - run.tile for own in found[1].sources for run in runs(own)}
        assert far == {-1, 0, 1}
    step, _, _ = steps(ready, learners, samples=samples, loss="classes", order=ORDERS[0])
    assert ("layer1.lora_A.weight.came" in [value.name for value in step.values]) != there


def test_adapters_without_folds_repeat_nothing():
    x = tensor("x", 6, 6, 80)
    listed = [
        replace(conv(x, "first", 80, 3, pads=1), rank=2),
        Linear((tensor("first", 6, 6, 80),), tensor("y", 6, 6, 9), "y"),
    ]
    network = headed(listed, [x])
    assert not folded(arranged(network).network, ["first.lora_A.weight"]).ties


def test_cycles_do_not_depend_on_what_an_adapter_has_learnt():
    """Nor do folds, which are chosen by them: what has learnt answers in the codes that it learnt in."""
    network, learners, ready = made("strides")
    layer = next(each for each in ready.operations if getattr(each, "rank", 0))
    found = []
    for value in (0.0, 1.0):
        for name in learners:
            ready.values[name][:] = value
        found.append([passes(layer, weight.name, ready) for weight in layer.adapter])
    assert found[0] == found[1] and min(found[0]) > 0


def test_which_blocks_lie_in_whole_tiles():
    assert fits(60, 3, 64) and fits(128, 16, 64) and fits(192, 64, 1000) and fits(384, 128, 64)
    assert not fits(72, 24, 64) and not fits(192, 96, 64)
    # A job would read 32 tiles at once.
    assert not fits(64, 4, 65) and fits(64, 4, 64)


def test_a_tie_has_its_values_where_they_are():
    tie = Tie((2, 2), np.array([[3, -1, 0], [1, 2, 3]]))
    small = np.array([[5.0, 6.0], [7.0, 8.0]])
    np.testing.assert_array_equal(tie.there(small), [[8, 0, 5], [6, 7, 8]])
    np.testing.assert_array_equal(tie.back(tie.there(small)), small)
