"""The queues are Amaranth's FIFOs, cycle by cycle."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered

from gradloom.rtl.stream.queue import LongQueue, PlainQueue, ShortQueue
from gradloom.sim.bench.engine import simulate


@pytest.mark.parametrize(
    "kind, depth",
    [
        *((ShortQueue, depth) for depth in (2, 3, 4, 8, 16)),
        *((LongQueue, depth) for depth in (4, 5, 16, 64)),
        *((PlainQueue, depth) for depth in (1, 2, 8, 32)),
    ],
)
@pytest.mark.parametrize("chances", [(0.9, 0.3), (0.3, 0.9), (0.7, 0.7), (1, 1)], ids=str)
def test_both_offer_and_take_the_same_in_every_cycle(kind, depth, chances):
    m = Module()
    m.submodules.ours = ours = kind(width=8, depth=depth)
    m.submodules.theirs = theirs = (SyncFIFO if kind is PlainQueue else SyncFIFOBuffered)(width=8, depth=depth)
    random = np.random.default_rng(depth)

    async def process(ctx):
        moved = 0
        for value in range(500):
            writes, reads = (int(random.random() < chance) for chance in chances)
            for queue in (ours, theirs):
                ctx.set(queue.w_data, value % 256)
                ctx.set(queue.w_en, writes)
                ctx.set(queue.r_en, reads)
            assert ctx.get(ours.w_rdy) == ctx.get(theirs.w_rdy)
            assert ctx.get(ours.r_rdy) == ctx.get(theirs.r_rdy)
            if kind is PlainQueue:
                assert ctx.get(ours.level) == ctx.get(theirs.level)
            if ctx.get(ours.r_rdy):
                assert ctx.get(ours.r_data) == ctx.get(theirs.r_data)
                moved += reads
            await ctx.tick()
        assert moved > 100

    simulate(m, process)


@pytest.mark.parametrize("depth", (2, 8, 32))
def test_what_is_written_late_is_there_a_cycle_after_it_is_told(depth):
    m = Module()
    m.submodules.ours = ours = PlainQueue(width=8, depth=depth, late=True)
    m.submodules.theirs = theirs = SyncFIFO(width=8, depth=depth)
    random = np.random.default_rng(depth)

    async def process(ctx):
        moved = before = 0
        for value in range(800):
            # Entries that were there a cycle ago may be taken.
            writes, reads = int(random.random() < 0.8), int(before > 0 and random.random() < 0.8)
            for queue in (ours, theirs):
                ctx.set(queue.w_data, value % 256)
                ctx.set(queue.w_en, writes)
                ctx.set(queue.r_en, reads)
            assert ctx.get(ours.w_rdy) == ctx.get(theirs.w_rdy)
            assert ctx.get(ours.r_rdy) == ctx.get(theirs.r_rdy) and ctx.get(ours.level) == ctx.get(theirs.level)
            if reads:
                assert ctx.get(ours.r_data) == ctx.get(theirs.r_data)
                moved += 1
            before = ctx.get(theirs.level) - reads
            await ctx.tick()
        assert moved > 300

    simulate(m, process)


def test_too_few_entries_are_refused():
    with pytest.raises(ValueError, match="depth=1: must be at least 2"):
        ShortQueue(width=8, depth=1)
    with pytest.raises(ValueError, match="depth=6: must be a power of two"):
        PlainQueue(width=8, depth=6)
    with pytest.raises(ValueError, match="depth=3: must be at least 4"):
        LongQueue(width=8, depth=3)
