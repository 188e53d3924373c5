"""The norm engine alone: RTL equals the model word for word, under stalls and long holds, and its cycles."""

import numpy as np
import pytest

from gradloom.rtl.engines.norm.engine import NormEngine
from gradloom.rtl.formats.tiles.codes import ZERO
from gradloom.rtl.formats.tiles.norm import NormOpcode as Op
from gradloom.sim.bench.engine import BenchCommand, pressures
from gradloom.sim.time.norm import norm_cycles

from ...deep import deep
from .programs import FORMS, limited, norms, softmaxes
from .script import EPS_OPERANDS, Script, factor_operands

HOLD = 60
STALLS, HOLDS = pressures(HOLD)[1:]


#: Forms that others have in them, or that run under pressure.
ALSO = ("groups of 4", "rows of four tiles", "groups of two beats, four tiles", "64 keys", "all rows", "usual")


def forms(known):
    return [pytest.param(each, marks=deep if each in ALSO else ()) for each in known]


@pytest.mark.parametrize("form", forms(FORMS))
def test_norms_are_the_models_in_every_form(bench, form):
    norms(**FORMS[form]).check(bench)


@pytest.mark.parametrize(
    ("form", "pressure"), [("groups of 4", STALLS), ("rows of four tiles", HOLDS)], ids=["groups", "rows"]
)
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


#: Without GRADLOOM_DEEP=1.
ENDS = ("apart", "at the ends", "all of zeros", "far above eps", "no eps", "a large bias", "nothing", "least")


@pytest.mark.parametrize("name", [pytest.param(each, marks=() if each in ENDS else deep) for each in EXPONENTS])
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


@pytest.mark.parametrize("form", forms(SOFTMAXES))
def test_softmaxes_are_the_models_in_every_form(bench, form):
    softmaxes(**SOFTMAXES[form]).check(bench)


@pytest.mark.parametrize("pressure", [STALLS, HOLDS], ids=["stalls", "holds"])
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


def test_what_does_not_belong_to_its_sums_is_limited_and_counted(bench):
    limited().check(bench)


def test_cycles(bench):
    """A beat a cycle; four at least for a row that is added up, and 16 for a column of groups."""
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
    commands = [each for each in script.steps if isinstance(each, BenchCommand)]
    # The last SUMS had groups of rows.
    by_rows = [False] * 4 + [True] * 2
    assert took == [norm_cycles(each.opcode, each.operands, by_row, 16) for each, by_row in zip(commands, by_rows)]
    ready, settle, finish = NormEngine.ready, NormEngine.settle(16), NormEngine.finish
    columns = NormEngine.settle(16, columns=True)
    assert columns == settle + 12
    assert took == [
        ready + 2 + 128 + columns,
        ready + 1 + 64 + finish,
        ready + 2 + 128 + columns,
        ready + 1 + 64 + finish,
        ready + 2 + 4 * 4 + 2 + settle,
        ready + 1 + 2 * (6 * 4 + 2 + settle + NormEngine.again) + 14 + finish,
    ]
