"""Beats of a sample's record: which of its scales are written, and where."""

import pytest
from amaranth.sim import Simulator

from gradloom.rtl.config import SCALES_PER_BEAT, Config
from gradloom.rtl.memory.router import RECORD_ARG, Destination, Router
from gradloom.rtl.presets import PRESETS

ROW, HALF = 3, 1


def _scales(config, bases):
    """``(row, address, data)`` of each scale written for a record of beats with these bases, and one of codes."""
    router, written = Router(config), []
    scales = [[100 * beat + n for n in range(SCALES_PER_BEAT)] for beat in range(len(bases))]
    arg = RECORD_ARG.const({"row": ROW, "half": HALF, "codes": len(bases), "logits": len(bases) + 1}).as_value().value
    beats = [base | sum(word << 16 * (n + 1) for n, word in enumerate(words)) for base, words in zip(bases, scales)]

    async def feed(ctx):
        for index, data in enumerate([*beats, 0]):
            ctx.set(router.i.p, {"data": data, "first": index == 0, "last": index == len(beats), "arg": arg,
                                 "dest": Destination.RECORD, "index": index})
            ctx.set(router.i.valid, 1)
            await ctx.tick().until(router.i.ready)
        ctx.set(router.i.valid, 0)

    async def see(ctx):
        for _ in range(40 + 10 * len(bases)):
            if ctx.get(router.scales.valid):
                written.append(tuple(ctx.get(router.scales[each]) for each in ("row", "address", "data")))
            await ctx.tick()

    simulator = Simulator(router)
    simulator.add_clock(1e-6)
    simulator.add_testbench(feed)
    simulator.add_testbench(see)
    simulator.run()
    return written, scales


@pytest.mark.parametrize("config", [Config(), PRESETS["digits-ulx3s"].config], ids=["default", "digits-ulx3s"])
def test_scales_beyond_the_blocks_of_a_row_are_not_written(config):
    last = config.blocks - 1
    # The first block; across the end; at it; far beyond, where the address's bits are those of blocks that there are.
    bases = [0, last - 2, config.blocks, 1 << 15, 0xFFFF]
    written, scales = _scales(config, bases)
    width = (config.blocks - 1).bit_length()
    expected = [(ROW, base + n | HALF << width, scale)
                for base, words in zip(bases, scales) for n, scale in enumerate(words) if base + n < config.blocks]
    assert written == expected
    assert 3 < len(expected) < len(bases) * SCALES_PER_BEAT
