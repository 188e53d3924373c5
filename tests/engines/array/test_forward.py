# amaranth: UnusedElaboratable=no
import numpy as np
import pytest

from gradloom.rtl.units.lora_forward import LoraForward
from gradloom.sim.reference.array import hidden


def play(bench, dut, lengths, **options):
    rng = np.random.default_rng(4)
    beats, expected = [], []
    for n, scale in lengths:
        x = rng.integers(-1 << 17, 1 << 17, (1, n)) >> scale
        a = rng.integers(-1 << 15, 1 << 15, (dut.rank, n)) >> scale
        h, _ = hidden(x, a)
        expected += h.tolist()
        x, a = (np.pad(v, ((0, 0), (0, -n % dut.lanes))).reshape(len(v), -1, dut.lanes) for v in (x, a))
        count = x.shape[1]
        beats += [
            {"x": x[0, k].tolist(), "a": a[:, k].T.tolist(), "first": k == 0, "last": k == count - 1}
            for k in range(count)
        ]
    got, times = bench(dut, {"i": beats}, {"o": len(expected)}, **options)
    assert [[word.h[k] for k in range(dut.rank)] for word in got["o"]] == expected
    assert [word.saturated for word in got["o"]] == [
        sum((abs(2 * v + 1) == (1 << 24) - 1) << k for k, v in enumerate(row)) for row in expected
    ]
    return times


@pytest.mark.parametrize(("lanes", "rank"), [(1, 1), (4, 2), (3, 3)])
@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_h_is_that_of_the_reference(bench, lanes, rank, stall):
    # Vectors of one beat come first: an output that is held must find more results than its queue has room for.
    lengths = [*[(lanes, 5)] * 40, (9, 6), (1, 0), (1, 4), (20, 0), (2 * lanes, 5), (50, 7)]
    dut = LoraForward(lanes=lanes, rank=rank)
    times = play(bench, dut, lengths, stall=stall, hold=stall and 4 * dut.latency)
    if not stall:
        assert times["i"] == list(range(len(times["i"])))
        assert times["o"][-1] - times["i"][-1] == LoraForward(lanes=lanes, rank=rank).latency


def test_bad_parameters_are_refused():
    for field in ("lanes", "rank"):
        with pytest.raises(ValueError, match=f"{field}=17"):
            LoraForward(**{field: 17})
