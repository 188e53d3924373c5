"""Commands on tiles give what functions on tensors do; those are float's within bounds in ``test_tile_vector.py``."""

import numpy as np
import pytest

from gradloom.rtl.formats.tiles.codes import EDGE, WIDE, coded
from gradloom.rtl.formats.tiles.norm import PULLED, constant
from gradloom.rtl.formats.tiles.norm import NormOpcode as Op
from gradloom.rtl.formats.tiles.records import TileRecord, tile_argument
from gradloom.sim.reference.norm import NormModel
from gradloom.sim.reference.tiles import norm as tile_norm

from .script import CONFIG, EPS_OPERANDS, factor_operands, sizes


class Tiles:
    """Tensors of whole tiles, on the model."""

    def __init__(self):
        self.model = NormModel(CONFIG)

    def load(self, port, slot, values):
        """A row of tiles, or a column, into slots one after another."""
        made = coded(values, WIDE)
        rows, features = (min(size, EDGE) for size in values.shape)
        record = TileRecord(rows, features, WIDE)
        codes = made.codes.reshape(-1, rows, values.shape[1] // features, features).swapaxes(1, 2)
        codes = codes.reshape(-1, rows, features)
        for number, exponent in enumerate(made.exponents.reshape(-1)):
            argument = tile_argument(slot + number, rows, features)
            self.model.load(port, argument, record.pack(codes[number], int(exponent)))

    def run(self, opcode, **operands):
        self.model.run(opcode, sizes(operands))

    def stored(self, slot, rows, features):
        record = TileRecord(rows, features, WIDE)
        content = self.model.store("o", tile_argument(slot, rows, features, wide=True), record.beats)
        codes, exponent = record.unpack(content)
        return codes * 2.0**exponent


def drawn(seed, rows, features):
    rng = np.random.default_rng(seed)
    # Tiles, rows and features of several sizes.
    scale = np.exp2(rng.integers(-3, 4, (rows, 1)) + rng.integers(-3, 4, (1, features)))
    return coded(rng.standard_normal((rows, features)) * scale + 1, WIDE).values


@pytest.mark.parametrize(("rows", "groups"), [(128, 16), (64, 2), (16, 8), (1, 32)])
def test_group_norm_by_image_and_tile(rows, groups):
    """Images of two tiles, of one, of parts of one."""
    features = 128
    images = 256 // rows if rows > 1 else 64
    x, dy = drawn(1, images * rows, features), drawn(2, images * rows, features) * 2.0**-20
    gain, bias = drawn(3, 1, features)[0], drawn(4, 1, features)[0]
    norm = tile_norm.TileNorm(gain, bias, rows=rows, groups=groups, eps=1e-5)
    forward, backward = (coded(each, WIDE).values for each in (norm.forward(x), norm.backward(dy, x)))
    group = (features // groups).bit_length() - 1
    deep = max(rows, EDGE)
    for first in range(0, len(x), deep):
        for column in range(0, features, EDGE):
            at = np.s_[first : first + deep, column : column + EDGE]
            tiles = Tiles()
            tiles.load("a", 0, x[at])
            for slot, row in ((0, gain), (1, bias)):
                tiles.load("gain", slot, row[None, column : column + EDGE])
            count, part = max(rows // EDGE, 1), min(rows, EDGE)
            sums = {"tiles": count, "rows": part, "features": EDGE, "group": group, **EPS_OPERANDS}
            place = {"rows": part, "features": EDGE, "gain": 0}
            for row in range(0, EDGE, part):
                tiles.run(Op.SUMS, a=0, a_row=row, **sums)
                for tile in range(count):
                    tiles.run(Op.NORM, a=tile, o=tile, bias=1, a_row=row, o_row=row, fresh=int(row == 0), **place)
            made = [tiles.stored(tile, EDGE, EDGE) for tile in range(count)]
            assert (np.concatenate(made) == forward[at]).all()
            tiles.load("b", 4, dy[at])
            for row in range(0, EDGE, part):
                tiles.run(Op.SUMS, a=0, a_row=row, **sums)
                tiles.run(Op.BACK_SUMS, a=0, b=4, a_row=row, tiles=count, **place)
                for tile in range(count):
                    operands = {"a": tile, "b": 4 + tile, "o": tile, "a_row": row, "o_row": row}
                    tiles.run(Op.BACK, fresh=int(row == 0), **operands, **place)
            made = [tiles.stored(tile, EDGE, EDGE) for tile in range(count)]
            assert (np.concatenate(made) == backward[at]).all()
            assert tiles.model.saturated == 0


@pytest.mark.parametrize(("rows", "features"), [(128, 256), (10, 32)])
def test_layer_norm_by_tiles_of_rows(rows, features):
    x, dy = drawn(1, rows, features), drawn(2, rows, features) * 2.0**-20
    gain, bias = drawn(3, 1, features)[0], drawn(4, 1, features)[0]
    norm = tile_norm.TileNorm(gain, bias, rows=1, groups=1, eps=1e-5)
    forward, backward = (coded(each, WIDE).values for each in (norm.forward(x), norm.backward(dy, x)))
    part, wide = min(rows, EDGE), min(features, EDGE)
    count = features // wide
    for first in range(0, rows, part):
        at = np.s_[first : first + part]
        tiles = Tiles()
        tiles.load("a", 0, x[at])
        tiles.load("gain", 0, gain[None])
        tiles.load("gain", 8, bias[None])
        place = {"rows": part, "features": wide}
        tiles.run(Op.SUMS, a=0, tiles=count, by_row=1, **EPS_OPERANDS, **place)
        for tile in range(count):
            tiles.run(Op.NORM, a=tile, o=tile, gain=tile, bias=8 + tile, fresh=1, **place)
        assert (np.hstack([tiles.stored(tile, part, wide) for tile in range(count)]) == forward[at]).all()
        tiles.load("b", 0, dy[at])
        tiles.run(Op.BACK_SUMS, a=0, b=0, gain=0, tiles=count, **place)
        for tile in range(count):
            tiles.run(Op.BACK, a=tile, b=tile, o=tile, gain=tile, fresh=1, **place)
        assert (np.hstack([tiles.stored(tile, part, wide) for tile in range(count)]) == backward[at]).all()


@pytest.mark.parametrize("keys", [1, 16, 64])
def test_softmax_of_heads(keys):
    """A head's tile in one command; rows of a tile in several give the same words."""
    factor = 20**-0.5
    scores, dp = drawn(1, 24, keys), drawn(2, 24, keys) * 2.0**-9
    p = tile_norm.softmax(scores, factor)
    shares = coded(p, WIDE).values
    back = tile_norm.softmax_back(shares, dp, factor)
    tiles = Tiles()
    tiles.load("a", 0, scores)
    place = {"features": keys}
    for row in (0, 8, 16):
        operands = factor_operands(factor * np.log2(np.e))
        tiles.run(Op.SOFTMAX, a=0, o=1, a_row=row, o_row=row, rows=8, fresh=int(row == 0), **place, **operands)
    assert (tiles.stored(1, 24, keys) == shares).all()
    tiles.load("a", 1, shares)
    tiles.load("b", 2, dp)
    tiles.run(Op.SOFTMAX_BACK, a=1, b=2, o=0, rows=24, fresh=1, **place, **factor_operands(factor))
    assert (tiles.stored(0, 24, keys) == coded(back, WIDE).values).all()


def wide(seed, rows, keys, scale):
    """Tiles whose exponents differ."""
    rng = np.random.default_rng(seed)
    sizes_of = np.exp2(rng.integers(-3, 1, -(-keys // EDGE))).repeat(EDGE)[:keys]
    return coded(scale * rng.standard_normal((rows, keys)) * sizes_of, WIDE).values


@pytest.mark.parametrize("keys", [65, 200, 512])
def test_softmax_of_rows_of_several_tiles(keys):
    """Commands over three tiles at once and over pairs give what functions on tensors do."""
    rows, factor = 24, 20**-0.5
    scores, dp = wide(1, rows, keys, 30), wide(2, rows, keys, 2.0**-9)
    shares = coded(tile_norm.softmax(scores, factor), WIDE).values
    back = coded(tile_norm.softmax_back(shares, dp, factor), WIDE).values
    columns = [np.s_[:, first : first + EDGE] for first in range(0, keys, EDGE)]

    def run(tiles, first, count, opcode, **operands):
        features = keys - EDGE * (first + count - 1) if first + count == len(columns) else EDGE
        own = factor_operands(operands.pop("factor")) if "factor" in operands else {}
        tiles.run(opcode, a=first, b=first, rows=rows, features=features, tiles=count, **own, **operands)

    tiles, two = Tiles(), factor * np.log2(np.e)
    for n, each in enumerate(columns):
        tiles.load("a", n, scores[each])
    for opcode in (Op.LARGEST, Op.POWERS):
        for first in range(0, len(columns), 3):
            run(tiles, first, min(3, len(columns) - first), opcode, factor=two, more=int(first > 0))
    for n, each in enumerate(columns):
        run(tiles, n, 1, Op.SHARES, factor=two, fresh=1)
        assert (tiles.stored(0, rows, shares[each].shape[1]) == shares[each]).all()
    for n, each in enumerate(columns):
        tiles.load("a", n, shares[each])
        tiles.load("b", n, dp[each])
    for first in range(0, len(columns), PULLED):
        run(tiles, first, min(PULLED, len(columns) - first), Op.PULLS, more=int(first > 0))
    for n, each in enumerate(columns):
        run(tiles, n, 1, Op.SOFT_BACK, factor=factor, fresh=1)
        assert (tiles.stored(0, rows, shares[each].shape[1]) == back[each]).all()
    assert tiles.model.saturated == 0


@pytest.mark.parametrize("keys", [7, 100, 1000, 4096])
def test_softmaxes_are_near_mathematics(keys):
    """Within what codes of 16 bits under the row's largest exponent, powers of 17 bits and sums of 27 leave."""
    factor = 0.3
    scores, dp = wide(1, 8, keys, 20), wide(2, 8, keys, 2.0**-9)
    unit, its = (2.0 ** tile_norm.parts(each)[1].max() for each in (scores, dp))
    made = tile_norm.softmax(scores, factor)
    exact = np.exp(factor * (scores - scores.max(1, keepdims=True)))
    exact /= exact.sum(1, keepdims=True)
    off = np.expm1(2 * factor * unit) + 2.0**-14 + keys * 2.0**-27
    assert (np.abs(made - exact) <= off * exact + 2.0**-26).all()
    p = coded(made, WIDE).values
    p_unit = 2.0 ** tile_norm.parts(p)[1].max()
    wanted = factor * p * (dp - (p * dp).sum(1, keepdims=True))
    # Half a unit of dy; of the pull half a unit a product, one more a command, and its own.
    each = its * (0.5 + keys * p_unit + 2.0**-8)
    found = tile_norm.softmax_back(p, dp, factor)
    assert (np.abs(found - wanted) <= 1.01 * factor * p * each + 2.0**-16 * abs(wanted)).all()


@pytest.mark.parametrize(("size", "keys"), [(40, 130), (64, 70), (160, 65)])
def test_pulls_of_results_are_those_of_shares(size, keys):
    """Heads side by side cross tiles; rows' sums of results times their gradients are near those of p times dp."""
    heads, rows = 3, 30
    rng = np.random.default_rng(size)
    p = coded(tile_norm.softmax(wide(1, heads * rows, keys, 4), 1.0), 8).values.reshape(heads, rows, keys)
    v, dy = rng.standard_normal((heads, keys, size)), rng.standard_normal((rows, heads * size)) * 2.0**-9
    dy, y = coded(dy, WIDE).values, coded(np.concatenate([*(p @ v)], axis=1), WIDE).values
    words, at = tile_norm.pulls(y, dy, heads)
    unit = np.ldexp(1.0, (at - 8).astype(int))
    exact = np.concatenate([(y * dy)[:, size * n : size * (n + 1)].sum(1, keepdims=True) for n in range(heads)])
    # Half a unit, and of each product half a unit of the sums, of which the pull's has 2**(its bits - 26) at least.
    finer = unit * 2.0 ** -(2 * 15 + (size - 1).bit_length() - 25)
    assert (np.abs(words * unit - exact) <= unit * (0.5 + 4 * 2.0**-8) + size * finer).all()
    dp = coded(np.stack([dy[:, size * n : size * (n + 1)] @ each.T for n, each in enumerate(v)]), WIDE).values
    found = tile_norm.softmax_back(p, dp, 0.3, (words, at))
    pull = (p * dp).sum(-1, keepdims=True)
    off = np.abs(exact.reshape(heads, rows, 1) - pull) + unit.reshape(heads, rows, 1) * 300
    wanted = 0.3 * p * (dp - pull)
    assert (np.abs(found - wanted) <= 1.01 * 0.3 * p * off + 2.0**-16 * abs(wanted)).all()
    # Each of the bounds is small beside the gradients.
    assert off.max() < 0.02 * np.abs(dp).max()


def test_constants():
    assert constant(1.0) == (1 << 16, -16) and constant(1 - 2.0**-30, 16) == (1 << 15, -15)
    for value in (1e-5, 3.0, 7e8):
        mantissa, exponent = constant(value)
        assert mantissa.bit_length() == 17 and abs(mantissa * 2.0**exponent - value) <= 2.0 ** (exponent - 1)
