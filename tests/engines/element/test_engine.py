"""The element engine alone: RTL equals the model word for word, under stalls and long holds, and its cycles."""

import numpy as np
import pytest

from gradloom.rtl.engines.element import engine as hardware
from gradloom.rtl.engines.element.engine import ElementEngine
from gradloom.rtl.engines.element.lane import ElementLane
from gradloom.rtl.engines.element.spec import SPEC
from gradloom.rtl.formats.tiles.codes import WIDE, ZERO
from gradloom.rtl.formats.tiles.element import ElementOpcode as Op
from gradloom.rtl.formats.tiles.functions import GELU, SILU, Mirror, Times, packed_pieces, selu
from gradloom.rtl.formats.tiles.records import TileRecord, tile_argument
from gradloom.rtl.formats.tiles.tables import FIXED_TABLES, TABLES
from gradloom.rtl.shell.registers.errors import Error
from gradloom.sim.bench.engine import FENCE, BenchCommand, BenchLoad, BenchStore, EngineBench, pressures
from gradloom.sim.bench.mutants import mutant

from ...deep import deep
from .script import CONFIG, Script, beats_of

HOLD = 60
IDS = ["free", "stalls", "holds"]
#: Exponents of tiles: near each other, far apart, at their ends, of zeros.
EXPONENTS = [(-9, -31, -3), (-127, 127, 127), (ZERO, -12, -12), (-12, ZERO, ZERO)]
CONSTANTS = {"mantissa": (1 << 17) - 1, "exponent": -20}
GATE = {"gate": 1}
#: SiLU, GEGLU, their gradients, a function alone and one times c.
FORMS = {
    "silu": SILU.value.operands(),
    "silu back": SILU.slope.operands() | GATE,
    "geglu": GELU.value.operands() | GATE,
    "geglu back": GELU.slope.operands() | GATE | {"times": Times.THIRD},
    "sigmoid": SILU.value.operands() | {"times": Times.NOTHING, "exponent": 3},
    "third": SILU.value.operands() | {"times": Times.THIRD, "exponent": -9},
}


@pytest.fixture(scope="module")
def bench():
    return EngineBench(SPEC, CONFIG)


def tiles(opcode, exponents, rows=5, features=20, **operands):
    """A command on tiles of three ports, whose result is stored with 16 and with 8 bits."""
    script = Script(seed=int(opcode))
    if opcode == Op.WORDS:
        script.words(script.rng.integers(-(1 << 31), 1 << 31, (rows, features)) >> script.rng.integers(0, 31))
    else:
        for port, exponent in zip("abc", exponents):
            script.load(port, 3, script.codes(rows + 2, features + 8), exponent)
        script.fence()
    places = {"a": 3, "b": 3, "c": 3, "o": 1, "a_row": 2, "a_beat": 1, "b_row": 1, "fresh": 1}
    script.run(opcode, rows, features, **{**places, **CONSTANTS, **operands})
    return script.store(1, rows, features).store(1, rows, features, wide=False)


def halved(exponents, side=1, slots=2, rows=64, features=12, **operands):
    """SQUARES over tiles of several exponents."""
    script = Script(seed=side)
    for slot in range(slots):
        script.load("a", 4 + slot, script.codes(rows, features), exponents[slot % len(exponents)])
    count = rows * slots // 4
    script.fence().run(Op.SQUARES, count, features, a=4, o=3, fresh=1, side=side, **operands)
    return script.store(3, count, features).store(3, count, features, wide=False)


@pytest.mark.parametrize("pressure", pressures(HOLD)[1:], ids=IDS[1:])
@pytest.mark.parametrize("opcode", [each for each in Op if each not in (Op.SQUARES, Op.TABLE)], ids=lambda op: op.name)
def test_rtl_is_the_model(bench, opcode, pressure):
    tiles(opcode, (-14, -9, -11), split=1).check(bench, **pressure)


@pytest.mark.parametrize("exponents", EXPONENTS, ids=str)
@pytest.mark.parametrize(
    "opcode", [each for each in Op if each not in (Op.SQUARES, Op.WORDS, Op.TABLE)], ids=lambda op: op.name
)
def test_exponents_reach_all_their_ends(bench, opcode, exponents):
    tiles(opcode, exponents, split=2).check(bench)


@pytest.mark.parametrize("pressure", pressures(HOLD)[::2], ids=IDS[::2])
def test_squares_are_the_model(bench, pressure):
    """Images of 16 x 16 pixels are four tiles, those of 4 x 4 a part of one."""
    halved((-9, -12, ZERO, -40), side=3, slots=4).check(bench, **pressure)
    halved((-9, -8), side=1).check(bench, **pressure)


def test_squares_of_single_pixels_begin_at_any_pair_of_rows(bench):
    script = Script().load("a", 0, Script(1).codes(64, 9), -3)
    script.fence().run(Op.SQUARES, 5, 9, o=2, o_row=7, fresh=1, side=0, a_row=38)
    script.run(Op.SQUARES, 7, 9, o=2, side=0)
    script.store(2, 12, 9).check(bench)


@pytest.mark.parametrize("operands", [{"subtract": 1}, {"one_row": 1, "b_row": 6}, {"b_beat": 1}], ids=str)
@pytest.mark.parametrize("opcode", [Op.ADD, Op.MULTIPLY, Op.LARGER, Op.EQUAL, Op.MASK], ids=lambda op: op.name)
def test_pairs_of_other_rows_and_signs(bench, opcode, operands):
    """Only ADD subtracts."""
    tiles(opcode, (-14, -12, -11), **operands).check(bench)


@pytest.mark.parametrize("pressure", pressures(HOLD), ids=IDS)
@pytest.mark.parametrize("opcode", [Op.ADD, Op.SCALE, Op.MULTIPLY, Op.WORDS], ids=lambda op: op.name)
def test_results_below_0_become_0(bench, opcode, pressure):
    """The largest is below 0, and the tile's exponent is of those above."""
    script = Script()
    codes = script.codes(8, 20) >> 3
    codes[::3, ::2] = -32767
    script.load("a", 0, codes, -9).load("b", 0, np.abs(script.codes(8, 20)) >> 6, -9).fence()
    if opcode == Op.WORDS:
        script.words(codes << 9)
    script.run(opcode, 8, 20, fresh=1, positive=1, mantissa=1 << 16, exponent=-16)
    script.store(0, 8, 20).store(0, 8, 20, wide=False).check(bench, **pressure)


@pytest.mark.parametrize("rise", [0, 5, -3])
def test_a_maximum_and_where_it_was(bench, rise):
    """Maxima of two tiles under one exponent; of each tile those codes count that are within half a unit of them."""
    script = Script(seed=3)
    first, second = script.codes(16, 24) >> 2, script.codes(16, 24)
    second[::2] = first[::2] >> 1
    second[::2, ::3] += 1
    script.load("a", 0, first, -12).load("b", 0, second, -12 + rise).load("c", 0, script.codes(16, 24), -3).fence()
    script.run(Op.LARGER, 16, 24, fresh=1).run(Op.EQUAL, 16, 24, o=1, fresh=1).store(0, 16, 24)
    script.store(1, 16, 24).check(bench)
    # The maximum's record with the same exponent as the model made it.
    record = script.expected[: 1 + 16 * 2]
    script.model.load("b", tile_argument(1, 16, 24), b"".join(each.to_bytes(32, "little") for each in record))
    script.steps += [BenchLoad("b", record, tile_argument(1, 16, 24)), FENCE]
    script.run(Op.EQUAL, 16, 24, b=1, fresh=1).store(0, 16, 24)
    counts = script.model.results.words[0, :16, :24] != 0
    assert counts.any() and not counts.all()
    script.check(bench)


@pytest.mark.parametrize("split", [0, 1, 2, 3])
def test_rows_are_joined_at_each_beat(bench, split):
    """What is not joined does not count in the larger exponent."""
    tiles(Op.JOIN, (-9, -12, 0), split=split, a_beat=0, b_beat=0).check(bench)
    tiles(Op.JOIN, (-12, -9, 0), split=split, a_beat=1, b_beat=1).check(bench)


@pytest.mark.parametrize("features", [1, 4, 5, 8, 12])
def test_words_of_rows_that_end_in_any_beat(bench, features):
    tiles(Op.WORDS, (), features=features, exponent=-31).check(bench)


def test_words_wait_until_a_command_takes_them(bench):
    """Its queue holds four beats."""
    script = Script().words(Script(1).rng.integers(-9, 9, (6, 12)))
    load = script.steps.pop()
    script.run(Op.WORDS, 6, 12, fresh=1)
    script.store(0, 6, 12)
    script.steps = [BenchLoad("words", load.beats[:4]), FENCE, BenchLoad("words", load.beats[4:]), *script.steps]
    script.check(bench)


def test_rows_of_a_slot_come_from_several_commands(bench):
    """Each row has its exponent, and the tile that of the largest word since the first; the next tile its own."""
    script = Script()
    for slot, exponent in enumerate((-30, -12, -9)):
        script.load("a", slot, script.codes(8, 24), exponent)
    script.load("b", 0, script.codes(8, 24), -10).fence()
    script.run(Op.FUNCTION, 3, 24, a=2, fresh=1, **FORMS["silu"])
    script.run(Op.ADD, 4, 24, a=1, o_row=3).run(Op.SCALE, 1, 24, a=0, o_row=7, mantissa=1, exponent=511)
    script.store(0, 8, 24)
    script.run(Op.ADD, 8, 24, fresh=1).store(0, 8, 24).check(bench)


def test_every_code_of_a_tile_goes_through_each_table(bench):
    """Arguments from the least to those beyond the table's end."""
    script = Script()
    codes = script.rng.permutation(np.arange(-32752, 32752, 16)[: 64 * 63]).reshape(63, 64)
    script.load("a", 0, codes[::-1], -12).load("b", 0, codes, -11).load("c", 0, codes.T[:63], -12).fence()
    for form in FORMS.values():
        script.run(Op.FUNCTION, 63, 64, fresh=1, **form).store(0, 63, 64)
    script.check(bench)


@pytest.mark.parametrize("pressure", pressures(HOLD), ids=IDS)
@pytest.mark.parametrize("form", FORMS)
def test_functions_are_the_model(bench, form, pressure):
    tiles(Op.FUNCTION, (-14, -12, -11), **FORMS[form]).check(bench, **pressure)


@pytest.mark.parametrize("exponents", EXPONENTS, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_exponents_of_functions_reach_all_their_ends(bench, form, exponents):
    tiles(Op.FUNCTION, exponents, **FORMS[form]).check(bench)


@pytest.mark.parametrize("mirror", Mirror, ids=lambda mirror: mirror.name)
@pytest.mark.parametrize("size", [0, 3, 7])
def test_mirrors_and_ranges(bench, mirror, size):
    """A fixed table and its neighbour; the codes reach from far below the range to far above it."""
    for table in (0, 2):
        more = {"table": table, "range": size, "mirror": mirror, "exponent": 0}
        tiles(Op.FUNCTION, (-14 + size, -13 + size, -12), **more).check(bench)
        tiles(Op.FUNCTION, (-14 + size, -13 + size, -12), gate=1, times=1, **more).check(bench)


def written(script, first, *tables):
    """Writes tables, the first of two in two commands."""
    for number, table in enumerate(tables, first):
        for start, rows in ((0, 23), (23, 41)) if number == first else ((0, 64),):
            script.words(packed_pieces(table)[start : start + rows].astype(np.int64))
            script.run(Op.TABLE, rows, 1, table=number, o_row=start)
    return script


@pytest.mark.parametrize("pressure", pressures(HOLD), ids=IDS)
def test_tables_that_a_program_writes(bench, pressure):
    """Every one of them, of bases and rises of both signs and at their ends; the fixed ones stay."""
    random = np.random.default_rng(4)
    script = Script()
    codes = script.rng.permutation(np.arange(-32760, 32760, 127)[: 8 * 64]).reshape(8, 64)
    script.load("a", 0, codes, -12).load("b", 0, codes, -14).fence()
    for first in range(FIXED_TABLES, TABLES, 2):
        ends = [
            random.choice([-1, 1], 512) * random.choice([1, 1 << 17], 512) - (random.integers(0, 2, 512)) for _ in "ab"
        ]
        tables = [np.clip(each, -(1 << 17), (1 << 17) - 1) for each in ends]
        for number, base in enumerate(tables, first):
            slope = random.integers(-(1 << 11), 1 << 11, 512)
            words = (base & 0x3FFFF) | (slope & 0xFFF) << 18
            script.words(words.reshape(64, 8)).run(Op.TABLE, 64, 1, table=number)
    for table in range(TABLES):
        script.run(Op.FUNCTION, 8, 64, o=table % 4, fresh=1, table=table, range=3, mirror=table % 4)
        script.store(table % 4, 8, 64)
    script.check(bench, **pressure)


def test_a_function_with_a_table_for_each_sign(bench):
    curve = selu(1.0).value
    script = written(Script(), 6, *curve.tables).load("a", 0, Script(1).codes(9, 30), -12).fence()
    script.run(Op.FUNCTION, 9, 30, fresh=1, **curve.operands(6)).store(0, 9, 30).check(bench)


def test_a_beat_a_cycle(bench):
    """Of SQUARES a beat in four."""
    script = Script().load("a", 0, Script(1).codes(64, 64), -3).load("b", 0, Script(2).codes(64, 64), -3).fence()
    script.run(Op.ADD, 64, 64, fresh=1).fence()
    script.run(Op.SQUARES, 16, 20, side=2, o=1, fresh=1)
    ran = script.store(1, 16, 20).check(bench)
    latency = ElementEngine.start + ElementEngine.finish - 1
    assert [done - start for start, done in zip(ran.started, ran.done)] == [512 + latency, 16 * 3 * 4 + latency]


_WHOLE = {"a": 7, "b": 7, "o": 3, "rows": 31, "a_row": 32, "b_row": 32, "o_row": 32, "features": 31, "a_beat": 4}
GOOD = {
    **dict.fromkeys((Op.ADD, Op.MASK, Op.MULTIPLY, Op.LARGER), _WHOLE),
    Op.EQUAL: _WHOLE | {"c": 7},
    Op.SCALE: {"exponent": -512, "rows": 63},
    Op.FUNCTION: {"c": 7, "b_row": 63, "one_row": 1, "rows": 63, "gate": 1, "times": 2, "table": 11, "exponent": -512},
    Op.TABLE: {"table": 4, "rows": 0, "o_row": 63},
    Op.SQUARES: {"a": 4, "rows": 63, "side": 6, "a_row": 0},
    Op.JOIN: {"split": 1, "features": 63, "a_beat": 7, "b_beat": 1},
    Op.WORDS: {"exponent": 511},
}
WRONG = [
    (Op.ADD, {"a": 8}),
    (Op.ADD, {"a": 255}),
    (Op.ADD, {"b": 8}),
    (Op.ADD, {"o": 4}),
    (Op.ADD, {"a_row": 33}),
    (Op.ADD, {"b_row": 33}),
    (Op.ADD, {"o_row": 33}),
    (Op.ADD, {"a_beat": 5}),
    (Op.ADD, {"b_beat": 5}),
    (Op.SCALE, {"exponent": -513}),
    (Op.SCALE, {"exponent": 512}),
    (Op.SCALE, {"a": 8}),
    (Op.FUNCTION, {"c": 8}),
    (Op.FUNCTION, {"one_row": 0}),
    (Op.FUNCTION, {"gate": 0, "a": 8}),
    (Op.FUNCTION, {"table": 12}),
    (Op.FUNCTION, {"times": 3}),
    (Op.FUNCTION, {"exponent": 512}),
    (Op.TABLE, {"table": 3}),
    (Op.TABLE, {"table": 12}),
    (Op.TABLE, {"rows": 1}),
    (Op.SQUARES, {"a": 5}),
    (Op.SQUARES, {"a_row": 2}),
    (Op.SQUARES, {"rows": 15, "side": 1, "a_row": 1}),
    (Op.SQUARES, {"side": 7}),
    (Op.SQUARES, {"rows": 61, "side": 2}),
    (Op.SQUARES, {"features": 15, "a_beat": 7}),
    (Op.EQUAL, {"c": 8}),
    (Op.MASK, {"b": 8}),
    (Op.MULTIPLY, {"b_row": 33}),
    (Op.LARGER, {"a_beat": 5}),
    (Op.JOIN, {"split": 2}),
    (Op.JOIN, {"b_beat": 2}),
    (Op.JOIN, {"features": 7, "split": 2, "a_beat": 0}),
    (Op.JOIN, {"a": 8}),
    (Op.JOIN, {"b": 8}),
    (Op.WORDS, {"exponent": -513}),
    (Op.WORDS, {"o": 15}),
]


@pytest.mark.parametrize(("opcode", "wrong"), WRONG, ids=str)
def test_bad_operands_are_refused(bench, opcode, wrong):
    """By the model too, and the engine goes on after it."""
    operands = GOOD[opcode] | wrong
    with pytest.raises(ValueError, match=r"\d"):
        Script().model.run(opcode, operands)
    after = {"rows": 0, "fresh": 1}
    ran = bench.run(
        BenchCommand(opcode, operands),
        FENCE,
        BenchCommand(Op.ADD, after),
        FENCE,
        BenchStore("o", 2, tile_argument(0, 1, 8)),
    )
    assert ran.codes == [Error.BAD_OPERAND] and len(ran.done) == 1


def test_operands_at_their_ends_are_taken(bench):
    for opcode, operands in GOOD.items():
        ran = bench.run(
            BenchCommand(opcode, operands),
            *([BenchLoad("words", [0] * (1 + (opcode == Op.TABLE)))] if opcode in (Op.WORDS, Op.TABLE) else []),
            patience=200,
            hold=2000,
        )
        assert not ran.codes and len(ran.done) == 1, opcode.name


def test_opcodes_that_are_not_there_are_refused(bench):
    bench.check(BenchCommand(len(Op), {}), errors=[Error.UNKNOWN_OPCODE])


@pytest.mark.parametrize("port", ["a", "b", "c"])
def test_loads_and_stores_that_have_no_place_are_refused(bench, port):
    codes = np.zeros((2, 8), np.int64)
    record, argument = TileRecord(2, 8, WIDE), tile_argument(CONFIG.element_slots, 2, 8)
    beyond = beats_of(record.pack(codes, 0))
    codes[1, 3] = -(1 << WIDE - 1)
    least = beats_of(record.pack(codes, 0))
    ran = bench.run(
        BenchLoad(port, beyond, argument),
        FENCE,
        BenchLoad(port, least, tile_argument(0, 2, 8)),
        FENCE,
        BenchStore("o", 3, tile_argument(CONFIG.element_results, 2, 8, wide=True)),
        FENCE,
        BenchStore("o", 4, tile_argument(0, 2, 8, wide=True)),
    )
    assert [(name, beat) for _, name, beat in ran.refused] == [(port, 0), (port, 2), ("o", None), ("o", None)]
    for slot, content in ((CONFIG.element_slots, beyond), (0, least)):
        with pytest.raises(ValueError, match="must be"):
            raw = b"".join(each.to_bytes(32, "little") for each in content)
            Script().model.load(port, tile_argument(slot, 2, 8), raw)


def test_the_model_refuses_what_a_program_must_not_ask():
    """A word that was not written; a larger one beyond what is stored; words that did not come; parts of records."""
    script = Script().load("a", 0, Script(1).codes(4, 8), -3)
    script.run(Op.FUNCTION, 2, 8, fresh=1, **FORMS["silu"])
    with pytest.raises(ValueError, match=r"word \[2, 0\] of slot 0 was not written"):
        script.store(0, 3, 8)
    script.run(Op.SCALE, 1, 8, o_row=2, mantissa=65536, exponent=9)
    with pytest.raises(ValueError, match="larger word outside of 2 x 8"):
        script.store(0, 2, 8)
    for opcode in (Op.WORDS, Op.TABLE):
        with pytest.raises(ValueError, match=r"0 bytes of words, needs (32|64)"):
            script.run(opcode, 2, 4, table=4)
    with pytest.raises(ValueError, match="must be records of 96"):
        script.model.load("a", tile_argument(0, 2, 8), bytes(64))


def near(opcode):
    """Codes that differ by less than half a unit of the larger exponent."""
    codes = np.arange(1, 33).reshape(2, 16) * 512
    script = Script().load("a", 0, codes + 3, -12).load("b", 0, codes >> 4, -8).load("c", 0, codes, -12).fence()
    return script.run(opcode, 2, 16, fresh=1).store(0, 2, 16)


LANES = {
    "signed-argument": lambda: tiles(Op.FUNCTION, (-12, -12, -12), **FORMS["silu"]),
    "rounds-down": lambda: tiles(Op.ADD, (-12, -3, -12)),
    "wraps": lambda: tiles(Op.FUNCTION, (-9, -9, -9), **FORMS["geglu"]),
    "one-side": lambda: tiles(Op.FUNCTION, (-12, -12, -12), **FORMS["silu back"]),
    "no-own": lambda: tiles(Op.FUNCTION, (-12, -12, -12), mirror=Mirror.OWN, range=4),
    "last-sum": lambda: tiles(Op.LARGER, (-12, -11, -12)),
    "any-difference": lambda: near(Op.EQUAL),
    "always": lambda: tiles(Op.MASK, (-12, -11, -12)),
    "negative": lambda: tiles(Op.ADD, (-12, -11, -12), positive=1),
    "short": lambda: (
        Script().load("a", 0, np.full((8, 8), 32767), -3).fence().run(Op.SQUARES, 2, 8, fresh=1).store(0, 2, 8)
    ),
}
ENGINE = {
    "factor-zero": lambda: tiles(Op.FUNCTION, (-12, -12, -12), **FORMS["sigmoid"]),
    "same-words": lambda: tiles(Op.WORDS, (), features=12),
    "early": lambda: (
        Script()
        .load("a", 0, np.arange(1, 65).reshape(8, 8) * 500, -3)
        .fence()
        .run(Op.FUNCTION, 8, 8, fresh=1, **FORMS["silu"])
        .store(0, 8, 8)
    ),
    "three-pixels": lambda: halved((-9, -12)),
    "all-rows": lambda: tiles(Op.ADD, (-12, -12, -12), one_row=1),
    "first-exponent": lambda: tiles(Op.ADD, (-12, -9, -12)),
    "counts-zeros": lambda: tiles(Op.SCALE, (ZERO, -12, -12)),
    "near": lambda: tiles(Op.ADD, (-40, -8, -12)),
    "all-lanes": lambda: (
        Script()
        .load("a", 0, np.where(np.arange(16) < 9, 3, 30000) + np.zeros((2, 1), int), -3)
        .fence()
        .run(Op.FUNCTION, 2, 9, fresh=1, **FORMS["silu"])
        .store(0, 2, 9)
    ),
    "stale": lambda: (
        Script()
        .load("a", 0, np.full((2, 8), 30000), -3)
        .load("a", 1, np.full((2, 8), 3), -3)
        .fence()
        .run(Op.FUNCTION, 2, 8, fresh=1, **FORMS["silu"])
        .run(Op.FUNCTION, 2, 8, a=1, fresh=1, **FORMS["silu"])
        .store(0, 2, 8)
    ),
}


@deep
@pytest.mark.parametrize("name", [*LANES, *ENGINE])
def test_mutants_are_found(bench, monkeypatch, name):
    script = (LANES | ENGINE)[name]()
    script.check(bench)
    if name in LANES:
        monkeypatch.setattr(hardware, "ElementLane", mutant(ElementLane, name))
        broken = ElementEngine(SPEC, CONFIG)
    else:
        broken = mutant(ElementEngine, name)(SPEC, CONFIG)
    with pytest.raises(AssertionError):
        script.check(EngineBench(SPEC, component=broken), patience=300)
