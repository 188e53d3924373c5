"""Norms of any size compute what they did before, and their programs are the integers."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.compiler.passes.arranging import arranged
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.methods import bias, full
from gradloom.graph.operations import Linear, Norm

from ..nets import headed, tensor
from ..same import ORDERS, steps
from .test_arranging import same

#: Sides and features, and how the norm is.
NORMS = {
    "rows of 12": ((5, 12), {}),
    "rows of two tiles and a half": ((6, 160), {}),
    "rows of 192": ((70, 192), {}),
    "rows of 384": ((3, 384), {}),
    "by the root of the mean square": ((6, 100), {"centred": False}),
    "... of a power of two": ((6, 64), {"centred": False, "bias": False}),
    "without gain": ((6, 32), {"gain": False}),
    "groups of a row": ((6, 24), {"groups": 3}),
    "groups of 4 of an image": ((5, 7, 12), {"groups": 3, "over_rows": True}),
    "groups of 3 of steps": ((7, 12), {"groups": 4, "over_rows": True}),
    "a channel of an image": ((5, 7, 16), {"groups": 16, "over_rows": True}),
    "all of an image": ((9, 40), {"groups": 1, "over_rows": True}),
    "rows of more than slots hold": ((3, 640), {}),
    "... by the root of the mean square": ((3, 576), {"centred": False, "bias": False}),
    "groups of 10 of an image": ((8, 8, 20), {"groups": 2, "over_rows": True}),
    "groups of 3 of two parts of rows": ((32, 32, 6), {"groups": 2, "over_rows": True}),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms_of_any_size(name):
    shape, how = NORMS[name]
    x = tensor("x", *shape)
    first = Linear((x,), tensor("first", *shape), "first")
    norm = Norm((first.o,), tensor("norm", *shape), "norm", eps=1e-3, **how)
    network = headed([first, norm], [x])
    other = same(network, {"first.weight", "head.weight"})
    steps(other, ("first.weight",), samples=3, loss="values", order=ORDERS[0])


@pytest.mark.parametrize(("features", "mean"), [(12, 0.0), (192, 0.0), (192, 1.0), (384, 1.0)])
def test_a_row_that_is_filled_is_near_the_norm(features, mean):
    """A row gets its mean by codes of 8 bits, which are within half a unit; so is the mean."""
    x = tensor("x", 20, features)
    network = headed([Norm((x,), tensor("norm", 20, features), "norm", eps=1e-5, gain=False, bias=False)], [x])
    other = arranged(network).network
    values = np.random.default_rng(5).standard_normal((2, 20, features)) + mean
    wanted = FloatReading(network).forward(values)["norm"]
    exact = IntegerNetwork(other)
    found = next(held for name, held in exact.forward({"x": values}).items() if name == "norm")
    off = np.abs(found.exact.reshape(wanted.shape) - wanted).max()
    # Units of 8 bits of a tile: the mean, its share of rows that are filled; 16 bits of the rest.
    unit = 2.0 ** (np.floor(np.log2(np.abs(values).max())) - 6)
    assert off <= unit / 2 / values.std(-1).min() + 2.0**-10 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("shape", "how", "most"),
    [
        ((4, 640), {}, 2.0**-9),
        ((8, 8, 20), {"groups": 2, "over_rows": True}, 2.0**-7),
        ((32, 32, 16), {"groups": 2, "over_rows": True}, 2.0**-8),
    ],
)
def test_a_norm_of_parts_is_near_the_norm(shape, how, most):
    """Sums of rows and features are of codes of 8 bits, of many values; the gradient is that of the norm, too."""
    x = tensor("x", *shape)
    norm = Norm((x,), tensor("norm", *shape), "norm", eps=1e-5, **how)
    values = {"x": np.random.default_rng(5).standard_normal((2, *shape)) + 1}
    alone = headed([norm], [x])
    wanted = FloatReading(alone).forward(values)["norm"]
    found = IntegerNetwork(arranged(alone).network).forward(values)["norm"].exact.reshape(wanted.shape)
    assert np.sqrt(np.square(found - wanted).mean()) < most * wanted.std()
    first = Linear((x,), tensor("first", *shape), "first")
    network, learners = headed([first, replace(norm, i=(first.o,))], [x]), ("first.bias",)
    exact, reading = IntegerNetwork(arranged(network, learners).network, learners), FloatReading(network)
    got, real = exact.forward(values), reading.forward(values)
    last = exact.falling("values", got["head"], np.ones((2, 5)))[1]
    gradient = exact.backward(got, last)["first.bias"].ravel()
    exactly = reading.backward(real, {"head": last.values.reshape(real["head"].shape)}, set(learners))["first.bias"]
    assert np.abs(gradient - exactly).max() < 0.1 * np.abs(exactly).max()


def test_gains_in_the_order_of_the_file():
    x = tensor("x", 6, 12)
    network = headed([Norm((x,), tensor("norm", 6, 12), "norm", eps=1e-3)], [x])
    ready, gains = arranged(network), network.values["norm.weight"]
    made = ready.network.values["norm.weight"]
    assert (made != gains).all()
    np.testing.assert_allclose(ready.back("norm.weight", made), gains)


@pytest.mark.parametrize("method", [bias, full])
@pytest.mark.parametrize(
    "more", [{}, {"bias": False, "centred": False}, {"over_rows": True, "groups": 3}, {"positive": True}]
)
def test_gains_and_biases_learn(method, more):
    """As factors and sums of their own: steps of the program are the integers, and their gradients near the float's."""
    x = tensor("x", 5, 7)
    first = Linear((x,), tensor("first", 5, 12), "first")
    made = headed([first, Norm((first.o,), tensor("n", 5, 12), "norm", eps=1e-5, **more)], [x])
    learners = method(made).learners
    assert "norm.weight" in learners
    other = arranged(made, learners)
    steps(other.network, learners, samples=3, loss="classes", count=2)
    exact, reading = IntegerNetwork(other.network, learners), FloatReading(made)
    inputs, random = {"x": np.random.default_rng(1).standard_normal((6, 5, 7))}, np.random.default_rng(2)
    found = exact.forward(inputs)
    _, last = exact.falling("values", found["head"], random.standard_normal((6, 5)))
    gradients = exact.backward(found, last)
    wanted = reading.backward(reading.forward(inputs), {"head": last.values.reshape(6, 1, 5)}, {"norm.weight"})
    got = other.back("norm.weight", gradients["norm.weight"].ravel())
    assert np.abs(got - wanted["norm.weight"]).max() < 0.1 * np.abs(wanted["norm.weight"]).max()
