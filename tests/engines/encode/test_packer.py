"""Beats of a record: the codes of a tap, then its scales, however long the output is held."""

import numpy as np
import pytest

from gradloom.rtl.engines.encode.packer import TapPacker
from gradloom.rtl.formats.images import SCALES_PER_BEAT
from gradloom.sim.bench.engine import BenchLoad, BenchStore, EngineBench, pressures


@pytest.mark.parametrize("pressure", pressures(60), ids=str)
def test_codes_then_scales_of_every_tap(pressure):
    rng = np.random.default_rng(len(pressure))
    taps = [
        (int(rng.integers(1 << 14)), wide, blocks)
        for wide, blocks in ((0, 1), (1, 22), (0, 22), (0, 7), (1, 8), (0, 15), (1, 1), (0, 14))
    ]
    bases, blocks, expected = [], [], []
    for base, wide, count in taps:
        codes = [int.from_bytes(rng.bytes(64), "little") for _ in range(count)]
        scales = [int(each) for each in rng.integers(1 << 16, size=count)]
        bases.append(base)
        low, high = (1 << 256) - 1, 256
        blocks += [
            {"codes": code & low, "low": code >> high, "scale": scale, "wide": wide, "last": n == count - 1}
            for n, (code, scale) in enumerate(zip(codes, scales))
        ]
        expected += [code >> 128 * n & (1 << 128) - 1 for code in codes for n in range(4 if wide else 2)]
        expected += [
            base + at | sum(scale << 16 * n for n, scale in enumerate(scales[at : at + SCALES_PER_BEAT], 1))
            for at in range(0, count, SCALES_PER_BEAT)
        ]
    EngineBench(component=TapPacker(blocks=22)).check(
        BenchLoad("base", bases),
        BenchLoad("i", blocks),
        BenchStore("o", len(expected)),
        words={"o": expected},
        **pressure,
    )
