"""Products whose weights are dense tiles: RTL equals the reference, the forecast is the RTL."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.program.assembler import Assembler
from gradloom.rtl.engines.linear.commands import TileKind
from gradloom.rtl.formats.weights.tiles import tile_rows, untile_rows
from gradloom.sim.reference import linear as reference
from gradloom.systems.text.program.engines.linear import LayerMap, LayerPlan, chain, dense_tile
from gradloom.systems.text.program.jobs import ProductJob, Transfer
from gradloom.systems.text.run.linear import choose_exponents, mathematics, reference_step

from ..conftest import SMALL, make_layer
from ..test_linear_perf import LATENCIES, agree

EDGE = SMALL.edge
START = 1 << 18
SHIFTS = {"hidden_shift": 22, "dot_shift": 4, "shift": 21}
KINDS = [TileKind.WORDS, TileKind.HALVES]


def halves(words):
    """``words [rows, features]`` of 16 bits in memory, as :func:`tile_rows` lays 32."""
    rows, features = words.shape
    return words.reshape(rows, features // EDGE, EDGE).swapaxes(0, 1).astype("<i2").tobytes()


class Dense:
    """A product with random ``w [rows, features]``, which lies in memory by tile of features: forward its rows are
    outputs, by column inputs. Rows need not fill their last tile."""

    def __init__(
        self, rows, features, tokens, *, kind=TileKind.WORDS, by_column=False, rank=0, seed=0, start=START, x=None
    ):
        draw = np.random.default_rng(seed)
        limit = 1 << (23 if kind == TileKind.WORDS else 15)
        w = draw.integers(-limit, limit, (rows, features))
        w[0, :2] = -limit, limit - 1  # the largest does not round up
        tiles = -(-rows // EDGE), features // EDGE
        inner, outer = tiles if by_column else tiles[::-1]
        x = draw.integers(-1 << 23, 1 << 23, (tokens, inner * EDGE)) if x is None else x
        a, b = (draw.integers(-1 << 31, 1 << 31, (rank, n * EDGE)) for n in (inner, outer))
        self.kind, self.size, self.outputs = kind, (tokens, outer * EDGE), features if by_column else rows
        whole = np.zeros((tiles[0] * EDGE, features), np.int64)
        whole[:rows] = reference.dense_words(w, halves=kind == TileKind.HALVES)
        self.expected = reference.product(
            x, whole.T if by_column else whole, reference.lanes(a), reference.lanes(b).T, **SHIFTS
        ).y
        self.parts, at = [], [start]
        for data in (
            tile_rows(x, EDGE),
            tile_rows(a, EDGE),
            tile_rows(b, EDGE),
            tile_rows(w, EDGE) if kind == TileKind.WORDS else halves(w),
        ):
            self.parts.append((at[-1], data))
            at.append(at[-1] + len(data))
        beat = SMALL.data_bits // 8
        row = kind.row_beats * beat
        order = (
            [(n, f) for f in range(tiles[1]) for n in range(tiles[0])]
            if by_column
            else [(n, f) for n in range(tiles[0]) for f in range(tiles[1])]
        )
        self.end = at[4] + 4 * tokens * outer * EDGE
        self.job = ProductJob(
            tables=None,
            operands=(Transfer(at[0], len(self.parts[0][1]) // beat, 0),),
            lanes=(
                Transfer(at[1], len(self.parts[1][1]) // beat, 0),
                Transfer(at[2], len(self.parts[2][1]) // beat, inner * rank),
            )
            if rank
            else (),
            tiles=tuple(
                dense_tile(at[3] + (f * rows + n * EDGE) * row, SMALL, rows=min(rows - n * EDGE, EDGE), kind=kind)
                for n, f in order
            ),
            result=Transfer(at[4], outer * tokens * EDGE // SMALL.beat_words, 0),
            inner=inner,
            outer=outer,
            tokens=tokens,
            rank=rank,
            backward=by_column,
            shifts=SHIFTS,
        )

    def store(self, host):
        for offset, data in self.parts:
            host.store(offset, data)

    def check(self, host):
        tokens, features = self.size
        found = untile_rows(host.fetch(self.job.result.offset, 4 * tokens * features), tokens, features, EDGE)
        assert np.array_equal(found, self.expected)
        assert np.all(np.any(found[:, : self.outputs], axis=0))


def run(machine, products, latency=(40, 10)):
    for product in products:
        product.store(machine.host)
    program = Assembler()
    chain(program, [product.job for product in products], SMALL)
    agree(machine, program, latency)
    for product in products:
        product.check(machine.host)


@pytest.mark.parametrize("by_column", [False, True], ids=["forward", "by column"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    "rows, features, tokens, rank",
    [(16, 16, 1, 0), (32, 48, 8, 4), (48, 32, 3, 2), (1, 16, 4, 0), (15, 32, 5, 0), (35, 16, 8, 2)],
    ids=str,
)
def test_a_product(machine, rows, features, tokens, rank, kind, by_column):
    """Rows that are not there count as 0."""
    run(machine, [Dense(rows, features, tokens, kind=kind, by_column=by_column, rank=rank, seed=rows)])


@pytest.mark.parametrize("latency", LATENCIES, ids=str)
def test_kinds_and_rows_in_turns(machine, latency):
    products, start = [], START
    for index, (rows, kind) in enumerate(
        [(20, TileKind.WORDS), (16, TileKind.HALVES), (3, TileKind.HALVES), (2, TileKind.WORDS), (31, TileKind.WORDS)]
    ):
        products.append(Dense(rows, 32, 1 + index, kind=kind, by_column=index % 2 == 1, seed=index, start=start))
        start = products[-1].end
    run(machine, products, latency)


@pytest.mark.parametrize("stall", [0, 60, 200])
def test_dense_tiles_between_tiles_of_codes(machine, stall):
    """One chain; memory stalls change no word."""
    jobs, checks, start = [], [], START
    for index in range(6):
        if index % 2:
            dense = Dense(20 + index, 32, 4, kind=KINDS[index // 2 % 2], by_column=index == 3, seed=index, start=start)
            dense.store(machine.host)
            start = dense.end
            jobs.append(dense.job)
            checks.append(dense.check)
            continue
        layer = make_layer(32, 48, 4, 2, seed=index)
        exponents = choose_exponents(layer, mathematics(layer, 0.3))
        place = LayerMap.place(layer.shape, SMALL, start)
        start = place.end
        machine._store(layer, exponents, place)
        plan = LayerPlan(shape=layer.shape, exponents=exponents, place=place, config=SMALL)
        jobs.append(plan.job(backward=index == 4))
        checks.append(lambda host, job=jobs[-1], e=exponents, layer=layer: same_words(host, job, layer, e))
    program = Assembler()
    chain(program, jobs, SMALL)
    if not stall:
        agree(machine, program)
    else:
        machine.device.set("stall", stall)
        try:
            machine._run(program)
        finally:
            machine.device.set("stall", 0)
    for check in checks:
        check(machine.host)


def same_words(host, job, layer, exponents):
    features = job.outer * EDGE
    found = untile_rows(host.fetch(job.result.offset, 4 * job.tokens * features), job.tokens, features, EDGE)
    assert np.array_equal(found, reference_step(layer, exponents, 0.3).tensors["dx" if job.backward else "y"])


@pytest.mark.parametrize("rows", [16, 11])
def test_the_identity_transposes(machine, rows):
    x = np.eye(8, EDGE, dtype=np.int64) << SHIFTS["shift"]
    product = Dense(rows, EDGE, 8, x=x, seed=rows)
    run(machine, [product])
    w = reference.dense_words(untile_rows(product.parts[3][1], rows, EDGE, EDGE))
    assert np.array_equal(product.expected[:, :rows], w.T[:8])
    assert not product.expected[:, rows:].any()


@pytest.mark.parametrize("seed", range(4))
def test_several_tiles_in_a_command(machine, seed):
    """Only the last beat of a command completes a tile."""
    draw = np.random.default_rng(seed)
    product = Dense(48, 16, 2, kind=KINDS[seed % 2], seed=seed)
    first = product.job.tiles[0]
    # 48 rows lie one behind the other.
    product.job = replace(product.job, tiles=(replace(first, beats=sum(tile.beats for tile in product.job.tiles)),))
    other = Dense(int(draw.integers(1, 40)), 16, 8, by_column=True, seed=seed, start=product.end)
    run(machine, [product, other, product])


def test_refuses_what_is_no_dense_tile():
    for rows in (0, EDGE + 1):
        with pytest.raises(ValueError, match=f"rows={rows}: a tile has 1 to {EDGE}"):
            dense_tile(0, SMALL, rows=rows)
    with pytest.raises(ValueError, match="kind=CODES: must be WORDS or HALVES"):
        dense_tile(0, SMALL, rows=1, kind=TileKind.CODES)
