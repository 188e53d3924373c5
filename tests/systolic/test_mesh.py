# amaranth: UnusedElaboratable=no
import time

import numpy as np
import pytest

from gradloom.rtl.emit.verilog import convert
from gradloom.rtl.systolic.mesh import Mesh
from gradloom.rtl.systolic.pe import Precision
from gradloom.sim.reference.units.systolic import mesh_utilisation, weight_stationary


def play(bench, dut, lengths, *, seed, **options):
    """Tiles of ``lengths`` activation rows, among them the largest values; returns the transfers' cycles."""
    rng = np.random.default_rng(seed)
    top_x, top_w = 1 << (dut.precision.x - 1), 1 << (dut.precision.w - 1)
    rows, weights, results = [], [], []
    for m in lengths:
        x = rng.integers(-top_x, top_x, (m, dut.rows))
        w = rng.integers(-top_w, top_w, (dut.rows, dut.columns))
        x[rng.random(x.shape) < 0.2] = -top_x
        w[rng.random(w.shape) < 0.2] = -top_w
        (sums,) = weight_stationary(x[None], w[None])
        rows += [{"x": row.tolist(), "first": n == 0} for n, row in enumerate(x)]
        weights += [{"w": row.tolist()} for row in w]
        results += [(row.tolist(), int(n == 0)) for n, row in enumerate(sums)]
    got, times = bench(dut, {"i": rows, "w": weights}, {"o": len(results)}, seed=seed, **options)
    found = [([row.sum[c] for c in range(dut.columns)], row.first) for row in got["o"]]
    assert found == results
    return times


@pytest.mark.parametrize(
    ("rows", "columns", "stall"), [(1, 1, 0.2), (1, 3, 0.6), (4, 1, 0.0), (3, 5, 0.6), (5, 3, 0.0), (5, 3, 0.2)]
)
def test_sums_are_those_of_the_reference(bench, rows, columns, stall):
    lengths = [rows, 1, 2 * rows, rows, rows + 1, 1, 1, 17, rows]
    dut = Mesh(rows=rows, columns=columns)
    play(bench, dut, lengths, seed=rows, stall=stall, hold=stall and 3 * dut.latency)


def test_narrow_words_are_exact(bench):
    play(bench, Mesh(rows=4, columns=3, precision=Precision(x=8, w=4, sum=16)), [4, 5, 2], seed=3, stall=0.3)


@pytest.mark.parametrize(("rows", "columns", "tiles", "m"), [(4, 3, 6, 4), (4, 3, 3, 9), (5, 2, 4, 2), (2, 6, 1, 1)])
def test_cycles_are_those_promised(bench, rows, columns, tiles, m):
    dut = Mesh(rows=rows, columns=columns)
    times = play(bench, dut, [m] * tiles, seed=1)
    assert times["o"][-1] - times["w"][0] + 1 == dut.cycles(tiles, m)
    assert [o - i for i, o in zip(times["i"], times["o"])] == [dut.latency] * (tiles * m)


@pytest.mark.parametrize("size", [16, 32])
def test_a_run_of_64_tiles_keeps_95_percent_busy(size):
    dut = Mesh(rows=size, columns=size)
    cycles = dut.cycles(64, size)
    busy = mesh_utilisation(cycles=cycles, tiles=64, m=size)
    assert dut.utilisation(64, size) == (busy, mesh_utilisation(cycles=cycles - size, tiles=64, m=size))
    assert busy >= 0.95


def test_tiles_follow_each_other_without_a_bubble(bench):
    times = play(bench, Mesh(rows=16, columns=16), [16] * 4, seed=2)
    assert times["i"] == list(range(16, 80))
    assert times["o"] == list(range(times["o"][0], times["o"][0] + 64))


def test_a_mesh_of_1024_is_generated_at_once_and_short():
    before = time.process_time()
    files = convert(Mesh(rows=32, columns=32), name="mesh").files
    assert sum(map(len, files.values())) <= 60_000
    assert time.process_time() - before < 4  # of a machine that others use too


def test_bad_parameters_are_refused():
    for field in ("rows", "columns"):
        with pytest.raises(ValueError, match=f"{field}=0"):
            Mesh(**{"rows": 1, "columns": 1, field: 0})
    with pytest.raises(ValueError, match="rows=9"):
        Mesh(rows=9, columns=1, precision=Precision(x=8, w=8, sum=18))
