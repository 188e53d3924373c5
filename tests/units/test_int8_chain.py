"""Products of 8-bit tiles: streams equal the reference, and no code, power of two or length makes a sum wrap."""

# amaranth: UnusedElaboratable=no
import numpy as np
import pytest

from gradloom.rtl.formats.tiles.aligned import FRACTION, LOST, TILES
from gradloom.rtl.systolic.aligned import AlignedSums
from gradloom.rtl.systolic.paired import ChainFeet, PairedArray
from gradloom.rtl.units.int8_chain import Int8Chain
from gradloom.sim.bench.engine import simulate
from gradloom.sim.bench.mutants import mutant
from gradloom.sim.reference.units.int8_chain import drops, int8_chain


def extremes(rng, shape, *, least=-128):
    """Codes, every third of them at an end."""
    codes = rng.integers(least, 128, shape)
    ends = rng.choice([least, -127, 127], shape)
    return np.where(rng.random(shape) < 1 / 3, ends, codes)


def beats(x, w, drop):
    """Beats of both streams."""
    tiles = x.shape[1]
    rows = [
        {
            "x": row.tolist(),
            "first": n == 0,
            "start": t == 0,
            "last": t == tiles - 1,
            "drop": min(int(drop[s, t, n]), 31),
        }
        for s in range(len(x))
        for t in range(tiles)
        for n, row in enumerate(x[s, t])
    ]
    return {"i": rows, "w": [{"w": row.tolist()} for tile in w.reshape(-1, *w.shape[2:]) for row in tile]}


def play(bench, dut, x, w, drop, **options):
    """Runs the unit beside the reference; the transfers' cycles."""
    sums, lost = int8_chain(x, w, drop)
    got, times = bench(dut, beats(x, w, drop), {"o": sums.shape[0] * sums.shape[1]}, **options)
    found = [[row.sum[c] for c in range(dut.columns)] for row in got["o"]]
    assert found == sums.reshape(-1, dut.columns).tolist()
    assert [row.lost for row in got["o"]] == lost.reshape(-1).tolist()
    return times


def dut_pairs(family):
    """Whether a slice of the family makes two products."""
    return family != "ecp5"


def drawn(rng, dut, sums, tiles, m, *, spread=24):
    """Codes and drops of random tiles, one of each token's drops 0."""
    x = extremes(rng, (sums, tiles, m, dut.rows))
    w = extremes(rng, (sums, tiles, dut.rows, dut.columns))
    _, drop = drops(rng.integers(-spread, spread, (sums, tiles, m)), rng.integers(-3, 4, (sums, tiles)))
    return x, w, drop


@pytest.mark.parametrize(
    ("rows", "columns", "family", "stall"),
    [(32, 2, "xcup", 0.5), (12, 2, "xc7", 0.0), (12, 2, "xc7", 0.5), (5, 3, "ecp5", 0.5)],
)
def test_sums_are_those_of_the_reference(bench, rows, columns, family, stall):
    rng = np.random.default_rng(rows + columns)
    dut = Int8Chain(rows=rows, columns=columns, tokens=8, family=family)
    for sums, tiles, m in ((2, 3, 5), (1, 4, 1)) if stall else ((2, 3, 5), (2, 1, 8)):
        play(bench, dut, *drawn(rng, dut, sums, tiles, m), seed=m, stall=stall, hold=stall and 3 * dut.latency)


@pytest.mark.parametrize(("rows", "family"), [(16, "xcup"), (4, "xc7"), (64, "ecp5")])
def test_extremes_do_not_spill_into_the_other_lane(bench, rows, family):
    """All products of the longest chain at their largest, in one lane and in both."""
    dut = Int8Chain(rows=rows, columns=2 if dut_pairs(family) else 1, tokens=4, family=family)
    ends = [(127, 127), (127, -127), (-128, -127), (-127, 127)]
    w = np.array(ends)[:, None, None, : dut.columns].repeat(rows, axis=2)
    x = np.array([127, -127, -128, 1])[None, None, :, None].repeat(rows, axis=3).repeat(len(ends), axis=0)
    play(bench, dut, x, w, np.zeros((len(ends), 1, 4), int), seed=1)


def test_the_longest_chain_is_full_and_one_row_more_is_refused():
    assert Int8Chain(rows=16, family="xcup").pair.rows == 16 and Int8Chain(rows=4, family="xc7").pair.rows == 4
    for rows, family, most in ((17, "xcup", 16), (6, "xc7", 4)):
        with pytest.raises(
            ValueError, match=rf"rows={rows}: .* at most {most} rows: must be at most {most}, or a mult"
        ):
            Int8Chain(rows=rows, family=family)
    for bad in ({"rows": 3}, {"columns": 3}, {"tokens": 0}):
        with pytest.raises(ValueError, match="=".join(map(str, *bad.items()))):
            Int8Chain(**bad)


def test_exponents_at_both_ends_and_tiles_far_apart_are_counted(bench):
    """Neighbours 2**40 and 2**254 apart, in both directions: what does not fit is lost and not wrapped."""
    rng, dut = np.random.default_rng(3), Int8Chain(rows=4, columns=2, tokens=4)
    x, w, _ = drawn(rng, dut, 1, 6, 4)
    exponents = np.array([127, 87, -127, 111, 110, -128])
    for order in (exponents, exponents[::-1]):
        top, drop = drops(order[None, :, None].repeat(4, axis=2), np.zeros((1, 6), int))
        assert (top == 127).all() and {FRACTION, FRACTION + 1, 40, 254, 255} <= set(drop.reshape(-1).tolist())
        _, lost = int8_chain(x, w, drop)
        assert lost.min() > 0
        play(bench, dut, x, w, drop, seed=4, stall=0.3)


def test_rows_beyond_the_places_are_counted_and_change_nothing(bench, unit=Int8Chain):
    rng, dut = np.random.default_rng(6), unit(rows=4, columns=2, tokens=4)
    x, w, drop = drawn(rng, dut, 1, 2, 6, spread=1)
    x[:] = np.clip(np.abs(x), 1, 127)
    w[:] = 1
    got, _ = bench(dut, beats(x, w, drop), {"o": 6}, seed=1, stall=0.3)
    sums, _ = int8_chain(x, w, drop)
    assert [[row.sum[0], row.sum[1]] for row in got["o"]][:4] == sums[0, :4].tolist()
    assert [(row.sum[0], row.lost) for row in got["o"]][4:] == [(0, 2), (0, 2)]  # nothing of them is kept


def test_tiles_beyond_the_most_of_a_sum_are_counted(bench, monkeypatch):
    monkeypatch.setattr("gradloom.rtl.units.int8_chain.TILES", 3)
    dut = Int8Chain(rows=4, columns=2, tokens=1)
    x, w = np.full((1, 5, 1, 4), 1), np.full((1, 5, 4, 2), 2)
    got, _ = bench(dut, beats(x, w, np.zeros((1, 5, 1), int)), {"o": 1}, seed=1)
    assert (got["o"][0].sum[0], got["o"][0].lost) == (3 * 8 << FRACTION, 2 * 2)
    assert 64 * 127 * 128 * TILES << FRACTION < 1 << 47 and 4 * TILES < 1 << LOST


def test_the_count_of_lost_sums_stays_at_its_end(monkeypatch):
    """Of two columns, with a count of three bits."""
    monkeypatch.setattr("gradloom.rtl.systolic.aligned.LOST", 3)
    dut, found = AlignedSums(columns=2, tokens=1, width=16), []

    async def tiles(ctx):
        for number in range(6):
            ctx.set(dut.tag, {"valid": 1, "start": number == 0, "keep": 1, "place": 0, "drop": 0, "far": 1})
            for column in range(2):
                ctx.set(dut.sums[column], 5)
            await ctx.tick()
            ctx.set(dut.tag, {})
            await ctx.tick().repeat(dut.latency - 1)
            found.append(ctx.get(dut.lost))
            await ctx.tick().repeat(3)

    simulate(dut, tiles)
    assert found == [2, 4, 6, 7, 7, 7]


@pytest.mark.parametrize(("tiles", "m"), [(2, 20), (3, 2)])
def test_cycles_are_those_promised(bench, tiles, m):
    dut = Int8Chain(rows=8, columns=4, tokens=32)
    rng = np.random.default_rng(1)
    times = play(bench, dut, *drawn(rng, dut, 1, tiles, m), seed=1)
    assert times["o"][-1] - times["w"][0] + 1 == dut.cycles(tiles, m)


@pytest.mark.parametrize("name", ["near", "restarted"])
def test_a_broken_foot_fails(bench, monkeypatch, name):
    monkeypatch.setattr("gradloom.rtl.units.int8_chain.AlignedSums", mutant(AlignedSums, name))
    with pytest.raises(AssertionError):
        test_exponents_at_both_ends_and_tiles_far_apart_are_counted(bench)


def test_a_unit_that_keeps_everything_fails(bench):
    with pytest.raises(AssertionError):
        test_rows_beyond_the_places_are_counted_and_change_nothing(bench, mutant(Int8Chain, "everything-kept"))


@pytest.mark.parametrize(
    ("where", "unit", "name"),
    [("systolic.paired", ChainFeet, "unbiased"), ("units.int8_chain", PairedArray, "unclipped")],
)
def test_a_broken_chain_fails(bench, monkeypatch, where, unit, name):
    monkeypatch.setattr(f"gradloom.rtl.{where}.{unit.__name__}", mutant(unit, name))
    with pytest.raises(AssertionError):
        test_extremes_do_not_spill_into_the_other_lane(bench, 4, "xc7")
