"""Arranged and folded networks compute what they did before."""

import numpy as np
import pytest

from gradloom.compiler.arranging import arranged
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.operations import Activation, Larger, Pool

from .nets import conv, headed, tensor
from .same import ORDERS, steps


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
    if before == "none" and (pads or beyond):
        assert any(isinstance(each, Pool) for each in other.operations)
        with pytest.raises(ValueError, match="^pool: Pool has no command in the machine$"):
            steps(other, samples=1)
        return
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
