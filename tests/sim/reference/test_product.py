"""What the model of products counts beside its sums."""

from types import SimpleNamespace

import numpy as np

from gradloom.sim.reference.product import ProductModel


def test_only_values_that_are_not_0_are_lost():
    """A row far below the largest exponent adds nothing; of its values those that are 0 lose nothing."""
    model = ProductModel(SimpleNamespace(x_slots=2, w_slots=2, array_columns=16))
    model.top = 0
    model._add(slice(0, 3), slice(0, 2), np.array([[0, 5], [0, 0], [7, 0]]), np.array([-99, -(1 << 9), 0]))
    assert model.lost == 1 and np.argwhere(model.sums).tolist() == [[2, 0]]
