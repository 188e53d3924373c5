"""Records of a tensor fill its bytes without a gap, and bring its codes back."""

import itertools

import numpy as np
import pytest

from gradloom.program.tiles.layout import LayoutWords, Tiled, Tiles
from gradloom.rtl.formats.tiles.codes import EDGE, NARROW, WIDE, TileCoded

SIZES = [(1, 1), (EDGE, EDGE), (EDGE + 1, EDGE - 1), (2 * EDGE, 2 * EDGE + 5), (7, 3 * EDGE)]


@pytest.mark.parametrize("rows, features", SIZES)
def test_tiles_are_whole_but_the_last_of_each_side(rows, features):
    t = Tiled()
    t.rows, t.features = rows, features
    parts = np.array([[t.part(i, j) for j in range(t.wide)] for i in range(t.high)])
    assert (parts[:, 0, 0].sum(), parts[0, :, 1].sum()) == (rows, features) and (parts >= 1).all()
    assert (parts[:-1, :, 0] == EDGE).all() and (parts[:, :-1, 1] == EDGE).all() and t.tile == tuple(parts[0, 0])


@pytest.mark.parametrize("bits", [NARROW, WIDE])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("rows, features", SIZES)
def test_records_follow_each_other_and_bring_codes_back(rows, features, count, bits):
    rng = np.random.default_rng(0)
    tiles = Tiles(4096, count, rows, features, bits)
    end = tiles.offset
    for i, j, n in tiles.places():
        assert tiles.at(i, j, n) == end
        end += tiles.record(i, j).size
    assert end == tiles.offset + tiles.size
    limit = (1 << bits - 1) - 1
    whole = (count, rows, features)[count == 1 :]
    codes = TileCoded(
        rng.integers(-limit, limit + 1, whole).astype(np.float64),
        rng.integers(-99, 99, (count, tiles.high, tiles.wide)[count == 1 :]),
    )
    content = tiles.pack(codes)
    found = tiles.unpack(content)
    assert len(content) == tiles.size
    np.testing.assert_array_equal(found.codes, codes.codes)
    np.testing.assert_array_equal(found.exponents, codes.exponents)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("rows, features", [(1, 1), (3, 6), (EDGE + 2, EDGE + 3), (2 * EDGE, 2 * EDGE)])
def test_masters_and_moments_lie_as_the_gradients_records(rows, features, count):
    rng = np.random.default_rng(1)
    held = LayoutWords(0, 0, Tiles(0, count, rows, features, WIDE))
    places = [(held.at(i, j, n), held.length(i, j)) for i, j, n in held.gradient.places()]
    ends = list(itertools.accumulate((length for _, length in places), initial=0))
    assert [begin for begin, _ in places] == ends[:-1] and held.size == 4 * ends[-1]
    # A row has whole beats of 8 words.
    assert all(
        held.lanes(j) % 8 == 0 and 0 <= held.lanes(j) - held.gradient.part(0, j)[1] < 8
        for j in range(held.gradient.wide)
    )
    whole = (count, rows, features)[count == 1 :]
    words, (m, v) = rng.integers(-1000, 1000, whole), rng.integers(0, 1 << 32, (2, *whole))
    np.testing.assert_array_equal(held.unpack(held.pack(words)), words)
    content = held.pack_moments(m, v)
    assert len(content) == 2 * held.size
    for found, expected in zip(held.unpack_moments(content), (m, v)):
        np.testing.assert_array_equal(found, expected)
    # Four of m, four of v.
    first = np.frombuffer(content, "<u4")[:8]
    row = np.stack([each.reshape(count, rows, features)[0, 0, :4] for each in (m, v)])
    assert first.reshape(2, 4)[:, : row.shape[1]].tolist() == row.tolist()
