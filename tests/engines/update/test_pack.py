"""PACK and UNPACK: RTL equals the reference; the reference is as near to floating point as its formats say."""

import numpy as np
import pytest

from gradloom.rtl.engines.update.commands import UpdateOpcode
from gradloom.rtl.formats.adamw import LARGEST
from gradloom.rtl.formats.weights.packed import GAPS, PackedShape
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.shell.registers.errors import Error
from gradloom.sim.bench.engine import BenchCommand, BenchLoad, BenchStore
from gradloom.sim.reference.units.packed import noise, pack, unpack

from .test_engine import bench

SMALL = LanguageConfig(edge=16, columns=4, outputs=2, rank=4, packing=1)
MIDDLE, LARGE = LanguageConfig(edge=32, packing=1), LanguageConfig(packing=1)


def words(rng, blocks, edge):
    """Blocks of every size, of zeros, with both ends."""
    made = rng.integers(-1 << 31, 1 << 31, (blocks, edge)) >> rng.integers(0, 31, (blocks, 1))
    made >>= rng.integers(0, 6, made.shape)
    made = np.where(rng.random(made.shape) < 0.05, rng.choice([-1 << 31, (1 << 31) - 1, 0, -1, 1], made.shape), made)
    return np.where(rng.random((blocks, 1)) < 0.15, 0, made)


def moments(rng, blocks, edge):
    """float32's bits: blocks of m and v by turns, of every exponent or, mostly, of common ones."""
    common = rng.random((blocks, 1)) < 0.6
    exponent = np.where(common, rng.integers(110, 135, (blocks, edge)), rng.integers(0, 255, (blocks, edge)))
    made = rng.integers(0, 1 << 23, exponent.shape) | exponent << 23
    made = np.where(rng.random(made.shape) < 0.05, rng.choice([0, 1, LARGEST, 1 << 23], made.shape), made)
    made[::2] |= rng.integers(0, 2, made[::2].shape) << 31
    return np.where(rng.random((blocks, 1)) < 0.15, 0, made)


def memory(blocks, config, of_moments):
    """Beats of blocks as they lie in memory before PACK."""
    few = config.beat_words
    if of_moments:
        halves = blocks.reshape(len(blocks) // 2, 2, -1, few // 2)
        blocks = halves.swapaxes(1, 2)
    rows = blocks.reshape(-1, few) & 0xFFFFFFFF
    return [sum(int(word) << 32 * n for n, word in enumerate(row)) for row in rows]


def beats(data, config):
    size = config.data_bits // 8
    return [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]


class Group:
    """A command, its two streams, and the beats that must come of it."""

    def __init__(self, rng, config, blocks, *, wide, of_moments, back, garbage=False):
        self.opcode = UpdateOpcode.UNPACK if back else UpdateOpcode.PACK
        seed = int(rng.integers(1, 1 << 32))
        self.operands = {"blocks": blocks, "wide": wide, "moments": of_moments, "seed": seed}
        kind = {"wide": wide, "moments": of_moments}
        values = (moments if of_moments else words)(rng, blocks, config.edge)
        plain, data = memory(values, config, of_moments), pack(values, **kind, seeds=[seed])
        self.saturated = 0
        if not back:
            self.first = self.second = plain
            self.wanted = beats(data, config)
            return
        if garbage:
            data = rng.bytes(len(data))
        made = unpack(data, blocks=blocks, edge=config.edge, **kind)
        self.saturated = made.saturated
        self.wanted = memory(made.words, config, of_moments)
        shape = PackedShape(blocks=blocks, wide=wide, edge=config.edge)
        codes, record = beats(data, config)[: -shape.record], beats(data, config)[-shape.record :]
        self.first, self.second = record + codes, record + codes[1:] + record[:1]


def check(config, groups, **options):
    """One LOAD brings both streams of a command."""
    steps = []
    for group in groups:
        steps += [
            BenchCommand(group.opcode, group.operands),
            BenchLoad("directions", group.first),
            BenchLoad("words", group.second),
            BenchStore("words", len(group.wanted)),
        ]
    run = bench(config).check(*steps, words={"words": [beat for group in groups for beat in group.wanted]}, **options)
    assert run.total("saturated") == sum(group.saturated for group in groups)


@pytest.mark.parametrize(
    "config, stalls",
    [(SMALL, 0.0), (SMALL, 0.5), (MIDDLE, 0.2), (LARGE, 0.3)],
    ids=["edge 16", "edge 16, stalls", "edge 32, stalls", "edge 64, stalls"],
)
def test_any_blocks_in_rtl_equal_the_reference(config, stalls):
    """Either way, either width, words and moments, whole groups and parts of one, codes and scales that nobody made."""
    rng = np.random.default_rng(config.edge + int(10 * stalls))
    groups = [
        Group(
            rng,
            config,
            int(rng.choice([2, 4] if config is SMALL else [2])),
            wide=wide,
            of_moments=of_moments,
            back=back,
            garbage=garbage,
        )
        for back, garbage in ((False, False), (True, False), (True, True))
        for wide in (False, True)
        for of_moments in (False, True)
    ]
    order = rng.permutation(len(groups))
    if config is SMALL and not stalls:
        groups.append(Group(rng, config, 16, wide=False, of_moments=True, back=False))
    check(
        config,
        [*(groups[n] for n in order), *groups[len(order) :]],
        stall=stalls,
        hold=120 if stalls and config is SMALL else 0,
        seed=config.edge,
    )


@pytest.mark.parametrize(
    "opcode, operands",
    [
        (UpdateOpcode.PACK, {"blocks": 0, "seed": 1}),
        (UpdateOpcode.PACK, {"blocks": 3, "seed": 1}),
        (UpdateOpcode.PACK, {"blocks": 18, "seed": 1}),
        (UpdateOpcode.PACK, {"blocks": 2, "seed": 0}),
        (UpdateOpcode.UNPACK, {"blocks": 1}),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "config", [SMALL, LanguageConfig(edge=16, columns=4, outputs=2, rank=4)], ids=["packing", "not packing"]
)
def test_what_cannot_be_done_is_refused(config, opcode, operands):
    wanted = Error.BAD_OPERAND if config.packing else Error.UNKNOWN_OPCODE
    bench(config).check(BenchCommand(opcode, operands), errors=[wanted])


def test_chance_is_marsaglias_xorshift():
    word, made = 2463534242, []
    for _ in range(40):
        made.append(word)
        word ^= word << 13 & 0xFFFFFFFF
        word ^= word >> 17
        word ^= word << 5 & 0xFFFFFFFF
    assert noise(np.array([2463534242]), 40)[0].tolist() == made
    assert made[1] == 723471715  # of his own paper


def floats(words):
    return np.asarray(words).astype(np.uint32).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("wide", [False, True], ids=["nf4", "int8"])
def test_words_come_back_within_a_step_of_their_format_and_on_average(wide):
    """A block's scale is up to a sixteenth above its largest element; a code is less than one level off, as it is
    rounded by chance. All chances together are no error, the largest element's neither."""
    rng = np.random.default_rng(3)
    groups, edge = 40, 64
    values = np.rint(rng.normal(0, 1, (16 * groups, edge)) * 2.0 ** rng.integers(18, 27, (16 * groups, 1)))
    values = values.astype(np.int64)
    largest = np.abs(values).max(axis=1, keepdims=True)
    step = 2**-7 if wide else max(GAPS) / 2**16
    total, times = np.zeros(values.shape), 12
    for _ in range(times):
        data = pack(values, wide=wide, moments=False, seeds=rng.integers(1, 1 << 32, groups))
        made = unpack(data, blocks=len(values), edge=edge, wide=wide, moments=False)
        assert made.saturated == 0
        error = (made.words - values) / largest
        assert np.abs(error).max() <= (step * 17 / 16) * (1 + 2**-6)
        total += error
    assert abs(total.mean() / times) < 4 * step / np.sqrt(times * values.size)
    at = np.abs(values).argmax(axis=1)[:, None]
    ends = np.take_along_axis(total * np.sign(values), at, axis=1)
    assert abs(ends.mean() / times) < 4 * step / np.sqrt(times * len(values))
    again = unpack(
        pack(made.words, wide=wide, moments=False, seeds=rng.integers(1, 1 << 32, groups)),
        blocks=len(values),
        edge=edge,
        wide=wide,
        moments=False,
    )
    # What is stored already is stored again as it is, where an element stands at the end of its block's scale.
    ends = np.frexp(np.where(made.words < 0, ~made.words, made.words).max(axis=1))[0] * 32 % 1 == 0
    assert wide or (ends.mean() > 0.3 and np.array_equal(again.words[ends], made.words[ends]))


@pytest.mark.parametrize("wide", [False, True], ids=["nf4", "int8"])
def test_second_moments_keep_their_size_and_never_vanish(wide):
    """v is rounded to eighths of an octave, or to octaves, by chance: on average it is what it was; one that is too
    small for its block is raised, which makes a step smaller and never larger."""
    rng = np.random.default_rng(4)
    groups, edge = 60, 64
    exact = rng.uniform(1, 16, (16 * groups, edge)).astype(np.float32)
    exact[:, 7] = 1e-18
    words = exact.view(np.uint32).astype(np.int64)
    total, times = np.zeros(exact.shape), 16
    for _ in range(times):
        data = pack(words, wide=wide, moments=True, seeds=rng.integers(1, 1 << 32, groups))
        made = floats(unpack(data, blocks=len(words), edge=edge, wide=wide, moments=True).words)
        ratio = made[1::2] / exact[1::2]
        assert (ratio[:, 7] > 1).all()
        ratio = np.delete(ratio, 7, axis=1)
        assert ratio.max() <= (1.125 if wide else 2) and ratio.min() >= (1 / 1.125 if wide else 0.5)
        total += made
    mean = np.delete(total[1::2] / times / exact[1::2], 7, axis=1).mean()
    assert abs(mean - 1) < 0.01
