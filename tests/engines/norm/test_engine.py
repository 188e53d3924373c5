"""The norm engine alone: RTL equals the model word for word, under stalls and long holds, and its cycles."""

import os

import numpy as np
import pytest

from gradloom.rtl.engines.norm import engine as hardware
from gradloom.rtl.engines.norm.engine import NormEngine
from gradloom.rtl.engines.norm.lane import NormLane
from gradloom.rtl.engines.norm.spec import SPEC
from gradloom.rtl.engines.norm.statistics import NormStatistics
from gradloom.rtl.engines.norm.sums import NormSums
from gradloom.rtl.engines.norm.walk import NormWalk
from gradloom.rtl.formats.norm import NormOpcode as Op
from gradloom.rtl.formats.tile_codes import WIDE, ZERO
from gradloom.rtl.formats.tile_records import TileRecord, tile_argument
from gradloom.rtl.shell.registers.errors import Error
from gradloom.sim.bench.engine import FENCE, BenchCommand, BenchLoad, BenchStore, EngineBench, pressures
from gradloom.sim.bench.mutants import mutant

from .script import CONFIG, EPS_OPERANDS, Script, beats_of, factor_operands, sizes

HOLD = 60
IDS = ["free", "stalls", "holds"]
LOG2_E = float(np.log2(np.e))


@pytest.fixture(scope="module")
def bench():
    return EngineBench(SPEC, CONFIG)


def norms(
    rows=4,
    features=16,
    group=2,
    tiles=2,
    by_row=0,
    at=(-14, -12),
    back_at=(-20, -22),
    gain_at=(-15, -14),
    bias_at=-14,
    eps=EPS_OPERANDS,
    a_row=2,
    o_row=1,
    x=None,
):
    """Forward and back: every tile of a group is stored, with 16 bits and with 8."""
    script = Script(seed=rows + features + group)
    x = x or [script.codes(a_row + rows, features) for _ in range(tiles)]
    for number, codes in enumerate(x):
        script.load("a", number, codes, at[number % len(at)])
    for number in range(tiles):
        script.load("gain", 3 + number, script.codes(1, features), gain_at[number % len(gain_at)])
    script.load("gain", 31, script.codes(1, features), bias_at).fence()
    place = {"rows": rows, "features": features, "a_row": a_row}
    script.run(Op.SUMS, a=0, tiles=tiles, by_row=by_row, group=group, **eps, **place)

    def results(opcode, number, **operands):
        # Rows above are first: the tile is of both commands.
        operands |= {"gain": 3 + number * by_row, "o": number % 4, **place}
        if o_row:
            script.run(opcode, fresh=1, **operands | {"rows": min(rows, o_row)})
        script.run(opcode, fresh=int(not o_row), o_row=min(rows, o_row), **operands)
        for wide in (True, False):
            script.store(number % 4, min(rows, o_row) + rows, features, wide=wide)

    for number in range(tiles):
        results(Op.NORM, number, a=number, bias=31)
    for number in range(tiles):
        script.load("b", number + 1, script.codes(a_row + rows, features), back_at[number % len(back_at)])
    script.fence().run(Op.BACK_SUMS, a=0, b=1, tiles=tiles, gain=3, **place)
    for number in range(tiles):
        results(Op.BACK, number, a=number, b=number + 1)
    return script


def softmaxes(rows=5, features=11, at=-11, p_at=-18, back_at=-20, factor=32**-0.5, a_row=1, p=None):
    """A softmax and a gradient of one, of a part of a tile's rows."""
    script = Script(seed=rows + features)
    whole = a_row + rows
    script.load("a", 1, script.codes(whole, features), at)
    script.load("a", 2, np.abs(script.codes(whole, features)) if p is None else p, p_at)
    script.load("b", 3, script.codes(whole, features), back_at).fence()
    place = {"rows": rows, "features": features, "a_row": a_row, "fresh": 1}
    script.run(Op.SOFTMAX, a=1, o=2, **place, **factor_operands(factor * LOG2_E))
    script.store(2, rows, features).store(2, rows, features, wide=False)
    script.run(Op.SOFTMAX_BACK, a=2, b=3, o=1, **place, **factor_operands(factor))
    return script.store(1, rows, features).store(1, rows, features, wide=False)


FORMS = {
    "groups of 4": {},
    "single features": {"group": 0, "features": 12, "tiles": 1},
    "groups of a beat": {"group": 3, "features": 24, "rows": 2},
    "groups of two beats, four tiles": {"group": 4, "features": 48, "rows": 1, "tiles": 4},
    "a tile's features are a group": {"group": 6, "features": 64, "tiles": 1, "a_row": 60, "o_row": 0},
    "few features": {"group": 1, "features": 6, "rows": 8},
    "one pixel": {"group": 2, "rows": 1, "tiles": 1, "features": 8},
    "rows": {"by_row": 1, "rows": 5, "tiles": 1},
    "rows of four tiles": {"by_row": 1, "rows": 3, "features": 8, "tiles": 4},
    "rows of four features": {"by_row": 1, "rows": 9, "features": 4, "tiles": 1},
    "rows of whole tiles": {"by_row": 1, "rows": 2, "features": 64, "tiles": 2, "group": 7},
    "all rows": {"group": 0, "rows": 64, "features": 1, "tiles": 1, "a_row": 0, "o_row": 0},
}


@pytest.mark.parametrize("form", FORMS)
def test_norms_are_the_models_in_every_form(bench, form):
    norms(**FORMS[form]).check(bench)


@pytest.mark.parametrize("pressure", pressures(HOLD), ids=IDS)
@pytest.mark.parametrize("form", ["groups of 4", "rows of four tiles"])
def test_norms_are_the_models_under_pressure(bench, form, pressure):
    norms(**FORMS[form]).check(bench, **pressure)


EXPONENTS = {
    "near": {"at": (-12, -12)},
    "apart": {"at": (-9, -31), "back_at": (-60, -9), "gain_at": (-20, -3)},
    "at the ends": {"at": (127, -127), "back_at": (-127, 127), "gain_at": (127, -127), "bias_at": 127},
    "x of zeros": {"at": (ZERO, -12)},
    "all of zeros": {"at": (ZERO, ZERO)},
    "gradients of zeros": {"back_at": (ZERO, -12), "gain_at": (ZERO, -12)},
    "far below eps": {"at": (-70, -71)},
    "least": {"at": (-127, -127), "eps": {"mantissa": 65535, "exponent": 0}},
    "far above eps": {"at": (30, 31), "eps": {"mantissa": 1, "exponent": -1024}},
    "no eps": {"eps": {"mantissa": 0, "exponent": 0}},
    "a large bias": {"bias_at": -2},
    "a larger bias": {"bias_at": 60},
    "a small bias": {"bias_at": -60, "gain_at": (-10, -10)},
    "no gain": {"gain_at": (ZERO, ZERO), "bias_at": -14},
    "nothing": {"gain_at": (ZERO, ZERO), "bias_at": ZERO},
}


@pytest.mark.parametrize("name", EXPONENTS)
def test_exponents_reach_all_their_ends(bench, name):
    """Groups of rows and of features in turn."""
    norms(by_row=len(name) % 2, rows=2, a_row=0, o_row=0, **EXPONENTS[name]).check(bench)


def test_every_place_of_eps(bench):
    """Odd and even, below the sums and above."""
    for exponent in (-130, -100, -45, -44, -32, -31, -16, -1, 0):
        script = Script(exponent + 200).load("a", 0, Script(1).codes(2, 8), -14)
        script.load("gain", 0, script.codes(1, 8), -14).fence()
        script.run(Op.SUMS, a=0, rows=2, features=8, group=1, mantissa=40001, exponent=exponent)
        script.run(Op.NORM, a=0, o=0, gain=0, bias=0, rows=2, features=8, fresh=1).store(0, 2, 8).check(bench)


def test_a_constant_group_is_its_bias(bench):
    norms(x=[np.full((6, 16), 12345)] * 2, at=(-12,)).check(bench)


SOFTMAXES = {
    "usual": {},
    "one key": {"features": 1},
    "eight keys": {"features": 8, "rows": 9},
    "64 keys": {"features": 64, "rows": 3, "a_row": 61},
    "all rows": {"features": 3, "rows": 64, "a_row": 0},
    "large scores": {"at": 0},
    "the largest scores": {"at": 127, "back_at": 127},
    "small scores": {"at": -30},
    "the least scores": {"at": -127, "p_at": -127, "back_at": -127},
    "zeros": {"at": ZERO, "p_at": ZERO, "back_at": ZERO},
    "a large factor": {"factor": 1e20, "at": -60},
    "a small factor": {"factor": 1e-20, "at": 40},
}


@pytest.mark.parametrize("form", SOFTMAXES)
def test_softmaxes_are_the_models_in_every_form(bench, form):
    softmaxes(**SOFTMAXES[form]).check(bench)


@pytest.mark.parametrize("pressure", pressures(HOLD), ids=IDS)
def test_softmaxes_are_the_models_under_pressure(bench, pressure):
    softmaxes().check(bench, **pressure)


def test_what_lies_beyond_a_rows_keys_does_not_count(bench):
    """Codes there are larger than the keys'."""
    script = Script()
    codes = np.concatenate([script.codes(3, 5, bits=10), np.full((3, 11), 32767)], axis=1)
    script.load("a", 0, codes, -12).load("b", 0, codes, -12).fence()
    place = {"rows": 3, "features": 5, "fresh": 1}
    script.run(Op.SOFTMAX, a=0, o=0, **place, **factor_operands(1.0)).store(0, 3, 5)
    script.run(Op.SOFTMAX_BACK, a=0, b=0, o=0, **place, **factor_operands(1.0)).store(0, 3, 5)
    script.check(bench)


def test_rows_of_a_slot_come_from_several_commands(bench):
    """Images of two rows: each has statistics and an exponent of its own, the tile one for all."""
    script = Script(5)
    scale = np.array([0, 0, 4, 4, 9, 9])[:, None]
    script.load("a", 0, script.codes(6, 16) >> scale, -12).load("b", 0, script.codes(6, 16) >> scale, -12)
    script.load("gain", 0, script.codes(1, 16), -15).load("gain", 1, script.codes(1, 16), -15).fence()
    for back in (False, True):
        for row in (0, 2, 4):
            place = {"a_row": row, "rows": 2, "features": 16}
            result = {"o_row": row, "fresh": int(row == 0), "o": int(back), **place}
            script.run(Op.SUMS, a=0, group=2, **EPS_OPERANDS, **place)
            if back:
                script.run(Op.BACK_SUMS, a=0, b=0, gain=0, **place).run(Op.BACK, a=0, b=0, gain=0, **result)
            else:
                script.run(Op.NORM, a=0, gain=0, bias=1, **result)
        script.store(int(back), 6, 16)
    script.check(bench)


def limited():
    """Values, gradients and their parts along x, pulls: each is clipped where its sums are of other tiles."""
    script = Script(7)
    flat = 20000 + np.arange(32).reshape(2, 16) % 3
    script.load("a", 0, flat, -14).load("b", 0, flat, -14)
    script.load("a", 1, script.codes(2, 16), -14).load("b", 1, script.codes(2, 16), -14)
    script.load("gain", 0, np.full((1, 16), 32767), -15).fence()
    place = {"rows": 2, "features": 16}
    script.run(Op.SUMS, a=0, group=2, mantissa=0, **place)
    lost = [script.model.saturated]

    def done(opcode, **operands):
        script.run(opcode, **place, **operands)
        lost.append(script.model.saturated)

    done(Op.NORM, a=1, o=0, fresh=1)
    script.store(0, 2, 16)
    done(Op.BACK_SUMS, a=1, b=1)
    script.fence().load("b", 1, np.full((2, 16), 32767), -14).fence()
    done(Op.BACK, a=1, b=1, o=0, fresh=1)
    script.store(0, 2, 16)
    p = np.full((2, 16), 32767)
    script.load("a", 2, p, -8).load("b", 2, p, 3).fence()
    done(Op.SOFTMAX_BACK, a=2, b=2, o=0, fresh=1, **factor_operands(0.7))
    script.store(0, 2, 16)
    assert all(np.diff(lost) > 0)
    return script


def test_what_does_not_belong_to_its_sums_is_limited_and_counted(bench):
    limited().check(bench)


def test_cycles(bench):
    """A beat a cycle; eight at least for a row, or a column of groups, that is added up."""
    script = Script()
    for port in "ab":
        for slot in range(2):
            script.load(port, slot, script.codes(16, 64), -14)
    script.load("gain", 0, script.codes(1, 64), -14).fence()
    script.run(Op.SUMS, a=0, tiles=2, rows=16, features=64, group=6, **EPS_OPERANDS)
    script.run(Op.NORM, a=0, rows=16, features=64, fresh=1)
    script.run(Op.BACK_SUMS, a=0, b=0, tiles=2, rows=16, features=64)
    script.run(Op.BACK, a=0, b=0, rows=16, features=64, fresh=1)
    script.run(Op.SUMS, a=0, tiles=2, rows=5, features=8, by_row=1, **EPS_OPERANDS)
    script.run(Op.SOFTMAX, a=0, rows=7, features=24, fresh=1, **factor_operands(1.0))
    ran = script.check(bench)
    took = [done - start for start, done in zip(ran.started, ran.done)]
    ready, settle, finish = NormEngine.ready, NormEngine.settle(8), NormEngine.finish
    assert took == [
        ready + 2 + 256 + settle,
        ready + 1 + 128 + finish,
        ready + 2 + 256 + settle,
        ready + 1 + 128 + finish,
        ready + 2 + 4 * 8 + 2 + settle,
        ready + 1 + 2 * (6 * 8 + 3 + settle + NormEngine.again) + 21 + finish,
    ]


ROWS = {"rows": 4, "features": 16}
GOOD = {
    Op.SUMS: {"a": 6, "tiles": 2, "rows": 2, "a_row": 62, "features": 48, "group": 4, **EPS_OPERANDS},
    Op.NORM: {"a": 7, "o": 3, "rows": 2, "features": 32, "a_row": 62, "o_row": 62},
    Op.BACK_SUMS: {"a": 6, "b": 6, "tiles": 2, "rows": 2, "features": 48, "gain": 31},
    Op.BACK: {"a": 7, "b": 7, "o": 3, "rows": 64, "features": 64},
    Op.SOFTMAX: {"a": 7, "o": 3, "rows": 64, "features": 64, "exponent": 1023},
    Op.SOFTMAX_BACK: {"a": 6, "b": 7, "o": 3, "rows": 64, "features": 64, "exponent": 511},
}
BY_ROW = {"by_row": 1, "group": 7, "rows": 5, "features": 32}
WRONG = [
    (Op.SUMS, {"a": 7}),
    (Op.SUMS, {"a": 255}),
    (Op.SUMS, {"a_row": 63}),
    (Op.SUMS, {"rows": 3, "a_row": 0}),
    (Op.SUMS, {"tiles": 3, "a": 0}),
    (Op.SUMS, {"group": 7, "features": 64}),
    (Op.SUMS, {"group": 5}),
    (Op.SUMS, {"features": 40}),
    (Op.SUMS, {"features": 1, "group": 1}),
    (Op.SUMS, {"mantissa": 1 << 16}),
    (Op.SUMS, {"exponent": 1}),
    (Op.SUMS, BY_ROW | {"features": 48}),
    (Op.SUMS, BY_ROW | {"tiles": 3, "a": 0}),
    (Op.NORM, {"a": 8}),
    (Op.NORM, {"o": 4}),
    (Op.NORM, {"a_row": 63}),
    (Op.NORM, {"o_row": 63}),
    (Op.NORM, {"features": 40}),
    (Op.BACK_SUMS, {"b": 7}),
    (Op.BACK_SUMS, {"a": 7}),
    (Op.BACK_SUMS, {"rows": 4}),
    (Op.BACK_SUMS, {"tiles": 1}),
    (Op.BACK_SUMS, {"features": 40}),
    (Op.BACK, {"b": 8}),
    (Op.BACK, {"features": 8}),
    (Op.BACK, {"o_row": 1}),
    (Op.SOFTMAX, {"a": 8}),
    (Op.SOFTMAX, {"a_row": 1}),
    (Op.SOFTMAX_BACK, {"b": 8}),
    (Op.SOFTMAX_BACK, {"o": 15}),
    (Op.SOFTMAX_BACK, {"exponent": 512}),
    (Op.SOFTMAX_BACK, {"exponent": -513}),
]


def begun(script, **sums):
    """SUMS of tiles of zeros, for what needs its sizes."""
    for port, slot in [(port, slot) for port in "ab" for slot in (6, 7)] + [("gain", 31)]:
        script.load(port, slot, np.zeros((1, 8), int), -20)
    return script.fence().run(Op.SUMS, **{"a": 6, "tiles": 2, "rows": 2, "features": 48, "group": 4} | sums).fence()


@pytest.mark.parametrize(("opcode", "wrong"), WRONG, ids=str)
def test_bad_operands_are_refused(bench, opcode, wrong):
    """By the model too, and the engine goes on after it."""
    script = begun(Script())
    operands = sizes(GOOD[opcode] | wrong)
    with pytest.raises(ValueError, match="BAD_OPERAND"):
        script.model.run(opcode, operands)
    ran = bench.run(*script.steps, BenchCommand(opcode, operands), FENCE, BenchCommand(Op.SOFTMAX, {"rows": 1}))
    assert ran.codes == [Error.BAD_OPERAND] and len(ran.done) == 2


def test_operands_at_their_ends_are_taken(bench):
    for opcode, operands in GOOD.items():
        script = begun(Script()).run(opcode, **operands)
        script.check(bench)
    begun(Script(), **BY_ROW).run(Op.BACK_SUMS, a=6, b=6, tiles=2, rows=7, features=32, gain=30).check(bench)


def test_gains_of_all_tiles_have_slots(bench):
    script = begun(Script(), **BY_ROW)
    operands = sizes({"a": 6, "b": 6, "tiles": 2, "rows": 5, "features": 32, "gain": 31})
    with pytest.raises(ValueError, match="BAD_OPERAND: gain"):
        script.model.run(Op.BACK_SUMS, operands)
    ran = bench.run(*script.steps, BenchCommand(Op.BACK_SUMS, operands))
    assert ran.codes == [Error.BAD_OPERAND]


@pytest.mark.parametrize(
    "opcode, port, exponent, taken",
    [
        (Op.NORM, "a", -19, -20),
        (Op.BACK, "a", -19, -20),
        (Op.BACK, "b", -19, -20),
        (Op.BACK_SUMS, "a", 0, -20),
        (Op.SOFTMAX_BACK, "a", -7, -8),
    ],
)
def test_exponents_above_those_of_the_sums_are_refused(bench, opcode, port, exponent, taken):
    operands = {"a": 6, "b": 6, "o": 0, "gain": 31, "tiles": 2, "rows": 2, "features": 48}
    for at in (exponent, taken):
        script = begun(Script()).run(Op.BACK_SUMS, **operands).fence()
        script.load(port, 6, np.zeros((1, 8), int), at).fence()
        if at == taken:
            script.run(opcode, **operands).check(bench)
            continue
        with pytest.raises(ValueError, match="BAD_OPERAND"):
            script.model.run(opcode, sizes(operands))
        ran = bench.run(*script.steps, BenchCommand(opcode, sizes(operands)), FENCE, BenchCommand(Op.SOFTMAX, {}))
        assert ran.codes == [Error.BAD_OPERAND] and len(ran.done) == 3


def test_opcodes_that_are_not_there_are_refused(bench):
    bench.check(BenchCommand(6, {}), errors=[Error.UNKNOWN_OPCODE])


@pytest.mark.parametrize("port, slots, rows", [("a", 8, 2), ("b", 8, 2), ("gain", 32, 1)])
def test_loads_and_stores_that_have_no_place_are_refused(bench, port, slots, rows):
    codes = np.zeros((rows, 8), np.int64)
    record = TileRecord(rows, 8, WIDE)
    beyond = beats_of(record.pack(codes, 0))
    codes[-1, 3] = -(1 << WIDE - 1)
    least = beats_of(record.pack(codes, 0))
    ran = bench.run(
        BenchLoad(port, beyond, tile_argument(slots, rows, 8)),
        FENCE,
        BenchLoad(port, least, tile_argument(0, rows, 8)),
        FENCE,
        BenchStore("o", 3, tile_argument(4, 2, 8, wide=True)),
        FENCE,
        BenchStore("o", 4, tile_argument(0, 2, 8, wide=True)),
    )
    assert [(name, beat) for _, name, beat in ran.refused] == [(port, 0), (port, rows), ("o", None), ("o", None)]
    for slot, content in ((slots, beyond), (0, least)):
        with pytest.raises(ValueError, match="not there|must be"):
            raw = b"".join(each.to_bytes(16, "little") for each in content)
            Script().model.load(port, tile_argument(slot, rows, 8), raw)


def test_gains_have_one_row(bench):
    beats = beats_of(TileRecord(2, 8, WIDE).pack(np.zeros((2, 8)), 0))
    assert bench.run(BenchLoad("gain", beats, tile_argument(0, 2, 8))).refused
    with pytest.raises(ValueError, match="2 rows"):
        Script().model.load("gain", tile_argument(0, 2, 8), bytes(48))


def test_the_model_refuses_what_a_program_must_not_ask():
    """A word that was not written; a larger one beyond what is stored; parts of records."""
    script = begun(Script())
    with pytest.raises(ValueError, match="was not written"):
        script.store(0, 2, 8)
    script.run(Op.SOFTMAX, a=0, o=0, rows=2, features=8, fresh=1, **factor_operands(1.0)).store(0, 2, 8)
    script.load("a", 0, np.arange(16).reshape(2, 8), 0)
    script.run(Op.SOFTMAX, a=0, o=0, rows=2, features=8, fresh=1, **factor_operands(1.0))
    with pytest.raises(ValueError, match="a larger word outside"):
        script.store(0, 2, 3)
    with pytest.raises(ValueError, match="must be records"):
        script.model.load("a", tile_argument(0, 2, 8), bytes(40))
    with pytest.raises(ValueError, match="must be o"):
        script.model.store("o", tile_argument(0, 2, 8), 2)


def flat():
    """Values far from 0 and near each other, in fewer features than a beat has."""
    script = Script().load("a", 0, 20000 + np.arange(8).reshape(2, 4) % 3, -14)
    script.load("gain", 0, np.full((1, 4), 99), -14).fence()
    script.run(Op.SUMS, a=0, rows=2, features=4, by_row=1, mantissa=0)
    return script.run(Op.NORM, a=0, o=0, gain=0, bias=0, rows=2, features=4, fresh=1).store(0, 2, 4)


def apart():
    """Groups of values of very different sizes in one tile."""
    x = Script().codes(6, 16) >> (np.arange(16) // 4 * 4)
    return norms(x=[x, x], at=(-12,))


def few(features=8, first=True):
    """Of small gradients few bits are left where the least root, or the tile's peak, is another command's.

    Of one value, ``first``, then of many large ones.
    """
    script = Script(3).load("gain", 0, np.full((1, features), 64), -14)
    x, dy = (script.rng.integers(-32767, 32768, (64, features)) for _ in range(2))
    script.load("a", 0, x, -14).load("b", 1, dy, -14).fence()
    for rows, group in ((1, 0), (64, 1))[not first :]:
        place = {"rows": rows, "features": features}
        script.run(Op.SUMS, a=0, group=group, mantissa=0, **place)
        script.run(Op.BACK_SUMS, a=0, b=1, gain=0, **place)
        script.run(Op.BACK, a=0, b=1, o=0, gain=0, fresh=1, **place).store(0, rows, features)
    return script


def again():
    """A softmax of large probabilities, then a small gradient, in one slot."""
    script = Script().load("a", 0, np.arange(8).reshape(2, 4), -8).load("b", 0, np.ones((2, 4), int), -60).fence()
    place = {"rows": 2, "features": 4, "o": 0, "fresh": 1}
    script.run(Op.SOFTMAX, a=0, **place, **factor_operands(1.0)).store(0, 2, 4)
    return script.run(Op.SOFTMAX_BACK, a=0, b=0, **place, **factor_operands(1.0)).store(0, 2, 4)


def wrapping():
    """Scores whose powers are so small that their whole parts do not fit."""
    script = Script().load("a", 0, np.array([[0, -256, -512, -9], [777, 265, 521, 6]]), 14).fence()
    script.run(Op.SOFTMAX, a=0, o=0, rows=2, features=4, fresh=1, mantissa=1 << 16, exponent=-16)
    return script.store(0, 2, 4)


def negative():
    """Scores below 0 in fewer lanes than there are."""
    script = Script().load("a", 0, -np.arange(9000, 9006).reshape(2, 3), -8).fence()
    script.run(Op.SOFTMAX, a=0, o=0, rows=2, features=3, fresh=1, **factor_operands(1.0))
    return script.store(0, 2, 3)


def above():
    """A tile whose exponent is above that of the sums is refused: none is done."""
    script = begun(Script()).load("a", 6, np.zeros((1, 8), int), -3).fence()
    script.steps.append(BenchCommand(Op.NORM, sizes({"a": 6, "rows": 1, "features": 16})))
    return script


MUTANTS = {
    (NormLane, "counts-beyond"): flat,
    (NormLane, "rounds-down"): norms,
    (NormLane, "wraps"): limited,
    (NormLane, "wraps-rest"): limited,
    (NormLane, "one-root"): apart,
    (NormLane, "unlimited"): wrapping,
    (NormSums, "mixes-segments"): norms,
    (NormSums, "takes-padding"): negative,
    (NormSums, "beyond"): lambda: few(2, first=False),
    (NormWalk, "unpaced"): lambda: norms(**FORMS["rows of four features"]),
    (NormStatistics, "one-half"): flat,
    (NormStatistics, "keeps-least"): few,
    (NormEngine, "one-gain"): lambda: norms(**FORMS["rows of four tiles"]),
    (NormEngine, "stale"): again,
}


@pytest.mark.skipif(not os.environ.get("GRADLOOM_DEEP"), reason="minutes: GRADLOOM_DEEP=1")
@pytest.mark.parametrize(("unit", "name"), MUTANTS, ids=lambda each: getattr(each, "__name__", each))
def test_mutants_are_found(bench, monkeypatch, unit, name):
    script = MUTANTS[unit, name]()
    script.check(bench)
    if unit is NormEngine:
        broken = mutant(NormEngine, name)(SPEC, CONFIG)
    else:
        monkeypatch.setattr(hardware, unit.__name__, mutant(unit, name))
        broken = NormEngine(SPEC, CONFIG)
    with pytest.raises(AssertionError):
        script.check(EngineBench(SPEC, component=broken))


def test_an_engine_that_looks_at_no_exponents_is_found(bench):
    """It ends a command that this one refuses."""
    assert bench.run(*above().steps).codes == [Error.BAD_OPERAND]
    assert not EngineBench(SPEC, component=mutant(NormEngine, "any-exponent")(SPEC, CONFIG)).run(*above().steps).codes
