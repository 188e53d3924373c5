"""A head in codes that make up for each other's errors."""

import numpy as np

from gradloom.models.pack import quantize_linear
from gradloom.systems.text.coded_head import compensated


def test_codes_make_up_for_each_other_on_inputs_with_a_mean():
    """Products change less than half as much as by the nearest codes; scales are those of every linear."""
    rng = np.random.default_rng(5)
    weight = rng.normal(0, 0.1, (192, 128)).astype(np.float32)
    inputs, others = (rng.normal(0, 1, (300, 128)) + rng.normal(0, 3, (1, 128)) for _ in range(2))
    others += inputs.mean(axis=0) - others.mean(axis=0)
    nearest, made = quantize_linear(weight), compensated(weight, inputs)
    for name in ("scale_codes", "absmax2", "offset"):
        np.testing.assert_array_equal(getattr(made, name), getattr(nearest, name))
    errors = [np.square(others @ (each.weight() - weight).T).mean() for each in (nearest, made)]
    assert errors[1] < errors[0] / 4


def test_blocks_of_zeros_have_codes():
    weight = np.zeros((4, 128), np.float32)
    weight[1, 64:] = 1.0
    np.testing.assert_allclose(compensated(weight, np.ones((3, 128))).weight(), weight, atol=1e-2)
