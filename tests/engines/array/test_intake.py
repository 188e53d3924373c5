"""Beats of a sample's record: which of its scales are written, and where."""

import pytest

from gradloom.preset import PRESETS
from gradloom.rtl.engines.array.commands import RECORD_ARG
from gradloom.rtl.engines.array.intake import ArrayIntake
from gradloom.rtl.formats.images import SCALES_PER_BEAT
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.sim.bench.engine import simulate
from gradloom.sim.bench.pauses import feed, pauses

ROW, HALF = 3, 1


def _scales(config, bases, **options):
    """``(row, address, data)`` of each scale written for a record of beats with these bases, and one of codes;
    ``options`` of :func:`~gradloom.sim.bench.pauses.pauses`."""
    intake, written = ArrayIntake(config), []
    scales = [[100 * beat + n for n in range(SCALES_PER_BEAT)] for beat in range(len(bases))]
    arg = RECORD_ARG.const({"row": ROW, "half": HALF, "codes": len(bases), "logits": len(bases) + 1}).as_value().value
    beats = [base | sum(word << 16 * (n + 1) for n, word in enumerate(words)) for base, words in zip(bases, scales)]

    async def give(ctx):
        await feed(
            ctx,
            intake.load_record.beats,
            [
                {"data": data, "first": index == 0, "last": index == len(beats), "arg": arg, "index": index}
                for index, data in enumerate([*beats, 0])
            ],
            pauses([], ["i"], **options)["i"],
        )

    async def see(ctx):
        for _ in range(40 + 10 * len(bases) + 4 * options.get("hold", 0)):
            if ctx.get(intake.scales.valid):
                written.append(tuple(ctx.get(intake.scales[each]) for each in ("row", "address", "data")))
            await ctx.tick()

    simulate(intake, give, see)
    return written, scales


@pytest.mark.parametrize("config", [ImageConfig(), PRESETS["digits-ulx3s"].config], ids=["default", "digits-ulx3s"])
def test_scales_beyond_the_blocks_of_a_row_are_not_written(config):
    last = config.blocks - 1
    # The first block; across the end; at it; far beyond, where the address's bits are those of blocks that there are.
    bases = [0, last - 2, config.blocks, 1 << 15, 0xFFFF]
    written, scales = _scales(config, bases)
    width = (config.blocks - 1).bit_length()
    expected = [
        (ROW, base + n | HALF << width, scale)
        for base, words in zip(bases, scales)
        for n, scale in enumerate(words)
        if base + n < config.blocks
    ]
    assert written == expected
    assert 3 < len(expected) < len(bases) * SCALES_PER_BEAT


@pytest.mark.parametrize("options", [{}, {"stall": 0.5, "hold": 200}], ids=str)
def test_beats_of_scales_wait_for_those_before_them(options):
    """A beat of scales takes seven cycles to write, and 16 of them wait: the record behind them waits as well."""
    config = ImageConfig()
    bases = [7 * n for n in range(config.blocks // 7)] * 6
    written, scales = _scales(config, bases, **options)
    assert len(bases) > 3 * 16
    assert written == [
        (ROW, base + n | HALF << (config.blocks - 1).bit_length(), scale)
        for base, words in zip(bases, scales)
        for n, scale in enumerate(words)
    ]
