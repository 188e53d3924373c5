"""Values in any order, and pads: the same as before, and programs that are the integers."""

import numpy as np
import pytest

from gradloom.compiler.commands.rows import adjoint, passes
from gradloom.compiler.passes.arranging import arranged
from gradloom.graph.operations import Convolution, Linear, Pad, Rearrange

from ..nets import conv, headed, marked, network, tensor
from ..same import ORDERS, steps
from .test_arranging import same

#: Shape, sizes that it is seen as, their order, and the result's shape.
MOVED = {
    "rows": ((6, 20), (2, 3, 20), (1, 0, 2), (6, 20)),
    "rows as columns": ((6, 20), (6, 20), (1, 0), (20, 6)),
    "... of each image": ((6, 20), (2, 3, 20), (0, 2, 1), (40, 3)),
    "features split": ((6, 20), (6, 5, 4), (1, 0, 2), (30, 4)),
    "features joined": ((6, 20), (2, 3, 20), (1, 0, 2), (3, 40)),
    "split by seven": ((5, 21), (5, 7, 3), (1, 0, 2), (35, 3)),
    "joined by seven": ((14, 4), (2, 7, 4), (0, 1, 2), (2, 28)),
    "features in another order": ((7, 12), (7, 3, 4), (0, 2, 1), (7, 12)),
    "rows and features": ((6, 8), (2, 3, 2, 4), (2, 0, 3, 1), (4, 12)),
    "part of a size as features": ((6, 20), (6, 20), (1, 0), (40, 3)),
    "pixels": ((4, 6, 8), (4, 6, 2, 2, 2), (0, 2, 1, 3, 4), (8, 12, 2)),
    "windows": ((4, 6, 5), (2, 2, 3, 2, 5), (0, 2, 1, 3, 4), (6, 4, 5)),
}


@pytest.mark.parametrize("name", MOVED)
def test_values_in_another_order(name):
    shape, sizes, order, made = MOVED[name]
    x = tensor("x", *shape[:-1], 7)
    first = Linear((x,), tensor("first", *shape), "first")
    moved = Rearrange((first.o,), tensor("moved", *made), sizes, order)
    other = same(headed(marked([first, moved]), [x]), {"first.weight"})
    steps(other, ("first.weight",), samples=3, loss="values", order=ORDERS[0])


def arranged_as(shape, sizes, order, made):
    """Operations that put values in another order."""
    x = tensor("x", *shape)
    moved = Rearrange((x,), tensor("moved", *made), sizes, order)
    listed = arranged(network([moved], [x])).network.operations
    return [type(each) for each in listed], [each for each in listed if isinstance(each, Convolution)]


def test_an_axis_of_one_costs_nothing():
    """Wherever it stands, and wherever it goes."""
    plain, _ = arranged_as((6, 20), (6, 5, 4), (1, 0, 2), (30, 4))
    for sizes, order in (((6, 1, 5, 4), (2, 0, 1, 3)), ((1, 6, 5, 4), (2, 1, 3, 0)), ((6, 5, 4, 1), (3, 1, 0, 2))):
        assert arranged_as((6, 20), sizes, order, (30, 4))[0] == plain


def test_a_factor_of_four_is_a_step_of_a_convolution():
    """Of more there is none: parts are cut, or put behind one another."""
    for shape, sizes, made in (((6, 20), (6, 4, 5), (24, 5)), ((24, 5), (6, 4, 5), (6, 20))):
        (each,) = arranged_as(shape, sizes, (0, 1, 2), made)[1]
        assert each.stride == (4,) and each.transposed == (made == (24, 5))
    assert all(each.stride == (1,) for each in arranged_as((6, 20), (6, 5, 4), (0, 1, 2), (30, 4))[1])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
@pytest.mark.parametrize("pads", [((1, 2), (0, 3)), ((3, 0), (2, 2))])
def test_pads(pads, mode):
    x = tensor("x", 5, 7, 6)
    first = conv(x, "first", 70, 3, pads=1)
    sides = [side + sum(pad) for side, pad in zip((5, 7), pads)]
    padded = Pad((first.o,), tensor("padded", *sides, 70), pads, mode)
    other = same(headed(marked([first, padded]), [x]), {"first.weight"})
    steps(other, ("first.weight",), samples=2, loss="classes", order=ORDERS[1])


def test_rows_come_from_few_tiles_at_once_and_go_back():
    index = np.random.default_rng(0).integers(-1, 640, 200)
    made = passes([index], 2, 640)
    whole = np.concatenate([np.where(index < 0, -1, index), np.where(index < 0, -1, index + 640)])
    assert (np.max(made, axis=0) == whole).all()
    for rows in made:
        for start in range(0, 400, 64):
            some = rows[start : start + 64]
            assert len(np.unique(some[some >= 0] // 64)) <= 4
    x, back = np.random.default_rng(1).standard_normal(200), np.zeros(640)
    for rows in adjoint(index, 640):
        back += np.where(rows < 0, 0, x[rows])
    wanted = np.zeros(640)
    np.add.at(wanted, index[index >= 0], x[index >= 0])
    np.testing.assert_allclose(back, wanted)
