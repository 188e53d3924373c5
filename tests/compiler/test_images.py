"""Products of parts of tiles: how many sums they take."""

import pytest

from gradloom.compiler.commands.images import scored, split


@pytest.mark.parametrize(("tiles", "sums"), [(1, 1), (16, 1), (17, 2), (32, 2), (33, 4)])
def test_a_sum_reads_at_most_16_tiles_of_either_side(tiles, sums):
    found = split(scored(1, 1, 64, 64, 64 * tiles))
    assert len(found) == sums
    assert sum(len(part.read()[0]) for parts in found for part in parts) == tiles
