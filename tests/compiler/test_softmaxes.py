"""Softmaxes of any number of features: their programs are the integers, which are near mathematics."""

import numpy as np
import pytest

from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.graph.operations import Attention, Linear, Softmax
from gradloom.rtl.formats.tiles.codes import WIDE, coded
from gradloom.rtl.formats.tiles.functions import ENTROPY
from gradloom.sim.reference.tiles import vector

from .nets import headed, network, tensor
from .same import ORDERS, steps


def shares(features, log):
    x = tensor("x", 6, features)
    first = Linear((x,), tensor("first", 6, features), "first")
    return [first, Softmax((first.o,), tensor("y", 6, features), log=log)], x


@pytest.mark.parametrize(("features", "log"), [(4, True), (64, True), (70, False), (100, True), (330, False)])
def test_softmaxes_and_logarithms(features, log):
    operations, x = shares(features, log)
    steps(headed(operations, [x]), ("first.weight",), samples=3, loss="values", count=2, order=ORDERS[0])


@pytest.mark.parametrize(("rows", "keys"), [(7, 7), (65, 65), (20, 200), (130, 10)])
def test_attention_of_any_rows(rows, keys):
    x, other = tensor("x", rows, 12), tensor("other", keys, 9)
    parts = [Linear((t,), tensor(name, *t.sides, 20), name) for name, t in zip("qkv", (x, other, other))]
    seen = Attention(tuple(each.o for each in parts), tensor("seen", rows, 20), 2, 0.25)
    learners = [f"{name}.weight" for name in "qkv"]
    steps(headed([*parts, seen], [x, other]), learners, samples=3, loss="classes", order=ORDERS[1])


@pytest.mark.parametrize("classes", [65, 200])
def test_more_classes_than_a_tile_has(classes):
    x = tensor("x", 10)
    net = network([Linear((x,), tensor("y", classes), "only")], [x])
    steps(net, ("only.weight", "only.bias"), samples=9, loss="classes", count=2)


def bound(x, features):
    """Of a row's logarithm: of each value five codes of 16 bits and a table, summed."""
    code = 2.0**-15
    return 2 * features * (5 * code * (np.abs(x).max() + 1) + code * 16 + ENTROPY.error)


def test_the_entropy_of_a_share():
    p = np.linspace(0, 1, 5001)[None]
    held = coded(p, WIDE).values
    made = vector.function(held, ENTROPY)
    assert np.abs(made + np.where(held > 0, held, 1) * np.log(np.where(held > 0, held, 1))).max() <= ENTROPY.error


@pytest.mark.parametrize("size", [0.3, 3.0])
@pytest.mark.parametrize("features", [5, 64, 100, 400])
def test_integers_are_near_mathematics(features, size):
    random = np.random.default_rng(7)
    operations, given = shares(5, False)
    exact = IntegerNetwork(network(operations, [given]))
    x = size * random.standard_normal((20, features))
    x = exact.held(x).values
    top = x.max(1, keepdims=True)
    logs = x - top - np.log(np.exp(x - top).sum(1, keepdims=True))
    off = bound(x, features)
    assert np.abs(exact.logarithms(x).exact - logs).max() <= off
    p = exact.soft(x)
    # Two codes of 16 bits of a score and the row's largest, then a table.
    part = np.expm1(2.0**-14 * np.abs(x).max()) + 2.0**-14
    assert np.abs(p.exact - np.exp(logs)).max() <= part
    assert np.abs(p.values.sum(1) - 1).max() <= part
    dp = exact.held(random.standard_normal(x.shape)).values
    wanted = p.values * (dp - (p.values * dp).sum(1, keepdims=True))
    # A pull has half a unit of each product.
    code = 2.0**-15 * np.abs(dp).max()
    assert np.abs(exact.soft_back(p.values, dp).exact - wanted).max() <= code * (1 + features * 2.0**-14)
