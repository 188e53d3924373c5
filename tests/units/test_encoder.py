"""The encoder is the reference, word for word; the reference is bitsandbytes but for the scale's step."""

import time

import numpy as np
import pytest

from gradloom.rtl.formats.codebook import CODEBOOKS, NF2, NF3, NF4, pack_nibbles
from gradloom.rtl.formats.fixed import Fixed
from gradloom.rtl.formats.weights.blocks import quantize_blocks
from gradloom.rtl.units.encoder import NF4Encoder
from gradloom.sim.reference.encode import ACTIVATION, encode_fixed, encode_int8

WORD = ACTIVATION


def tensors(book, fmt, sizes, block, seed=2):
    """Tensors of every magnitude: each block has its own, and there are zeros, extremes and ties."""
    rng = np.random.default_rng(seed)
    for n, size in enumerate(sizes):
        bits = rng.integers(1, fmt.width, -(-size // block)).repeat(block)[:size]
        x = rng.integers(fmt.lo, fmt.hi + 1, size) >> (fmt.width - 1 - bits)
        if n == 0:
            x[:block] = 0
        if n == 1:
            x[rng.integers(size)] = fmt.lo
            x[rng.integers(size)] = fmt.hi
        if n == 2:  # the last number not above each threshold at scale 0.5, and the next one
            half = 1 << (fmt.frac - 1)
            ties = book.fixed_thresholds() * half >> 16
            x[:block] = np.resize(np.concatenate([[half], ties, ties + 1]), block)
        yield x


def payloads(x, lanes):
    x = np.pad(x, (0, -len(x) % lanes)).reshape(-1, lanes)
    return [{"x": [int(v) for v in beat], "last": n == len(x) - 1} for n, beat in enumerate(x)]


def read(payload):
    return payload.codes, payload.scale, payload.last


def expected(x, book, block, fmt, **change):
    codes, scales = encode_fixed(x, book, block, fmt=fmt, **change)
    packed = pack_nibbles(codes).reshape(len(scales), -1)
    return [
        (int.from_bytes(p.tobytes(), "little"), int(s), int(n == len(scales) - 1))
        for n, (p, s) in enumerate(zip(packed, scales))
    ]


SLOW = {"o": 0.97}


@pytest.mark.parametrize(
    "lanes, block, book, fmt, stall",
    [
        (1, 64, NF4, WORD, 0.3),
        (4, 64, NF4, WORD, 0),
        (4, 64, NF4, WORD, SLOW),
        (2, 32, NF3, WORD, SLOW),
        (1, 16, NF4, Fixed(width=12, frac=9), 0.3),
        (2, 64, CODEBOOKS["int4"], Fixed(width=18, frac=17), 0),
        (8, 128, NF2, WORD, 0.3),
    ],
    ids=str,
)
def test_encoder_is_the_reference(run_stream, lanes, block, book, fmt, stall):
    xs = list(tensors(book, fmt, [block, 2 * block + 1, block + 40, 5, 4 * block], block))
    want = [beat for x in xs for beat in expected(x, book, block, fmt)]
    unit = NF4Encoder(lanes=lanes, block=block, book=book, fmt=fmt)
    # The blocks under way, and as many more: the unit keeps two.
    got, _ = run_stream(
        unit,
        [beat for x in xs for beat in payloads(x, lanes)],
        len(want),
        read,
        stall=stall,
        hold=3 * unit.latency if stall == 0.3 else 0,
    )
    assert got == want


@pytest.mark.parametrize("lanes, block", [(1, 64), (2, 64), (4, 64), (1, 16)])
def test_full_blocks_flow_at_one_beat_a_cycle(run_stream, lanes, block):
    unit = NF4Encoder(lanes=lanes, block=block)
    x = np.random.default_rng(4).integers(-1000, 1000, 6 * block)
    _, at = run_stream(unit, payloads(x, lanes), 6, read, stall=0)
    assert at == [unit.latency + n * unit.beats for n in range(6)]


def test_a_rewritten_table_is_another_book(run_stream):
    x = np.random.default_rng(6).integers(WORD.lo, WORD.hi, 200)

    async def rewrite(ctx):
        for k, threshold in enumerate(NF3.threshold_table()):
            ctx.set(unit.table.en, 1)
            ctx.set(unit.table.addr, k)
            ctx.set(unit.table.data, int(threshold))
            await ctx.tick()
        ctx.set(unit.table.en, 0)

    unit = NF4Encoder(lanes=1)
    want = expected(x, NF4, 64, WORD, thresholds=NF3.threshold_table())
    assert run_stream(unit, payloads(x, 1), len(want), read, setup=rewrite)[0] == want
    assert want == expected(x, NF3, 64, WORD)


def bitsandbytes_differs(sigma, seed=0):
    """``(share of codes that differ, largest step, allowed)`` of gaussian activations on the Q8.16 grid."""
    x = WORD.encode(np.random.default_rng(seed).normal(0, sigma, (400, 64)))
    codes, scales = encode_fixed(x)
    want, absmax = quantize_blocks(WORD.decode(x))
    want = want.reshape(x.shape)
    # The two quotients differ by what the scale was rounded up, the thresholds by their own rounding,
    # and float32 rounds reciprocal and product.
    unit = WORD.decode(x) / absmax[:, None]
    reach = np.abs(unit) * (1 - absmax / scales[:, 0] * 256)[:, None]
    reach += 2.0**-17 + 2.0**-22
    near = np.abs(unit[..., None] - np.asarray(NF4.thresholds)).min(axis=-1)
    wrong = codes != want
    return wrong.mean(), np.abs(codes.astype(int) - want).max(), bool((near <= reach)[wrong].all())


@pytest.mark.parametrize("sigma, share", [(8.0, 0.0005), (1.0, 0.003), (0.1, 0.03), (0.01, 0.3)])
def test_codes_differ_from_bitsandbytes_only_within_the_scale_step_of_a_threshold(sigma, share):
    """The scale is at most 2**-8 too large, so a code can differ only next to a threshold: ever rarer
    for larger blocks."""
    differ, step, allowed = bitsandbytes_differs(sigma)
    assert allowed
    assert differ <= share
    assert step <= (1 if sigma >= 0.1 else 2)


def test_absmax_on_the_scale_grid_gives_bitsandbytes_codes():
    """Where the scale is exact, so are the codes of all values that lie on no float rounding edge."""
    x = np.random.default_rng(3).integers(-(1 << 18), (1 << 18) + 1, (500, 64))
    x[:, 7] = 1 << 18
    codes, scales = encode_fixed(x)
    want, absmax = quantize_blocks(WORD.decode(x))
    assert (scales.ravel() / 256 == absmax).all()
    near = np.abs(x[..., None] / (1 << 18) - np.asarray(NF4.thresholds)).min(axis=-1) > 2.0**-17 + 2.0**-22
    assert near.mean() > 0.999
    np.testing.assert_array_equal(codes[near], want.reshape(x.shape)[near])


def test_reference_encodes_a_fine_tune_of_activations_within_a_second():
    x = np.random.default_rng(0).integers(-(1 << 20), 1 << 20, (1024, 2948))
    start = time.process_time()
    encode_fixed(x)
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(lanes=5), "lanes=5"),
        (dict(lanes=8), "lanes=8"),
        (dict(block=24), "block=24"),
        (dict(fmt=Fixed(width=24, frac=15)), "width - frac"),
        (dict(fmt=Fixed(width=12, frac=8)), "frac=8"),
    ],
)
def test_bad_parameter_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        NF4Encoder(**change)


def wide_payloads(x):
    return [{"x": [int(v)], "last": n == len(x) - 1, "wide": 1} for n, v in enumerate(x)]


def read_wide(payload):
    return payload.codes, payload.low, payload.scale, payload.last, payload.wide


def expected_wide(x):
    codes, scales = encode_int8(x)
    nibbles = [pack_nibbles(part).reshape(len(scales), -1) for part in (codes >> 4, codes & 15)]
    return [
        (*(int.from_bytes(part[n].tobytes(), "little") for part in nibbles), int(s), int(n == len(scales) - 1), 1)
        for n, s in enumerate(scales)
    ]


@pytest.mark.parametrize("stall", [0.3, SLOW], ids=["stalls", "slow-sink"])
def test_an_encoder_of_both_kinds_is_the_reference_tensor_by_tensor(run_stream, stall):
    xs = list(tensors(NF4, WORD, [64, 129, 104, 5, 256], 64))
    xs += [np.full(64, WORD.lo), np.full(64, WORD.hi), np.arange(-64, 64) * 514]
    sent, want = [], []
    for x in xs:
        for wide in (1, 0, 1):
            sent += [p | {"wide": wide} for p in wide_payloads(x)]
            want += expected_wide(x) if wide else [(codes, s, last) for codes, s, last in expected(x, NF4, 64, WORD)]

    def read_either(payload):
        return read_wide(payload) if payload.wide else read(payload)

    unit = NF4Encoder(wide=True)
    got, _ = run_stream(unit, sent, len(want), read_either, stall=stall, hold=3 * unit.latency if stall == 0.3 else 0)
    assert got == want


def test_eight_bits_are_refused_for_another_number_of_fraction_bits():
    with pytest.raises(ValueError, match="fmt.frac=12: INT8"):
        NF4Encoder(fmt=Fixed(width=20, frac=12), wide=True)
