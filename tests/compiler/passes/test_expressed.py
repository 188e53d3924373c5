"""Operations that others express compute what they did before, and their programs are the integers."""

import numpy as np
import pytest

from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.compiler.passes.arranging import arranged
from gradloom.graph.functions import FUNCTIONS
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.operations import (
    Activation,
    Add,
    Attention,
    Gated,
    Linear,
    MatMul,
    Multiply,
    Parameter,
    Prelu,
    Reduce,
    Slice,
    Softmax,
    Upsample,
)

from ..nets import conv, headed, marked, network, tensor
from ..same import ORDERS, steps
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


#: Functions that tables, products and steps of Newton's make.
MADE = {
    "square": ("power", (2.0,)),
    "cube": ("power", (3.0,)),
    "sixth": ("power", (6.0,)),
    "softsign": ("softsign", ()),
    "exp": ("exp", ()),
    "sin": ("sin", ()),
    "cos": ("cos", ()),
    "negative": ("affine", (-1.5, 0.25)),
}


@pytest.mark.parametrize("name", MADE)
def test_functions_that_others_make(name):
    kind, given = MADE[name]
    learnt([FIRST, Activation((T,), tensor("y", *T.shape), kind, given)])


@pytest.mark.parametrize("exponent", [0.5, 1 / 3, 1.5, -1.0, -0.5])
def test_powers_of_what_is_above_zero(exponent):
    p, q = tensor("p", *T.shape), tensor("q", *T.shape)
    more = [Activation((T,), p, "power", (2.0,)), Activation((p,), q, "affine", (0.5, 0.2))]
    learnt([FIRST, *more, Activation((q,), tensor("y", *T.shape), "power", (exponent,))])


#: Largest difference from the function itself, where its table holds the argument.
WITHIN = {
    "softsign": (-20, 20, 2e-3, ()),
    "exp": (-8, 4, 0.06, ()),
    "sin": (-60, 60, 3e-3, ()),
    "cos": (-60, 60, 3e-3, ()),
    "power": (0.125, 100, 0.02, (-1.0,)),
}


@pytest.mark.parametrize("name", WITHIN)
def test_integers_are_near_the_function(name):
    low, high, most, given = WITHIN[name]
    x = tensor("x", 50, 8)
    made = arranged(network([Activation((x,), tensor("y", 50, 8), name, given)], [x])).network
    values = np.linspace(low, high, 400).reshape(1, 50, 8)
    found = IntegerNetwork(made).result({"x": values}).exact.ravel()
    wanted = FUNCTIONS[name].of(values.ravel(), *given)
    # Codes of a tile have one unit.
    assert np.abs(found - wanted).max() <= most + np.abs(wanted).max() * 2**-13


@pytest.mark.parametrize(
    ("kind", "given", "beyond"), [("power", (-1.0,), 0.1), ("power", (0.5,), 17), ("exp", (), 17), ("sin", (), -65)]
)
def test_what_no_table_holds_is_refused(kind, given, beyond):
    x = tensor("x", 50, 8)
    made = IntegerNetwork(arranged(network([Activation((x,), tensor("y", 50, 8), kind, given)], [x])).network)
    made.result({"x": np.full((1, 50, 8), 2.0)})
    with pytest.raises(ValueError, match=r"y.*: must be from .*, where its table is; scale the network's values"):
        made.result({"x": np.full((1, 50, 8), beyond)})


@pytest.mark.parametrize("features", [5, 70])
def test_the_largest_of_features(features):
    x = tensor("x", 6, 6)
    first = Linear((x,), tensor("first", 6, features), "first")
    learnt([first, Reduce((first.o,), tensor("y", 6, 1), "max", False)], x)


@pytest.mark.parametrize("sides", [(1, 7, 6), (1, 7, 1), (5, 1, 6), (5, 1, 1), (1, 1, 1)])
@pytest.mark.parametrize("is_table", [False, True])
@pytest.mark.parametrize("kind", [Add, Multiply])
def test_tensors_that_count_for_rows_apart(kind, is_table, sides):
    small = tensor("small", *sides)
    first = [Parameter((), small, "small")] if is_table else []
    y = tensor("y", 5, 7, 6)
    made = network([*first, kind((X, small), y), conv(y, "z", 4, 1)], [X] if is_table else [X, small])
    other = arranged(made).network
    random = np.random.default_rng(1)
    inputs = {port.name: random.standard_normal((3, *port.shape)) for port in made.inputs}
    wanted = FloatReading(made).forward(inputs)["z"].reshape(-1, 4)
    assert np.abs(IntegerNetwork(other).result(inputs).exact - wanted).max() < 0.04 * np.abs(wanted).max()
    steps(other, samples=3)


@pytest.mark.parametrize("far", [-1e30, -1e4])
def test_masks_keep_the_bits_of_scores(far):
    x = tensor("x", 6, 12)
    first, table = Linear((x,), tensor("first", 6, 6), "first"), Parameter((), tensor("m", 6, 6), "m")
    listed = [
        first,
        table,
        Add((first.o, table.o), tensor("s", 6, 6)),
        Softmax((tensor("s", 6, 6),), tensor("y", 6, 6)),
    ]
    made = network(listed, [x])
    made.values["m"] = np.triu(np.full((6, 6), far), 1)
    other = arranged(made).network
    inputs = {"x": np.random.default_rng(1).standard_normal((4, 6, 12))}
    found, wanted = IntegerNetwork(other).result(inputs).exact, FloatReading(made).forward(inputs)["y"].reshape(24, 6)
    assert np.abs(found - wanted).max() < 0.02 and (found.reshape(4, 6, 6)[:, made.values["m"] < 0] == 0).all()
    steps(other, samples=2)


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
    if mode == "linear":
        # Whole times as large it is a convolution, which takes images of any size; else a matrix of all pixels.
        whole = "half_pixel" in places and not any(large % small for small, large in zip(T.sides, sides))
        assert any(isinstance(each, MatMul) for each in other.operations) != whole
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


def test_a_factor_of_nothing_is_a_table():
    """As one below 0: the machine has no factor without a leading digit."""
    x = tensor("x", 5, 8)
    made = arranged(network([Activation((x,), tensor("y", 5, 8), "affine", (0.0, 0.0))], [x])).network
    assert {type(each) for each in made.operations} == {Parameter, Multiply}
    assert not IntegerNetwork(made).result({"x": np.ones((1, 5, 8))}).exact.any()
