"""Products of parts of tiles: how many sums they take."""

import pytest

from gradloom.compiler.commands.images import scored, split


@pytest.mark.parametrize(("tiles", "sums"), [(1, 1), (32, 1), (33, 2), (64, 2), (65, 4)])
def test_a_sum_reads_at_most_32_tiles_of_either_side(tiles, sums):
    found = split(scored(1, 1, 64, 64, 64 * tiles))
    assert len(found) == sums
    assert sum(len(part.read()[0]) for parts in found for part in parts) == tiles
