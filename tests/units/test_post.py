# amaranth: UnusedElaboratable=no
import numpy as np
import pytest
from amaranth.hdl import signed

from gradloom.rtl.formats.fixed import Fixed
from gradloom.rtl.units.post import PostProcess
from gradloom.sim.reference import array


def random_sums(rng, lanes, height, width, bias):
    """Sums that saturate now and then, and many that end in exactly half a unit."""
    sums = rng.integers(-1 << 37, 1 << 37, (lanes, height, width))
    half = rng.random(sums.shape) < 0.3
    sums[half] = (sums[half] >> 12 << 12) + 0x800
    sums[rng.random(sums.shape) < 0.02] = (1 << 47) - 1
    sums[rng.random(sums.shape) < 0.02] = -1 << 47
    # And some that the bias brings to the very edge, rounding included.
    edge = rng.random(sums.shape) < 0.1
    top = (((1 << 23) - 1 - bias[:, None, None]) << 12) + rng.integers(0x7FE, 0x802, sums.shape)
    sums[edge] = top[edge]
    return sums


def play(bench, dut, runs, *, seed, **options):
    rng = np.random.default_rng(seed)
    lanes, configs, beats, outputs, clipped = dut.lanes, [], [], [], 0
    for height, width, pool, relu in runs:
        bias = rng.integers(-1 << 22, 1 << 22, lanes)
        bias[0] = rng.choice([-1 << 31, (1 << 31) - 1])
        sums = random_sums(rng, lanes, height, width, bias)
        value, over = array.post_process(sums, bias, relu=relu, pool=pool)
        counted, final = int(rng.integers(width + 1)), int(rng.integers(lanes))
        clipped += over[: final + 1, :, width - counted :].sum()
        words = value.reshape(lanes, -1).T
        outputs += [[*w, n == len(words) - 1] for n, w in enumerate(words.tolist())]
        configs.append(
            {
                "height": height,
                "width": width,
                "pool": pool,
                "relu": relu,
                "bias": bias.tolist(),
                "counted": counted,
                "final": final,
            }
        )
        beats += sums.reshape(lanes, -1).T.tolist()
    got, times, total = bench(
        dut, {"i_config": configs, "i": beats}, {"o": len(outputs)}, seed=seed, **options, watch=dut.saturated
    )
    bits = [word.as_bits() for word in got["o"]]
    got = [bench.words(w, 24, lanes) + bench.words(w >> 24 * lanes, 1, 1, False) for w in bits]
    np.testing.assert_array_equal(np.array(got), np.array(outputs, int))
    assert total == clipped > 0
    return times


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("stall", [0.0, 0.3])
def test_words_are_those_of_the_reference(bench, seed, stall):
    rng = np.random.default_rng(seed)
    dut = PostProcess(lanes=3, max_width=13, max_height=13)
    # The tightest schedules of the row buffer: one pool a row, two, with and without columns left over.
    runs = [
        (4, 2, 2, False),
        (4, 3, 2, False),
        (4, 4, 2, False),
        (5, 5, 2, True),
        (6, 3, 3, False),
        (7, 6, 3, False),
        (8, 8, 4, False),
        (4, 4, 4, False),
        (1, 13, 1, False),
        (3, 2, 1, True),
        (1, 1, 1, False),
    ]
    for _ in range(12):
        pool = int(rng.integers(1, 5))
        height, width = (int(n) for n in rng.integers(pool, 14, 2))
        runs.append((height, width, pool, bool(rng.integers(2))))
    times = play(bench, dut, runs, seed=seed, stall=stall, hold=stall and 3 * dut.latency)
    if not stall:
        start, last = times["i_config"][0], -1
        for height, width, pool, _ in runs:
            assert start in times["i_config"]
            last += (height // pool) * (width // pool)
            final = (height // pool * pool - 1) * width + width // pool * pool - 1
            assert times["o"][last] == start + 1 + final + dut.latency
            start += dut.cycles(height, width)


def test_sixteen_lanes_take_a_word_a_cycle(bench):
    times = play(bench, PostProcess(), [(14, 14, 2, True), (1, 32, 1, False)], seed=3)
    assert times["i"][:196] == list(range(times["i"][0], times["i"][0] + 196))


def test_bad_parameters_are_refused():
    for field, value in (("lanes", 0), ("max_width", 1), ("max_pool", 0), ("sum_frac", 17)):
        with pytest.raises(ValueError, match=f"{field}={value}"):
            PostProcess(**{field: value})
    with pytest.raises(ValueError, match="bias.frac=12"):
        PostProcess(bias=Fixed(width=16, frac=12))
    with pytest.raises(ValueError, match="sum_shape"):
        PostProcess(sum_shape=48)
    assert PostProcess(sum_shape=signed(40)).sum_shape.width == 40
