"""Operations that others express compute what they did before, and their programs are the integers."""

import numpy as np
import pytest

from gradloom.graph.operations import (
    Activation,
    Attention,
    Gated,
    Linear,
    Multiply,
    Parameter,
    Prelu,
    Reduce,
    Slice,
    Upsample,
)

from .nets import conv, headed, marked, tensor
from .same import ORDERS, steps
from .test_arranging import same

X = tensor("x", 5, 7, 6)
FIRST = conv(X, "first", 12, 3, pads=1)
T = FIRST.o


def learnt(operations, x=X):
    """Both ways the same; then steps of the program are the integers."""
    other = same(headed(marked(operations), [x]), {"first.weight"})
    assert not any(isinstance(each, Prelu) for each in other.operations)
    steps(other, ("first.weight",), samples=3, loss="values", order=ORDERS[1])


@pytest.mark.parametrize("slopes", [1, 12])
def test_slopes_below_zero(slopes):
    learnt([FIRST, Prelu((T,), tensor("y", *T.shape), "slopes", slopes)])


@pytest.mark.parametrize("limits", [(0.3, np.inf), (-np.inf, 0.2), (-np.inf, np.inf), (-0.5, 0.5)])
def test_limits_on_one_side(limits):
    learnt([FIRST, Activation((T,), tensor("y", *T.shape), "clip", limits)])


@pytest.mark.parametrize(("kind", "features"), [("gelu", 12), ("silu", 64), ("sigmoid", 5), ("gelu", 64)])
def test_gates_beside_values(kind, features):
    x = tensor("x", 5, 9)
    first = Linear((x,), tensor("first", 5, 2 * features), "first")
    learnt([first, Gated((first.o,), tensor("y", 5, features), kind)], x)


def test_squares():
    learnt([FIRST, Activation((T,), tensor("y", *T.shape), "power", (2.0,))])


@pytest.mark.parametrize("kind", ["mean", "sum"])
def test_sums_of_features(kind):
    learnt([FIRST, Reduce((T,), tensor("y", 5, 7, 1), kind, False)])


@pytest.mark.parametrize("sides", [(5, 7), (8, 8), (9,), (1, 3), (2, 3, 2)])
def test_the_largest_of_all_rows(sides):
    x = tensor("x", *sides, 6)
    first = Linear((x,), tensor("first", *sides, 10), "first")
    learnt([first, Reduce((first.o,), tensor("y", *(1 for _ in sides), 10), "max", True)], x)


RISEN = {
    "twice": ((10, 14), "half_pixel"),
    "one side four times": ((5, 28), "pytorch_half_pixel"),
    "three times": ((15, 21), "half_pixel"),
    "corners": ((9, 11), "align_corners"),
    "some more": ((7, 8), "half_pixel"),
    "asymmetric": ((10, 14), "asymmetric"),
}


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("name", RISEN)
def test_larger_images(name, mode):
    sides, places = RISEN[name]
    risen = Upsample((T,), tensor("y", *sides, 12), mode, places)
    other = same(headed([FIRST, risen, conv(risen.o, "last", 4, 3)], [X]), {"first.weight"})
    steps(other, ("first.weight",), samples=2, loss="values")


@pytest.mark.parametrize(("is_table", "each_head"), [(False, False), (True, False), (True, True)])
def test_attention_with_a_tensor_that_is_added_to_its_scores(each_head, is_table):
    x = tensor("x", 10, 6)
    layers = [Linear((x,), tensor(name, 10, 16), name) for name in ("first", "k", "v")]
    bias = tensor("bias", 2, 10, 10) if each_head else tensor("bias", 10, 10)
    made = Parameter((), bias, "bias") if is_table else Linear((layers[0].o,), tensor("bias", 10, 10), "bias")
    attention = Attention((*(each.o for each in layers), bias), tensor("y", 10, 16), 2, 0.3)
    other = same(headed([*layers, made, attention], [x]), {"first.weight", "v.weight"})
    steps(other, ("first.weight", "v.weight"), samples=3, loss="values", order=ORDERS[0])


@pytest.mark.parametrize(("axis", "start", "step"), [(0, 1, 2), (1, 3, 1), (0, 0, 1), (2, 2, 3)])
def test_places_of_a_side(axis, start, step):
    shape = list(T.shape)
    shape[axis] = (shape[axis] - start - 1) // step + 1
    learnt([FIRST, Slice((T,), tensor("y", *shape), axis, start, step)])


def test_a_gate_of_each_row():
    gate = conv(T, "gate", 1, 1)
    learnt([FIRST, gate, Multiply((T, gate.o), tensor("y", *T.shape))])
