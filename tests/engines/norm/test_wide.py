"""Softmaxes of rows of several tiles: RTL equals the model, under stalls and long holds, and its cycles."""

import numpy as np
import pytest

from gradloom.rtl.engines.norm.engine import NormEngine
from gradloom.rtl.formats.tiles.codes import EDGE
from gradloom.rtl.formats.tiles.norm import ROW_TILES
from gradloom.rtl.formats.tiles.norm import NormOpcode as Op
from gradloom.rtl.shell.registers.errors import Error
from gradloom.sim.bench.engine import FENCE, BenchCommand, pressures

from ...deep import deep
from .script import Script, factor_operands, sizes
from .wide import FORMS, beyond, gathered, gradient, longest, results, softmax

STALLS, HOLDS = pressures(60)[1:]
#: Without GRADLOOM_DEEP=1.
SOME = ("two tiles, few keys", "all slots", "three commands", "rising exponents", "exponents at their ends")


def forms():
    return [pytest.param(each, marks=() if each in SOME else deep) for each in FORMS]


@pytest.mark.parametrize("form", forms())
def test_softmaxes_are_the_models_in_every_form(bench, form):
    softmax(**FORMS[form]).check(bench)


@pytest.mark.parametrize("parts", [pytest.param((1,), marks=deep), (8,), (1, 2, 3), pytest.param((1,) * 6, marks=deep)])
def test_gradients_are_the_models_in_every_form(bench, parts):
    gradient(parts).check(bench)


GRADIENTS = {
    "rising": {"at": (-24, -18, -12), "back_at": (-30, -24, -20), "parts": (1, 1, 1)},
    "at the ends": {"at": (-127, -8, -128), "back_at": (127, -128, -127), "parts": (1, 1, 1), "bits": (8,)},
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_all_exponents(bench, name):
    gradient(**GRADIENTS[name]).check(bench)


#: Exponents of probabilities' gradients far below and above those of the sums of results and theirs; short shares.
RESULTS = {
    "near": {},
    "larger pulls": {"back_at": (-60, -43)},
    "larger gradients": {"back_at": (-20, 3), "heads": ((0, 5, 1, 63), (1, 6, 0, 22))},
    "all the largest": {"heads": ((2, 7, 0, 64),), "bits": (0,)},
}


@pytest.mark.parametrize("name", RESULTS)
def test_gradients_with_pulls_of_results(bench, name):
    script = results(**RESULTS[name])
    script.check(bench)
    assert script.model.clipped == 0


@pytest.mark.parametrize("pressure", [STALLS, HOLDS], ids=["stalls", "holds"])
def test_both_are_the_models_under_pressure(bench, pressure):
    softmax((2, 1), rows=3).check(bench, **pressure)
    gradient((2, 1), rows=3).check(bench, **pressure)
    results().check(bench, **pressure)


@pytest.mark.parametrize("opcode", [Op.POWERS, Op.PULLS])
def test_the_longest_rows_do_not_wrap(bench, opcode):
    """And no tile goes on with them."""
    script = longest(opcode)
    script.check(bench)
    assert script.model.saturated == 0
    if opcode == Op.POWERS:
        assert abs(script.model.so_far[0] / 2**27 - ROW_TILES * EDGE) < 1
    else:
        assert script.model.so_far[0] == ROW_TILES * EDGE * 32767**2
    script = beyond(opcode)
    operands = script.steps[-1].operands
    with pytest.raises(ValueError, match="must be|tiles of a row"):
        script.model.run(opcode, operands)
    ran = bench.run(*script.steps, FENCE, BenchCommand(Op.LARGEST, sizes({"rows": 1, "features": 1})))
    assert ran.codes == [Error.BAD_OPERAND]
    assert len(ran.done) == sum(isinstance(each, BenchCommand) for each in script.steps)


def test_cycles(bench):
    """Tiles in front of the last have all their beats; a row takes four cycles at least, but the last one."""
    script = Script()
    for port in "ab":
        for slot in range(3):
            script.load(port, slot, script.codes(7, 64), -20)
    script.fence()
    place, factor = {"a": 0, "rows": 7}, factor_operands(1.0)
    script.run(Op.LARGEST, tiles=3, features=9, **place)
    script.run(Op.POWERS, tiles=1, features=9, **place, **factor)
    script.run(Op.SHARES, features=9, fresh=1, **place, **factor)
    script.run(Op.PULLS, b=0, tiles=2, features=64, **place)
    script.run(Op.SOFT_BACK, b=0, features=17, fresh=1, **place, **factor)
    ran = script.check(bench)
    took = [done - start for start, done in zip(ran.started, ran.done)]
    ready, settle, finish = NormEngine.ready, NormEngine.settle(16), NormEngine.finish
    assert took == [
        ready + 3 + 7 * 9 + settle,
        ready + 1 + 6 * 4 + 1 + settle,
        ready + 1 + 7 + finish,
        ready + 2 + 7 * 8 + settle,
        ready + 1 + 14 + finish,
    ]


#: Gathered of tiles with the exponent -20, then a tile with another.
ABOVE = [(Op.POWERS, "a", -19, -20), (Op.SHARES, "a", -19, -20), (Op.SOFTMAX_BACK, "a", -7, -8)]
_BEFORE = {Op.POWERS: [Op.LARGEST], Op.SHARES: [Op.LARGEST, Op.POWERS], Op.SOFTMAX_BACK: []}


@pytest.mark.parametrize(("opcode", "port", "exponent", "taken"), ABOVE)
def test_exponents_above_those_that_were_gathered_are_refused(bench, opcode, port, exponent, taken):
    """Of the second of two tiles, where a command reads two."""
    tiles, number = (2, 6) if opcode in (Op.POWERS, Op.PULLS) else (1, 5)
    place, factor = {"a": 5, "b": 5, "rows": 2, "features": 8}, factor_operands(1.0)
    for at in (exponent, taken):
        script = Script()
        for each in "ab":
            for slot in (5, 6):
                script.load(each, slot, script.codes(2, 64), -20)
        script.fence()
        for rule in _BEFORE[opcode]:
            own = {} if rule == Op.PULLS else factor
            script.run(rule, tiles=2, **place, **own)
        script.fence().load(port, number, np.zeros((2, 64), int), at).fence()
        if at == taken:
            script.run(opcode, tiles=tiles, **place, **factor).check(bench)
            continue
        operands = sizes({"tiles": tiles, **place, **factor})
        with pytest.raises(ValueError, match="BAD_OPERAND"):
            script.model.run(opcode, operands)
        ran = bench.run(*script.steps, BenchCommand(opcode, operands))
        assert ran.codes == [Error.BAD_OPERAND]


def test_the_model_refuses_what_was_not_gathered():
    place = sizes({"a": 0, "rows": 1, "features": 1})
    model = Script().model
    for opcode in (Op.POWERS, Op.SHARES, Op.SOFT_BACK):
        with pytest.raises(ValueError, match="must be what was gathered last"):
            model.run(opcode, place | factor_operands(1.0))
    model.run(Op.PULLS, place)
    with pytest.raises(ValueError, match="more=1"):
        model.run(Op.LARGEST, place | {"more": 1})
    model.run(Op.LARGEST, place)
    model.run(Op.SUMS, place)
    with pytest.raises(ValueError, match="must be what was gathered last"):
        model.run(Op.POWERS, place)


def test_a_softmax_of_one_tile_is_that_of_its_passes():
    """Word for word, with exponents below the least of other tiles too."""
    for at in (-128, -20, 3):
        made = []
        for passes in ([Op.SOFTMAX], [Op.LARGEST, Op.POWERS, Op.SHARES]):
            script = Script(1).load("a", 0, Script(2).codes(9, 33), at)
            for opcode in passes:
                script.run(opcode, a=0, rows=9, features=33, fresh=1, **factor_operands(0.7))
            made.append(script.store(0, 9, 33).expected)
        assert made[0] == made[1]


def test_parts_of_a_row_make_no_difference():
    """Neither what a command reads nor their order does, whatever the exponents are."""
    for at in ((-12, -14, -11, -13, -10, -9), (-9, -12, -12, -15, -40), (-14,)):
        made = []
        for parts in ((6,), (1, 2, 3), (4, 2), (1,) * 6):
            script = Script(3)
            for n in range(6):
                script.load("a", n, script.codes(4, 64) >> n, at[n % len(at)])
            for turned, opcode in enumerate((Op.LARGEST, Op.POWERS)):
                place = {"rows": 4, "slots": {"a": 0}, **factor_operands(0.1)}
                gathered(script, opcode, parts, 20, turned=bool(turned), **place)
            for n in range(6):
                script.run(Op.SHARES, a=n, o=0, rows=4, features=20, fresh=1, **factor_operands(0.1)).store(0, 4, 20)
            made.append(script.expected)
        assert all(each == made[0] for each in made)
