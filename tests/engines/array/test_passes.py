"""Control of adapter passes: what is filled, read, loaded and drained, and in which cycle it may be."""

# amaranth: UnusedElaboratable=no
import itertools

import numpy as np
import pytest

from gradloom.rtl.engines.array.control.passes import BEATS, LEVELS, PassControl
from gradloom.sim.bench.engine import simulate

from .small import CONFIG

FIELDS = {
    "feed": ("fill", "fill_table", "level", "book", "scale", "read", "table", "word", "group"),
    "beat": ("valid", "lane", "first", "last", "backward"),
    "drain": ("valid", "tap", "samples"),
    "weight": ("valid", "tap", "row", "live"),
}


def run(passes, *, gap=0.0, seed=0):
    """Every cycle's outputs, by port and field, until ``idle``; and the cycles in which passes were taken."""
    rng = np.random.default_rng(seed)
    dut = PassControl(CONFIG)
    cycles, taken = [], []

    async def script(ctx):
        pending, shown = list(passes), False
        for cycle in range(20_000):
            if pending and not shown and rng.random() >= gap:
                ctx.set(dut.i.p, pending[0])
                ctx.set(dut.i.valid, 1)
                shown = True
            cycles.append(
                {
                    port: {field: ctx.get(getattr(getattr(dut, port), field)) for field in fields}
                    for port, fields in FIELDS.items()
                }
            )
            moved = shown and ctx.get(dut.i.ready)
            if not pending and ctx.get(dut.idle):
                return
            await ctx.tick()
            if moved:
                taken.append(cycle)
                pending.pop(0)
                shown = False
                ctx.set(dut.i.valid, 0)
        raise AssertionError(f"{len(pending)} passes are left")

    simulate(dut, script)
    return cycles, taken


def events(cycles, port, flag="valid"):
    return [(n, each[port]) for n, each in enumerate(cycles) if each[port][flag]]


def random_passes(rng, count):
    out = []
    for _ in range(count):
        blocks = int(rng.integers(1, CONFIG.blocks + 1)) if rng.random() < 0.3 else int(rng.integers(1, 3))
        at = int(rng.integers(0, CONFIG.blocks - blocks + 1))
        out.append(
            {
                "blocks": blocks,
                "tail": int(rng.integers(0, BEATS(CONFIG.panels))),
                "bank": 2 * at,
                "scale": at,
                "lane": int(rng.integers(0, 100)),
                "tap": int(rng.integers(0, CONFIG.taps)),
                "book": int(rng.integers(0, 4)),
                "samples": int(rng.integers(1, CONFIG.rows + 1)),
                "backward": int(rng.random() < 0.5),
            }
        )
    return out


def check(passes, cycles):
    beats, per_block, rows = events(cycles, "beat"), BEATS(CONFIG.panels), CONFIG.rows

    # Each block's table is filled level by level, in the order of blocks, tables in turn.
    blocks = [(each, n) for each in passes for n in range(each["blocks"])]
    fills = events(cycles, "feed", "fill")
    assert [(f["level"], f["book"], f["scale"], f["fill_table"]) for _, f in fills] == [
        (level, each["book"], each["scale"] + n, index % 2)
        for index, (each, n) in enumerate(blocks)
        for level in range(LEVELS)
    ]
    assert all(fills[n + LEVELS - 1][0] - fills[n][0] == LEVELS - 1 for n in range(0, len(fills), LEVELS))

    # Codes are read in the order of blocks, from the table that was filled for them, before it is filled again.
    reads = events(cycles, "feed", "read")
    lengths = [each["tail"] + 1 if n == each["blocks"] - 1 else per_block for each, n in blocks]
    assert [(r["table"], r["word"], r["group"]) for _, r in reads] == [
        (index % 2, each["bank"] + 2 * n + (beat >= per_block // 2), beat)
        for index, ((each, n), length) in enumerate(zip(blocks, lengths))
        for beat in range(length)
    ]
    at = 0
    for index, length in enumerate(lengths):
        begin, end = reads[at][0], reads[at + length - 1][0]
        assert end - begin == length - 1, "a block is read without a gap"
        assert begin > fills[LEVELS * (index + 1) - 1][0]
        if index + 2 < len(lengths):
            assert fills[LEVELS * (index + 2)][0] > end
        at += length

    # A beat is a read; its address in the lanes counts from the pass's.
    assert [n for n, _ in beats] == [n for n, _ in reads]
    counts = [sum(lengths[n] for n, (each, _) in enumerate(blocks) if each is one) for one in passes]
    assert [(b["lane"], b["first"], b["last"], b["backward"]) for _, b in beats] == [
        (each["lane"] + n, n == 0, n == count - 1, each["backward"])
        for each, count in zip(passes, counts)
        for n in range(count)
    ]

    # Sums drain ``rows`` cycles after a forward pass's last beat, and no beat comes before they do.
    ends = list(itertools.accumulate(counts))
    drains = events(cycles, "drain")
    assert [(n, d["tap"], d["samples"]) for n, d in drains] == [
        (beats[end - 1][0] + rows, each["tap"], each["samples"])
        for each, end in zip(passes, ends)
        if not each["backward"]
    ]
    for n, _ in drains:
        assert not [b for b, _ in beats if n - rows < b <= n]

    # dh is loaded before a gradient pass begins, and after the one before has begun.
    weights, backward = events(cycles, "weight"), [n for n, each in enumerate(passes) if each["backward"]]
    assert [(w["tap"], w["row"], w["live"]) for _, w in weights] == [
        (passes[n]["tap"], row, row < passes[n]["samples"]) for n in backward for row in range(rows)
    ]
    for index, n in enumerate(backward):
        assert weights[rows * index + rows - 1][0] < beats[ends[n] - counts[n]][0]
        if index:
            before = backward[index - 1]
            assert weights[rows * index][0] > beats[ends[before] - counts[before]][0]


@pytest.mark.parametrize("gap", [0.0, 0.97])
@pytest.mark.parametrize("seed", range(3))
def test_passes_in_any_order_keep_their_laws(seed, gap):
    passes = random_passes(np.random.default_rng(seed), 14)
    cycles, taken = run(passes, gap=gap, seed=seed)
    assert len(taken) == len(passes)
    check(passes, cycles)


def test_full_gradient_passes_follow_each_other_without_a_bubble():
    one = {
        "blocks": 4,
        "tail": BEATS(CONFIG.panels) - 1,
        "bank": 0,
        "scale": 0,
        "lane": 0,
        "tap": 0,
        "book": 0,
        "samples": 5,
        "backward": 1,
    }
    passes = [one | {"tap": n} for n in range(3)]
    cycles, _ = run(passes)
    check(passes, cycles)
    beats = [n for n, _ in events(cycles, "beat")]
    assert beats == list(range(beats[0], beats[0] + 3 * 4 * BEATS(CONFIG.panels)))
