# amaranth: UnusedElaboratable=no
import numpy as np
import pytest
from amaranth.hdl import signed

from gradloom.rtl.nn.serializer import Serializer


@pytest.mark.parametrize("lanes", [1, 3, 16])
@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_elements_leave_in_order_without_bubbles(bench, lanes, stall):
    rng = np.random.default_rng(lanes)
    dut = Serializer(lanes=lanes, shape=signed(24))
    beats, want = [], []
    for _ in range(60):
        p = rng.integers(-1 << 23, 1 << 23, lanes).tolist()
        count, last = int(rng.integers(1, lanes + 1)), int(rng.integers(2))
        beats.append({"p": p, "count": count, "last": last})
        want += [[v, last and n == count - 1] for n, v in enumerate(p[:count])]
    got, times = bench(dut, {"i": beats}, len(want), stall=stall, seed=lanes)
    assert [bench.words(w, 24, 1) + bench.words(w >> 24, 1, 1, False) for w in got] == want
    if not stall:
        start = times["o"][0]
        assert start == dut.latency
        assert times["o"] == list(range(start, start + len(want)))


def test_no_lanes_are_refused():
    with pytest.raises(ValueError, match="lanes=0"):
        Serializer(lanes=0)
