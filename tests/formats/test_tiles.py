"""Formats of tiles, by definitions of their own."""

import re
from fractions import Fraction

import numpy as np
import pytest

from gradloom.rtl.formats.tiles.aligned import DROP, FRACTION, TILES, WIDTH
from gradloom.rtl.formats.tiles.codes import LEAST, MOST, NARROW, REST, WIDE, ZERO, TileCoded, coded, stored
from gradloom.rtl.formats.tiles.element import EXPONENT_LIMIT, ElementOperands
from gradloom.rtl.formats.tiles.functions import BASE, FACTOR_FRAC, SLOPE, Chords
from gradloom.rtl.formats.tiles.pixels import Pixels, taps
from gradloom.rtl.formats.tiles.records import TileRecord


def gathered(pixels, dy, dx):
    """Source row of each result row: an image of row numbers, stretched as the class says, read place by place."""
    (height, width), (tall, long), (down, right) = pixels.result, pixels.source, pixels.stride
    found = []
    for image in range(pixels.count):
        rows = image * tall * long + np.arange(tall * long).reshape(tall, long)
        if pixels.divide:
            spread = np.full((tall * down, long * right), -1)
            if pixels.every:
                spread[::down, ::right] = rows
            else:
                spread = rows.repeat(down, axis=0).repeat(right, axis=1)
            rows, down_by, right_by = spread, 1, 1
        else:
            down_by, right_by = down, right
        for y in range(height):
            for x in range(width):
                place = (y * down_by + dy, x * right_by + dx)
                inside = all(0 <= at < side for at, side in zip(place, rows.shape))
                found.append(int(rows[place]) if inside else -1)
    return found


@pytest.mark.parametrize(
    "pixels",
    [
        Pixels(2, (4, 5), (4, 5)),
        Pixels(2, (3, 2), (6, 5), (2, 3)),
        Pixels(1, (6, 8), (3, 2), (2, 4), divide=True),
        Pixels(2, (6, 7), (3, 4), (2, 2), divide=True, every=True),
        Pixels(3, (1, 9), (1, 5), (1, 2), divide=True, every=True),
    ],
    ids=str,
)
def test_a_result_reads_the_pixel_beside_its_place(pixels):
    for dy in range(-3, 4):
        for dx in range(-3, 4):
            assert pixels.rows(dy, dx).tolist() == gathered(pixels, dy, dx), (dy, dx)


def test_addresses_of_a_product_go_on_as_its_scan_says():
    """Images with a stride; the address is modulo 2**13, in tiles of 64 rows."""
    pixels = Pixels(3, (7, 6), (21, 18), (3, 3))
    scan, (height, width) = pixels.shape, pixels.result
    assert (scan["height"], scan["width"], scan["end_y"], scan["end_x"]) == (6, 5, 20, 17)
    for row, dy, dx, tile in ((0, 1, 2, 0), (5, -1, 0, 1), (41, 2, 2, 3), (44, 0, -64, 2)):
        place = pixels.place(row, dy, dx, tile)
        assert (place["line"], place["column"]) == (row % 42 // 6, row % 6)
        address = place["source"]
        for n in range(row, 3 * height * width):
            image, line, column = n // 42, n % 42 // 6, n % 6
            assert address % 8192 == ((image * 21 + 3 * line + dy) * 18 + 3 * column + dx - 64 * tile) % 8192
            address += 3 if column < 5 else scan["below"] if line < 6 else scan["image"]


@pytest.mark.parametrize(
    "given, said",
    [
        ({"result": (0, 4)}, "result=0x4: must be 1 to 1024"),
        ({"result": (4, 1025)}, "result=4x1025: must be 1 to 1024"),
        ({"source": (1025, 1)}, "source=1025x1: must be 1 to 1024"),
        ({"stride": (1, 5)}, "stride=1x5: must be 1 to 4"),
        ({"every": True}, "every=True: needs places that are divided"),
        (
            {"source": (683, 4), "stride": (3, 1), "divide": True},
            "source=(683, 4): times (3, 1) must be 2048 places at most",
        ),
    ],
)
def test_shapes_beyond_the_operands_are_refused(given, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        Pixels(**{"count": 1, "result": (4, 4), "source": (4, 4)} | given)


def test_shapes_at_the_operands_ends_are_taken():
    assert Pixels(1, (1024, 1), (1024, 1024), (4, 1)).shape["end_x"] == 1023
    assert Pixels(1, (4, 4), (1024, 682), (2, 3), divide=True).shape["end_y"] == 2047
    pixels = Pixels(1, (4, 4), (4, 4))
    assert pixels.place(0, -64, 63, 0)["dy"] == -64
    for name, by in (("dy", (-65, 0)), ("dx", (0, 64))):
        with pytest.raises(ValueError, match=f"{name}=(-65|64): must be -64 to 63"):
            pixels.place(0, *by, 0)


def test_taps_of_a_kernel_are_those_of_its_gradient_turned():
    assert taps((1, 3), (0, 2), (1, 2)) == [(0, -2), (0, 0), (0, 2)]
    assert taps((2, 2), (1, 0)) == [(-1, 0), (-1, 1), (0, 0), (0, 1)]
    assert taps((2, 2), (1, 0), back=True) == [(1, 0), (1, -1), (0, 0), (0, -1)]


def test_the_most_tiles_of_the_largest_products_fit_into_a_sum():
    most = 64 * 127 * 127
    assert TILES * most << FRACTION < 1 << WIDTH - 1 <= TILES * most << FRACTION + 1
    assert WIDTH <= 48, "a slice adds 48 bits"
    assert (1 << DROP) - 1 > FRACTION, "a drop tells that a tile is lost"


def exactly(values, bits):
    """Codes and exponent of a tile of fractions: the largest magnitude takes ``bits`` bits, halves round up."""
    most, largest = (1 << bits - 1) - 1, max(abs(value) for value in values)
    if not largest:
        return [0] * len(values), ZERO, 0
    exponent = next(e for e in range(LEAST, MOST + 1) if e == MOST or largest < Fraction(2) ** (e + bits - 1))
    halves = [int((value / Fraction(2) ** exponent + Fraction(1, 2)).__floor__()) for value in values]
    clipped = sum(abs(code) > most + 1 for code in halves)
    return [min(max(code, -most), most) for code in halves], exponent, clipped


@pytest.mark.parametrize("bits", [NARROW, WIDE])
@pytest.mark.parametrize("scale", [-100, -12, 0, 9, MOST - 8, MOST + 4])
def test_codes_are_those_of_exact_numbers(bits, scale):
    rng = np.random.default_rng(bits + abs(scale))
    words = rng.integers(-(1 << 20), 1 << 20, (2, 70)) >> rng.integers(0, 21, (2, 70))
    words[0, :3] = 1 << 19, (1 << 20) - 1, -(1 << 20)
    found = coded(words * 2.0**scale, bits)
    clipped = zeroed = 0
    for tile, part in enumerate((slice(0, 64), slice(64, 70))):
        given = [int(word) * Fraction(2) ** scale for word in words[:, part].ravel()]
        codes, exponent, more = exactly(given, bits)
        assert found.codes[:, part].ravel().tolist() == codes and found.exponents[0, tile] == exponent
        clipped, zeroed = clipped + more, zeroed + sum(code == 0 != value for code, value in zip(codes, given))
        one = stored(words[:, part], scale, bits)
        assert one.codes.ravel().tolist() == codes and (one.exponent, one.clipped) == (exponent, more)
        assert one.zeroed == sum(code == 0 != value for code, value in zip(codes, given))
    assert (found.clipped, found.zeroed) == (clipped, zeroed) and (clipped > 0) == (scale > MOST - 12 + bits - 8)


def test_rests_complete_codes_of_16_bits():
    values = np.random.default_rng(4).normal(size=(64, 64))
    first, rest, whole = (coded(values, bits) for bits in (NARROW, REST, WIDE))
    assert np.array_equal(rest.exponents, whole.exponents) and np.array_equal(first.exponents - 8, whole.exponents)
    free = (np.abs(rest.codes) < 127) & (np.abs(first.codes) < 127)
    assert np.array_equal((256 * first.codes + rest.codes)[free], whole.codes[free]) and free.mean() > 0.98
    words = np.rint(values * 2**30).astype(np.int64)
    one = stored(words, -30, REST)
    assert one.exponent == rest.exponents[0, 0]
    assert np.array_equal(one.codes, coded(words * 2.0**-30, REST).codes)
    for edge in (values * 2.0 ** (LEAST + 2), np.zeros((3, 3))):
        assert not coded(edge, REST).codes.any() and (coded(edge, REST).exponents == ZERO).all()


def test_codes_that_no_quantiser_makes_are_refused():
    ends = np.array([[127.0, -127.0]])
    for exponent in (ZERO, MOST):
        TileCoded(ends, np.array([[exponent]])).check("x")
    for codes, exponent, said in (
        ([[0, 128]], 0, "x[0, 1] is 128: codes must be integers from -127 to 127"),
        ([[-128, 0]], 0, "x[0, 0] is -128"),
        ([[0.5, 0]], 0, "x[0, 0] is 0.5"),
        ([[1, 0]], MOST + 1, "exponent [0, 0] of x is 128: must be from -128 to 127"),
        ([[1, 0]], ZERO - 1, "exponent [0, 0] of x is -129"),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            TileCoded(np.array(codes, float), np.array([[exponent]])).check("x")
    assert TileCoded(np.array([[32767.0]]), np.array([[0]])).check("x", WIDE).values == 32767


@pytest.mark.parametrize(
    "rows, features, bits, row_beats", [(1, 1, 8, 1), (64, 32, 8, 1), (3, 33, 8, 2), (5, 17, 16, 2), (64, 64, 16, 4)]
)
def test_a_record_is_a_header_and_rows_of_whole_beats(rows, features, bits, row_beats):
    record = TileRecord(rows, features, bits)
    assert (record.row_beats, record.beats, record.size) == (
        row_beats,
        1 + rows * row_beats,
        32 + 32 * rows * row_beats,
    )
    most = (1 << bits - 1) - 1
    codes = np.random.default_rng(rows).integers(-most, most + 1, (rows, features))
    codes[0, 0] = -most
    content = record.pack(codes, -3)
    assert content[:32] == b"\xfd" + bytes(31) and len(content) == record.size
    for row in range(rows):
        line = content[32 * (1 + row * row_beats) :][: 32 * row_beats]
        assert line == codes[row].astype(f"<i{bits // 8}").tobytes().ljust(32 * row_beats, b"\0")
    found, exponent = record.unpack(content)
    assert np.array_equal(found, codes) and exponent == -3
    with pytest.raises(ValueError, match=f"has {record.size - 1} bytes, must have {record.size}"):
        record.unpack(content[:-1])
    least = bytes([0x80] if bits == 8 else [0, 0x80])
    with pytest.raises(ValueError, match=re.escape(f"record[0, 0] is {-most - 1}: codes must be at least {-most}")):
        record.unpack(content[:32] + least + content[32 + len(least) :])


@pytest.mark.parametrize("given", [{"rows": 0}, {"rows": 65}, {"features": 0}, {"features": 65}, {"bits": 9}], ids=str)
def test_records_that_are_no_tiles_are_refused(given):
    (field,) = given
    with pytest.raises(ValueError, match=f"{field}={given[field]}: "):
        TileRecord(**{"rows": 1, "features": 1} | given)


def test_a_constants_exponent_has_a_range_that_its_operand_holds():
    width = ElementOperands.members["exponent"].width
    assert -(1 << width - 1) < -EXPONENT_LIMIT and EXPONENT_LIMIT == 512


def test_a_table_holds_values_and_rises_below_the_ends_of_its_words():
    assert BASE.frac == SLOPE.frac == FACTOR_FRAC
    unit = 2.0**-FACTOR_FRAC
    for bits, function in (
        (BASE.width, lambda most: lambda x: np.full_like(x, most)),
        # A rise of the first piece alone, of 512.
        (SLOPE.width, lambda most: lambda x: np.minimum(x * 512, 1) * most),
    ):
        most = (1 << bits - 1) * unit
        for sign in (1, -1):
            base, slope = Chords(function(sign * (most - unit)), 0).table
            assert max(np.abs(base).max(), np.abs(slope).max()) == (1 << bits - 1) - 1
            with pytest.raises(
                ValueError, match="exponent=0: a (value|rise of a piece) is 1 times as large as a table's"
            ):
                _ = Chords(function(sign * most), 0).table
            assert np.abs(Chords(function(sign * most), 0, 1).table).max() == 1 << bits - 2
