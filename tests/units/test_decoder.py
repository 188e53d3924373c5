"""Decoders are the reference, word for word."""

import numpy as np
import pytest

from gradloom.rtl.formats.codebook import NF3, NF4, pack_nibbles
from gradloom.rtl.formats.fixed import Fixed
from gradloom.rtl.units.decoder import NF4Decoder, RowDecoder
from gradloom.sim.bench.engine import simulate
from gradloom.sim.reference.encode import decode_codes

EXTREME_SCALES = [0, 1, 2, 3, 0x7FFF, 0x8000, 0x8001, 0xFFFF]


def beats(lanes, count, seed=3):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 16, (count, lanes))
    scales = rng.integers(0, 1 << 16, count) >> rng.integers(0, 16, count)
    scales[: len(EXTREME_SCALES)] = EXTREME_SCALES
    codes[:16, 0] = np.arange(16)
    return codes, scales


def payloads(codes, scales):
    return [
        {"codes": [int(v) for v in c], "scale": int(s), "last": n % 3 == 0}
        for n, (c, s) in enumerate(zip(codes, scales))
    ]


def read(payload):
    return [v for v in payload.x], payload.last


@pytest.mark.parametrize(
    "lanes, book, fmt, stall",
    [
        (1, NF4, Fixed(width=18, frac=10), 0),
        (1, NF4, Fixed(width=18, frac=10), 0.4),
        (4, NF3, Fixed(width=18, frac=10), 0.4),
        (3, NF4, Fixed(width=12, frac=5), 0),
        (2, NF4, Fixed(width=25, frac=15), 0.4),
    ],
)
def test_stream_decoder_is_the_reference(run_stream, lanes, book, fmt, stall):
    codes, scales = beats(lanes, 120)
    unit = NF4Decoder(lanes=lanes, book=book, fmt=fmt)
    got, at = run_stream(
        unit, payloads(codes, scales), len(codes), read, stall=stall, hold=4 * unit.latency if stall else 0
    )
    want = decode_codes(codes, scales[:, None], book.level_table(), fmt=fmt)
    np.testing.assert_array_equal([x for x, _ in got], want)
    assert [last for _, last in got] == [n % 3 == 0 for n in range(len(codes))]
    if not stall:
        assert at == list(range(unit.latency, unit.latency + len(codes)))


def test_stream_decoder_follows_a_rewritten_table(run_stream):
    levels = np.random.default_rng(5).integers(-256, 256, 16)
    codes, scales = beats(4, 60)
    unit = NF4Decoder(lanes=4)

    async def rewrite(ctx):
        for k, level in enumerate(levels):
            ctx.set(unit.table.en, 1)
            ctx.set(unit.table.addr, k)
            ctx.set(unit.table.data, int(level))
            await ctx.tick()
        ctx.set(unit.table.en, 0)

    got, _ = run_stream(unit, payloads(codes, scales), len(codes), read, setup=rewrite)
    np.testing.assert_array_equal([x for x, _ in got], decode_codes(codes, scales[:, None], levels))


def row_run(unit, ops):
    """``(valid, x)`` of every cycle in which ``ops[cycle] = (mul, scale, out)`` are given."""
    seen = []

    async def bench(ctx):
        for mul, scale, out in ops:
            ctx.set(unit.mul, mul)
            ctx.set(unit.scale, scale)
            ctx.set(unit.out, out)
            await ctx.tick()
            seen.append((ctx.get(unit.valid), [ctx.get(unit.x[n]) for n in range(unit.lanes)]))

    simulate(unit, bench)
    return seen


@pytest.mark.parametrize("lanes, fmt", [(4, Fixed(width=18, frac=10)), (2, Fixed(width=14, frac=8))])
def test_row_decoder_is_the_reference_one_op_a_cycle(lanes, fmt):
    """Random ops in every cycle; a model of the table applies each product ``mul_latency`` later."""
    rng = np.random.default_rng(11)
    unit = RowDecoder(lanes=lanes, fmt=fmt)
    table = np.zeros((2, 16), np.int64)
    ops, want, flight, kept = [], [], {}, 0
    for cycle in range(500):
        if cycle in flight:
            half, k, word = flight.pop(cycle)
            table[half, k] = word
        level, k, half = int(rng.integers(-256, 256)), int(rng.integers(16)), int(rng.integers(2))
        scale = EXTREME_SCALES[cycle % 8] if cycle < 64 else int(rng.integers(1 << 16) >> rng.integers(16))
        fresh = int(cycle < 64 or rng.random() < 0.5)
        kept = scale if fresh else kept
        mul = {"valid": int(cycle < 64 or rng.random() < 0.7), "fresh": fresh, "level": level, "k": k, "half": half}
        if mul["valid"]:
            flight[cycle + unit.mul_latency] = half, k, int(decode_codes(0, kept, [level], fmt=fmt))
        codes, valid, half = rng.integers(0, 16, lanes), int(rng.random() < 0.8), int(rng.integers(2))
        out = {"valid": valid, "half": half, "codes": int.from_bytes(pack_nibbles(codes).tobytes(), "little")}
        ops.append((mul, scale, out))
        want.append((valid, table[half, codes].tolist() if valid else [0] * lanes))
    assert row_run(unit, ops) == want


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: NF4Decoder(lanes=0), "lanes=0"),
        (lambda: RowDecoder(lanes=3), "lanes=3"),
        (lambda: RowDecoder(fmt=Fixed(width=18, frac=16)), "frac=16"),
    ],
)
def test_bad_parameter_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
