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
    ("features", "exponents", "wanted"),
    [
        (192, [5, 3, 9, 4, 6, 8, 7, 1, 2, 9, 9, 9], [3, 3, 3, 3, 1, 1, 1, 1, 2, 2, 2, 2]),
        (256, [5, 3, 9, 4, 6, 8, 7, 1, 2, 9, 9, 9, 6, 5, 4, 7], [3] * 4 + [1] * 4 + [2] * 4 + [4] * 4),
        (256, [5, 3], [5, 3]),
    ],
    ids=["three tiles", "four tiles", "two tiles a group"],
)
def test_groups_of_a_tile_have_the_least_of_their_exponents(features, exponents, wanted):
    norm = TileNorm(np.ones(features), np.zeros(features), rows=8, groups=len(exponents), eps=1e-5)
    # Two images.
    assert least_of(norm, [exponents, [9 - each for each in wanted]], features) == [
        wanted,
        [9 - each for each in wanted],
    ]
