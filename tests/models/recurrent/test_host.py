"""Functions that the host computes behind a network, at values of any size."""

import numpy as np

from gradloom.models.recurrent.host import _FUNCTIONS


def test_functions_of_large_values_are_finite():
    values = np.array([[1000.0, 0.0, -1000.0], [-2000.0, -2000.0, -2001.0]])
    with np.errstate(all="raise", under="ignore"):
        found = {name: _FUNCTIONS[name](values) for name in ("sigmoid", "softmax", "log_softmax")}
    np.testing.assert_allclose(found["sigmoid"], [[1, 0.5, 0], [0, 0, 0]], atol=1e-300)
    np.testing.assert_allclose(found["log_softmax"][0], [0, -1000, -2000])
    np.testing.assert_allclose(found["softmax"].sum(axis=1), 1)
    rest = np.log(2 + np.exp(-1))
    np.testing.assert_allclose(found["log_softmax"][1], [-rest, -rest, -1 - rest])
