"""Starts that are made of a weight, and the change since one."""

import numpy as np
import pytest

from gradloom.models.adapters.lora import Adapter
from gradloom.models.adapters.starts import STARTS, largest_part, relative

WEIGHT = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)


def product(each):
    return each.scale * each.b.astype(np.float64) @ each.a


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_the_largest_part_is_the_nearest_of_its_rank(rank, scale):
    u, s, v = np.linalg.svd(WEIGHT.astype(np.float64), full_matrices=False)
    made = largest_part(WEIGHT, rank, scale)
    assert (made.a.shape, made.b.shape, made.scale) == ((rank, 4), (5, rank), scale)
    assert made.a.dtype == made.b.dtype == np.float32
    np.testing.assert_allclose(product(made), u[:, :rank] * s[:rank] @ v[:rank], atol=1e-6)
    # Both have a share of the singular values, divided by the scale.
    for one in (made.a @ made.a.T, made.b.T @ made.b):
        np.testing.assert_allclose(one, np.diag(s[:rank] / scale), atol=1e-6)


def test_the_change_since_a_start_is_an_adapter_of_twice_the_rank():
    start, learnt = largest_part(WEIGHT, 2, 2.0), largest_part(WEIGHT + 1, 2, 2.0)
    (found,) = relative({"m": learnt}, {"m": start}).values()
    assert isinstance(found, Adapter) and (found.rank, found.scale) == (4, 2.0)
    np.testing.assert_allclose(product(found), product(learnt) - product(start), atol=1e-5)
    assert STARTS == ("random", "pissa", "loftq")
