# amaranth: UnusedElaboratable=no
from dataclasses import asdict

import numpy as np
import pytest
from amaranth.hdl import signed

from gradloom.rtl.units.window.window import WindowGenerator, WindowRun
from gradloom.sim.reference import array

SAME = dict(kernel_h=5, kernel_w=5, pad_top=2, pad_left=2, pad_bottom=2, pad_right=2)
LENET = [WindowRun(height=28, width=28, **SAME), WindowRun(height=14, width=14, channels=6, **SAME)]


def random_run(rng, *, kernel, size, channels):
    while True:
        kh, kw = rng.integers(1, kernel + 1, 2)
        pads = [rng.integers(0, k) for k in (kh, kw, kh, kw)]
        try:
            run = WindowRun(
                height=int(rng.integers(1, size + 1)),
                width=int(rng.integers(1, size + 1)),
                channels=int(rng.integers(1, channels + 1)),
                kernel_h=int(kh),
                kernel_w=int(kw),
                stride_h=int(rng.integers(1, kernel + 1)),
                stride_w=int(rng.integers(1, kernel + 1)),
                **dict(zip(("pad_top", "pad_left", "pad_bottom", "pad_right"), map(int, pads), strict=True)),
            )
        except ValueError:
            continue
        if run.rows <= size and run.cols <= size:
            return run


def expected(run, x, max_kernel):
    p = array.windows(
        x,
        kernel=(run.kernel_h, run.kernel_w),
        stride=(run.stride_h, run.stride_w),
        pads=(run.pad_top, run.pad_left, run.pad_bottom, run.pad_right),
        max_kernel=max_kernel,
    )
    assert p.shape[1:3] == (run.out_height, run.out_width)
    p = p.reshape(run.channels, -1, max_kernel**2)
    tags = np.zeros(p.shape[:2] + (5,), int)
    tags[:, 0, 0] = tags[:, -1, 1] = 1
    tags[0, :, 2] = tags[-1, :, 3] = 1
    tags[-1, -1, 4] = 1
    return np.concatenate([p, tags], axis=2).reshape(run.windows, -1)


def play(bench, dut, runs, **kwargs):
    rng = np.random.default_rng(kwargs.pop("data", 1))
    bits, k = dut.shape.width, dut.max_kernel
    x = [rng.integers(-1 << bits - 1, 1 << bits - 1, (r.channels, r.height, r.width)) for r in runs]
    got, times = bench(
        dut,
        {"i_config": [asdict(r) for r in runs], "i": [int(v) for part in x for v in part.ravel()]},
        {"o": sum(r.windows for r in runs)},
        **kwargs,
    )
    words = [word.as_bits() for word in got["o"]]
    got = [bench.words(w, bits, k * k) + bench.words(w >> bits * k * k, 1, 5, False) for w in words]
    np.testing.assert_array_equal(
        np.array(got), np.concatenate([expected(r, part, k) for r, part in zip(runs, x, strict=True)])
    )
    return times


def check_cycles(dut, runs, times):
    start, windows = times["i_config"][0] + dut.setup, 0
    for run in runs:
        windows += run.windows
        assert times["o"][windows - 1] <= start + dut.steps(run) - 1 + dut.latency
        assert times["o"][windows - run.windows] == start + dut.fill(run) + dut.latency
        start += dut.cycles(run)


@pytest.mark.parametrize("kernel, size, seed", [(5, 9, 1), (5, 6, 2), (3, 10, 3), (2, 4, 4), (5, 7, 5)])
@pytest.mark.parametrize("stall", [0.0, 0.3])
def test_windows_are_those_of_the_reference(bench, kernel, size, seed, stall):
    rng = np.random.default_rng(seed)
    dut = WindowGenerator(shape=signed(12), max_kernel=kernel, max_width=size, max_height=size, max_channels=4)
    runs = [random_run(rng, kernel=kernel, size=size, channels=4) for _ in range(12)]
    for run in runs:
        dut.check(run)
    times = play(bench, dut, runs, stall=stall, hold=stall and 3 * dut.latency, seed=seed)
    if not stall:
        check_cycles(dut, runs, times)


def test_shortest_runs_take_as_long_as_their_preparation(bench):
    tiny = WindowRun(height=1, width=1, kernel_h=2, kernel_w=3, pad_top=1, pad_left=2)
    dut = WindowGenerator(shape=signed(8), max_kernel=3, max_width=4, max_height=4)
    runs = [tiny, tiny, WindowRun(height=2, width=2, kernel_h=1, kernel_w=1), tiny]
    assert dut.steps(tiny) == 1
    check_cycles(dut, runs, play(bench, dut, runs))


def test_a_stalled_run_keeps_its_kernel(bench):
    """The next run waits while the last column of this one is held up in the pipeline."""
    dut = WindowGenerator(shape=signed(8), max_kernel=3, max_width=6, max_height=4)
    runs = [WindowRun(height=3, width=6, kernel_h=h, kernel_w=3) for h in (3, 1, 2) * 4]
    play(bench, dut, runs, stall=0.7)


def test_lenet_takes_one_cycle_a_pixel(bench):
    dut = WindowGenerator()
    times = play(bench, dut, LENET)
    check_cycles(dut, LENET, times)
    first, second = times["o"][:784], times["o"][784:]
    assert first == list(range(first[0], first[0] + 784))
    assert second == list(range(second[0], second[0] + 6 * 196))
    assert [dut.steps(r) for r in LENET] == [784 + 58, 6 * 196 + 30]


def test_bad_runs_are_refused():
    good = asdict(LENET[0])
    for field, value in (("height", 0), ("pad_left", 5), ("kernel_w", 33), ("stride_h", 0)):
        with pytest.raises(ValueError, match=f"{field}={value}"):
            WindowRun(**good | {field: value})
    for field, value in (("height", 33), ("stride_h", 6), ("channels", 513)):
        with pytest.raises(ValueError, match=f"{field}={value}"):
            WindowGenerator().check(WindowRun(**good | {field: value}))
    with pytest.raises(ValueError, match="max_kernel=1"):
        WindowGenerator(max_kernel=1)
