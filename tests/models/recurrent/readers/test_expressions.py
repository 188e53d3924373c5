"""Expressions of quantised graphs: their channels, parts, sums and products, number by number."""

import re

import numpy as np
import pytest

from gradloom.models.files.onnx_file import RefusedNode
from gradloom.models.recurrent.coding import Coding
from gradloom.models.recurrent.example_cells import example_layers
from gradloom.models.recurrent.readers import expressions as ex
from gradloom.models.recurrent.readers.planes import over_steps
from gradloom.models.recurrent.readers.stack import Stack

X, H = ex.Variable("x", 4), ex.Variable("h", 3)
CODES = np.arange(12).reshape(3, 4)
SCALE = np.array([0.5, 1.0, 2.0])


def affine(bias=(1.0, 2.0, 3.0), source=X, codes=CODES, scale=SCALE):
    return ex.AffineForm(((source, codes, scale),), np.array(bias), "affine")


ROWS = ex.CodedForm(affine(), Coding(0.5, 0, 1, levels=np.array([[1.0], [2.0], [3.0]])))
ONE_ROW = ex.CodedForm(affine(), Coding(0.5, 0, 1, levels=np.array([[1.0]])))
CONV = ex.Convolved(X, np.ones((2, 4, 1)), np.ones(2), np.ones(2), (1,), ((0, 0),), ("t",), (0,), "conv")


def result(ways):
    return ex.ResultForm("all", 0, ways, 3)


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (X, 4),
        (ex.Variable("z"), 0),
        (ex.PartForm(X), 4),
        (affine(), 3),
        (CONV, 2),
        (ex.Pooled(X, 5, (2,), (1,), ((0, 0),), ("t",), (0,), "pool"), 5),
        (result((0,)), 3),
        (result((0, 1)), 6),
        (ex.MergedForm(X, ("a", "b"), (2, 5), "merged"), 10),
        (ex.Joined((X, H)), 7),
        (ex.Joined((X, ex.Variable("z"))), 0),
        (ex.Sum(H, ex.Variable("z"), "s"), 3),
        (ex.ProductForm(ex.Variable("z"), H, "p"), 3),
        (ex.Mapped(ex.Variable("z"), "Gather", np.ones((7, 5)), "table"), 5),
        (ex.Mapped(X, "Mul", np.ones((7, 5)), "mul"), 4),
        (ex.Clipped(affine(), 0, 1, "c"), 3),
        (ex.StackedDirections((result((0,)),)), 0),
    ],
)
def test_channels(value, count):
    assert ex.channels(value) == count


def test_gates_are_taken_apart_with_all_that_is_theirs():
    whole = affine()
    assert ex.taken(whole, 0, 3) is whole
    part = ex.taken(whole, 1, 3)
    ((source, codes, scale),) = part.terms
    assert (
        source is X
        and part.bias.tolist() == [2, 3]
        and scale.tolist() == [1, 2]
        and codes.tolist() == CODES[1:].tolist()
    )
    rows = ex.taken(ROWS, 1, 2)
    assert rows.coding.levels.tolist() == [[2.0]] and rows.source.bias.tolist() == [2]
    assert ex.taken(ONE_ROW, 1, 2).coding.levels.tolist() == [[1.0]]
    for value in (ex.Pending(whole, 1.0, 0, 1, "n"), ex.Clipped(whole, 0, 1, "n"), ex.Activated("tanh", whole, "n")):
        found = ex.taken(value, 2, 3)
        assert type(found) is type(value) and found.source.bias.tolist() == [3]
    both = ex.taken(ex.ProductForm(whole, affine((4.0, 5.0, 6.0)), "p"), 0, 2)
    assert (both.a.bias.tolist(), both.b.bias.tolist()) == ([1, 2], [4, 5])
    joined = ex.Joined((X, H))
    assert ex.taken(joined, 0, 4) is X and ex.taken(joined, 4, 7) is H
    for value, first, last in ((joined, 0, 3), (joined, 3, 7), (X, 1, 3), (CONV, 0, 1)):
        with pytest.raises(RefusedNode, match=f"^channels {first} to {last - 1} of its input: only gates can be taken"):
            ex.taken(value, first, last)


def test_a_product_with_values_side_by_side_has_a_term_for_each():
    made = ex.product(ex.Joined((X, H)), np.arange(14).reshape(2, 7), np.ones(2), "n")
    assert [source for source, _, _ in made.terms] == [X, H] and made.bias.tolist() == [0, 0]
    assert [codes.tolist() for _, codes, _ in made.terms] == [[[0, 1, 2, 3], [7, 8, 9, 10]], [[4, 5, 6], [11, 12, 13]]]
    assert len(ex.product(ex.Variable("z"), CODES, SCALE, "n").terms) == 1
    for value, codes, says in (
        (X, np.ones((2, 3)), "its weights take 3 channels, its input has 4"),
        (ex.Joined((X, H)), np.ones((2, 8)), "its weights take 8 channels, its input has 7"),
        (X, np.ones(4), "its weights have shape [4]: expected [outputs, channels]"),
        (X, np.ones((0, 4)), "its weights have shape [0, 4]: expected [outputs, channels]"),
    ):
        with pytest.raises(RefusedNode, match=f"^{re.escape(says)}$"):
            ex.product(value, codes, np.ones(2), "n")


def test_sums():
    assert ex.added(affine(), np.array([0.5]), "n").bias.tolist() == [1.5, 2.5, 3.5]
    assert ex.added(CONV, np.array([[1.0], [2.0]]), "n").bias.tolist() == [2, 3]
    both = ex.added(affine(), affine((1.0, 1.0, 1.0), H), "n")
    assert both.bias.tolist() == [2, 3, 4] and [source for source, _, _ in both.terms] == [X, H] and both.name == "n"
    total = ex.added(affine(), H, "n")
    assert isinstance(total, ex.Sum) and total.b is H
    for a, b, says in (
        (X, np.ones(1), "it adds a constant to what is no product with weights"),
        (affine(), np.ones(2), "its constant has 2 elements: expected 3, one a channel"),
        (affine(), affine((1.0, 2.0)), "it adds 2 channels to 3"),
    ):
        with pytest.raises(RefusedNode, match=f"^{says}$"):
            ex.added(a, b, "n")


def test_factors():
    made = ex.scaled(affine(), np.array([2.0, 0.5, -1.0]), "n")
    assert made.terms[0][2].tolist() == [1.0, 0.5, -2.0] and made.bias.tolist() == [2, 1, -3]
    made = ex.scaled(CONV, np.array([3.0]), "n")
    assert made.scale.tolist() == [3, 3] and made.bias.tolist() == [3, 3]
    coded = ex.scaled(ONE_ROW, np.array([0.25]), "n")
    assert (coded.coding.scale, coded.coding.step) == (0.125, 0.5)
    for value, factor in ((X, [2.0]), (ONE_ROW, [0.0]), (ONE_ROW, [-1.0]), (ONE_ROW, [1.0, 2.0])):
        with pytest.raises(RefusedNode, match="^it multiplies by a constant what is neither a product"):
            ex.scaled(value, np.array(factor), "n")


def test_weights_have_a_scale_along_the_outputs_or_one():
    weights = ex.Weights(CODES, np.array([1.0, 2.0, 3.0]), 0)
    assert weights.real.tolist() == (CODES * [[1], [2], [3]]).tolist()
    assert weights.by_output(0)[1].tolist() == [1, 2, 3]
    turned = weights.transposed([1, 0])
    assert turned.axis == 1 and turned.real.tolist() == weights.real.T.tolist()
    codes, scale = turned.by_output(1)
    assert codes.tolist() == CODES.tolist() and scale.tolist() == [1, 2, 3]
    one = ex.Weights(CODES, np.array([0.5]))
    assert one.transposed([1, 0]).axis == -1 and one.by_output(1)[1].tolist() == [0.5] * 4
    assert one.real.tolist() == (CODES / 2).tolist()
    with pytest.raises(RefusedNode, match="a scale for each index of axis 0: expected one scale, or .* along axis 1$"):
        weights.by_output(1)


def test_ends_in_front_come_behind():
    value = ex.Clipped(ex.Rectified(X, "relu"), 0, 1, "clip")
    found = ex.behind(value, lambda inner: ex.Activated("tanh", inner, "made"))
    assert (found.name, found.source.name, found.source.source.name) == ("clip", "relu", "made")
    assert found.source.source.source is X


def plane(levels):
    """Two kernels of one feature over three, behind a quantiser by thresholds."""
    kernel = np.arange(2.0).reshape(2, 1, 1, 1)
    conv = ex.Convolved(X, kernel, np.ones(2), np.ones(2), (1, 1), ((0, 0),) * 2, ("t", "f"), (5, 3), "conv", "c")
    return ex.CodedForm(conv, Coding(1.0, 0, 1, levels=np.array(levels)))


def test_thresholds_of_a_channel_are_those_of_all_its_features():
    one, two = (over_steps(plane(levels), "t").coding.levels.tolist() for levels in ([[1.0]], [[1.0], [2.0]]))
    assert one == [[1.0]] and two == [[1.0]] * 3 + [[2.0]] * 3
    merged = ex.MergedForm(plane([[1.0], [2.0]]), ("f", "c"), (3, 2), "merged")
    turned = over_steps(merged, "t")
    assert turned.coding.levels.tolist() == [[1.0], [2.0]] * 3
    assert turned.source.codes.any(axis=(1, 2)).tolist() == [False, True] * 3
    alike = ex.MergedForm(plane([[1.0]]), ("f", "c"), (3, 2), "merged")
    assert over_steps(alike, "t").coding.levels.tolist() == [[1.0]]


def test_a_node_sees_the_layer_before_it_or_that_beside_it():
    made = example_layers("LSTM", 4, 3, 4)
    narrow, wide = made.cell, example_layers("LSTM", 4, 3, 3).cell

    def of(layer):
        return ex.ResultForm("all", layer, (0,), 3)

    stack = Stack()
    assert [stack.add(narrow, X, "t"), stack.add(wide, of(0), "t"), stack.add(wide, of(1), "t")] == [0, 1, 2]
    # A second direction of the layer that was read last, but none of one before it.
    assert stack.add(wide, of(1), "t", backward=True) == 2
    assert [backward is not None for _, backward in stack.pairs()] == [False, False, True]
    with pytest.raises(RefusedNode, match="^its input is not all hidden states of the recurrent node before it$"):
        stack.add(wide, of(0), "t", backward=True)
    with pytest.raises(RefusedNode, match="^its input is one direction of the recurrent nodes before it: only both"):
        stack.add(wide, of(2), "t")
