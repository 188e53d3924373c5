"""Arranged and folded networks compute what they did before."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.compiler.lowering import lower
from gradloom.compiler.passes.arranging import arranged
from gradloom.compiler.passes.folding import folded
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.methods import head, lora
from gradloom.graph.onnx.load import load_network, network_of
from gradloom.graph.operations import Activation, Add, Concat, Larger, Linear, Pad, Pool
from gradloom.graph.rewriting.simplify import simplified
from gradloom.graph.training import before_loss
from gradloom.sim.time.forecast import forecast

from ...graph.corpus import CORPUS
from ..nets import conv, headed, tensor
from ..same import CONFIG, ORDERS, rules_of, steps


def pool(t, kind, kernel, stride, pads=0, beyond=0, **more):
    sides = tuple((side + 2 * pads + beyond - kernel) // stride + 1 for side in t.sides)
    n = len(sides)
    given = {"kernel": (kernel,) * n, "stride": (stride,) * n, "pads": ((pads, pads + beyond),) * n}
    return Pool((t,), tensor("pool", *sides, t.features), kind, dilation=(1,) * n, **given, **more)


def differs(network, other, samples=3):
    """Largest difference of results, and of gradients by name."""
    random = np.random.default_rng(1)
    feeds = {each.name: random.standard_normal((samples, *each.shape)) for each in network.inputs}
    readings = [FloatReading(each) for each in (network, other)]
    found = [reading.forward(feeds) for reading in readings]
    results = [each[net.outputs[0].tensor.name] for each, net in zip(found, (network, other))]
    return np.abs(results[0] - results[1].reshape(results[0].shape)).max(), readings, found


def same(network, learners):
    """The network as the machine has it; its result and its gradients are those of before."""
    ready = arranged(network)
    difference, readings, found = differs(network, ready.network)
    name = network.outputs[0].tensor.name
    assert difference <= 1e-9 * max(1, np.abs(found[0][name]).max())
    last = np.random.default_rng(2).standard_normal(found[0][name].shape)
    lasts = ({name: last.reshape(each[name].shape)} for each in found)
    ours, theirs = (reading.backward(*each, learners) for reading, *each in zip(readings, found, lasts))
    for weight in learners:
        value = ready.moves[weight].there(ours[weight]) if weight in ready.moves else ours[weight]
        np.testing.assert_allclose(theirs[weight], value, rtol=0, atol=1e-9 * max(1, np.abs(value).max()))
    return ready.network


@pytest.mark.parametrize("before", ["relu", "behind", "none"])
@pytest.mark.parametrize(
    ("kernel", "stride", "pads", "beyond"), [(2, 2, 0, 0), (3, 2, 1, 0), (3, 2, 0, 1), (3, 1, 1, 0)]
)
def test_maxima_of_windows(kernel, stride, pads, beyond, before):
    x = tensor("x", 9, 8, 5)
    first = conv(x, "first", 20, 3, pads=1, positive=before == "relu")
    operations = [first, pool(first.o, "max", kernel, stride, pads, beyond)]
    if before == "behind":
        o = operations[-1].o
        operations.append(Activation((o,), tensor("relu", *o.shape), "relu"))
    network = headed(operations, [x])
    other = arranged(network).network
    assert any(isinstance(each, Pad) for each in other.operations) == bool(before == "none" and (pads or beyond))
    # Along lines, then of lines, where that is fewer.
    count = {(2, 2): 3, (3, 2): 4, (3, 1): 4}[kernel, stride]
    assert sum(isinstance(each, Larger) for each in other.operations) == count
    difference, readings, found = differs(network, other)
    assert difference <= 1e-9
    random = np.random.default_rng(2)
    name = network.outputs[0].tensor.name
    last = random.standard_normal(found[0][name].shape)
    ours, theirs = (reading.backward(each, {name: last}, {"first.weight"}) for reading, each in zip(readings, found))
    np.testing.assert_allclose(ours["first.weight"], theirs["first.weight"], atol=1e-9)
    steps(other, ("first.weight",), samples=2, loss="classes", order=ORDERS[0])


#: Networks of the corpus that the machine takes at least, by opset.
TAKEN = {"11": 76, "13": 80, "18": 84, "20": 4, "21": 76}


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "pads", "beyond"), [(2, 2, 0, 0), (3, 2, 1, 0), (3, 2, 0, 1)])
def test_means_of_windows(kernel, stride, pads, beyond, counted):
    x = tensor("x", 9, 8, 5)
    first = conv(x, "first", 20, 3, pads=1)
    network = headed([first, pool(first.o, "mean", kernel, stride, pads, beyond, counted=counted)], [x])
    other = arranged(network).network
    assert differs(network, other)[0] <= 1e-9
    steps(other, ("first.weight",), samples=2, loss="classes", order=ORDERS[0])


@pytest.mark.parametrize("features", [(8, 24), (5, 7), (16, 16, 16), (80, 80, 96)])
def test_features_side_by_side(features):
    x = tensor("x", 6, 5)
    parts = [Linear((x,), tensor(f"part{n}", 6, count), f"part{n}") for n, count in enumerate(features)]
    both = Concat(tuple(each.o for each in parts), tensor("both", 6, sum(features)), 1, positive=True)
    network = headed([*parts, both], [x])
    other = arranged(network).network
    assert any(isinstance(each, Concat) for each in other.operations) == (features == (8, 24))
    assert differs(network, other)[0] <= 1e-9
    steps(other, ("part0.weight", "part1.weight"), samples=3, loss="classes", order=ORDERS[1])


GOLDEN = Path(__file__).parents[2] / "golden" / "networks"
#: MLPerf Tiny's networks, what their loss is, and samples of a forward pass.
TINY = {"mlperf_resnet8": ("classes", 1), "mlperf_kws_dscnn": ("classes", 3), "mlperf_ad01": ("values", 20)}


def tiny(name):
    loss, samples = TINY[name]
    return before_loss(load_network(GOLDEN / f"{name}.onnx"), loss), loss, samples


@pytest.mark.parametrize("name", [*TINY])
def test_tiny_networks_forward(name):
    network, _, samples = tiny(name)
    ready = folded(arranged(network).network)
    x = np.load(GOLDEN / f"{name}.npz")["x"].astype(np.float64)
    (want,), (made,) = (FloatReading(each).run(x) for each in (network, ready))
    np.testing.assert_allclose(made, want, rtol=0, atol=1e-9 * np.abs(want).max())
    steps(ready, samples=samples, order=ORDERS[0], whole=False)


@pytest.mark.parametrize(
    ("name", "method", "samples"),
    [("mlperf_resnet8", "head", 2), ("mlperf_kws_dscnn", "last:1", 2), ("mlperf_ad01", "last:2", 3)],
)
def test_tiny_networks_learn(name, method, samples):
    network, loss, _ = tiny(name)
    learning = head(network) if method == "head" else lora(network, method, rank=4)
    ready = arranged(learning.network)
    made = folded(ready.network, learning.learners)
    steps(made, learning.learners, samples=samples, loss=loss, order=ORDERS[1], whole=False)
    # Codes of what learns are those of the network in the file's order.
    for name in learning.learners:
        value = ready.back(name, np.asarray(made.values[name]))
        np.testing.assert_allclose(value, learning.network.values[name], rtol=1e-12)


def test_adapters_of_all_of_a_network_take_fewer_cycles():
    network, _, _ = tiny("mlperf_resnet8")
    learning = lora(network, "conv", rank=4)
    ready = folded(arranged(learning.network).network, learning.learners)
    rules = rules_of(IntegerNetwork(ready, learning.learners))
    step = lower(CONFIG, ready, samples=1, loss="classes", rules=rules)
    assert forecast(step.program).total <= 150_000


@cache
def prepared(name):
    """A network of the corpus, arranged and folded; None where it is refused by name."""
    try:
        return folded(arranged(network_of(CORPUS[name]())).network)
    except ValueError as error:
        assert ": " in str(error)
        return None


def equal(one, other):
    """Whether two networks are the same in all that programs and integers are made of."""
    kept = [(each.operations, each.inputs, each.outputs, sorted(each.values)) for each in (one, other)]
    return kept[0] == kept[1] and all(np.array_equal(value, other.values[name]) for name, value in one.values.items())


@pytest.mark.parametrize("opset", [*TAKEN])
def test_networks_of_every_operation(opset):
    """Each is lowered and equals the integers, or is refused by name.

    Where an older file of it is the very same network, that one's program was run.
    """
    taken = refused = 0
    for name in CORPUS:
        kind, _, own = name.rpartition("-")
        if own != opset:
            continue
        ready = prepared(name)
        try:
            if ready is not None:
                lower(CONFIG, ready, samples=2)
        except ValueError as error:
            assert ": " in str(error)
            ready = None
        if ready is None:
            refused += 1
            continue
        taken += 1
        older = (f"{kind}-{each}" for each in TAKEN if int(each) < int(opset))
        if not any(equal(each, ready) for each in map(prepared, filter(CORPUS.get, older)) if each is not None):
            steps(ready, samples=2, whole=False)
    assert taken >= TAKEN[opset], f"{taken} taken, {refused} refused"


@pytest.mark.parametrize("turned", [False, True])
def test_an_adapter_that_a_file_writes_out(turned):
    x = tensor("x", 6, 12)
    whole = Linear((x,), tensor("whole", 6, 20), "whole")
    a = Linear((x,), tensor("a", 6, 3), "a", bias=False)
    b = Linear((a.o,), tensor("b", 6, 20), "b", bias=False)
    met = Add((b.o, whole.o) if turned else (whole.o, b.o), tensor("met", 6, 20))
    network = replace(headed([whole, a, b, met], [x]), origins={"a.weight": "A", "b.weight": "B"})
    other = simplified(network)
    assert [each.layer for each in other.operations if isinstance(each, Linear)] == ["whole", "head"]
    assert {other.origins[f"whole.lora_{part}.weight"] for part in "AB"} == {"A", "B"}
    assert differs(network, other)[0] <= 1e-12
