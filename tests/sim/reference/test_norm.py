"""Norms of whole tiles: which groups have one exponent."""

import numpy as np
import pytest

from gradloom.sim.reference.tiles.norm import TileNorm


def least_of(norm, exponents, features):
    made = norm._least(np.array(exponents).reshape(-1, 1, norm.groups, 1), features)
    return made.reshape(-1, norm.groups).tolist()


def test_rows_of_a_tile_have_the_least_of_their_exponents():
    """64 rows, and what is left; the least is the first, the last, or one between."""
    norm = TileNorm(np.ones(128), np.zeros(128), rows=1, groups=1, eps=1e-5)
    exponents = [3, *[9] * 63, *[8] * 63, 2, 7, 1, 6]
    assert least_of(norm, exponents, 128) == [[3]] * 64 + [[2]] * 64 + [[1]] * 3


@pytest.mark.parametrize(
    ("features", "groups", "wanted"),
    [(128, 8, [[3, 3, 3, 3, 1, 1, 1, 1], [7, 7, 7, 7, 2, 2, 2, 2]]), (256, 2, [[5, 3], [4, 6]])],
    ids=["four groups a tile", "two tiles a group"],
)
def test_groups_of_a_tile_have_the_least_of_their_exponents(features, groups, wanted):
    norm = TileNorm(np.ones(features), np.zeros(features), rows=8, groups=groups, eps=1e-5)
    exponents = [[5, 3, 9, 4, 6, 8, 7, 1], [7, 8, 9, 9, 2, 5, 4, 3]] if groups == 8 else wanted
    assert least_of(norm, exponents, features) == wanted
