"""Mutants of the norm engine are found by the programs of its bench."""

import os

import pytest

from gradloom.rtl.engines.norm import engine as hardware
from gradloom.rtl.engines.norm import sums
from gradloom.rtl.engines.norm.engine import NormEngine
from gradloom.rtl.engines.norm.lane import NormLane
from gradloom.rtl.engines.norm.rows import NormRows
from gradloom.rtl.engines.norm.spec import SPEC
from gradloom.rtl.engines.norm.statistics import NormStatistics
from gradloom.rtl.engines.norm.sums import NormSums
from gradloom.rtl.engines.norm.walk import NormWalk
from gradloom.rtl.formats.tiles.norm import NormOpcode as Op
from gradloom.rtl.shell.registers.errors import Error
from gradloom.sim.bench.engine import EngineBench
from gradloom.sim.bench.mutants import mutant

from .programs import FORMS, above, again, apart, few, flat, limited, negative, norms, wrapping
from .script import CONFIG
from .wide import beyond, gradient, results, softmax

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
    (NormSums, "all-lanes"): few,
    (NormLane, "shorter"): softmax,
    (NormWalk, "unpaced"): lambda: norms(**FORMS["rows of four features"]),
    (NormStatistics, "one-half"): flat,
    (NormStatistics, "keeps-least"): few,
    (NormEngine, "one-gain"): lambda: norms(**FORMS["rows of four tiles"]),
    (NormEngine, "stale"): again,
    (NormLane, "rounds-twice"): lambda: softmax((2, 1), rows=12, at=(-14, -12, -11), bits=(16, 12, 10), factor=1e6),
    (NormWalk, "ragged"): softmax,
    (NormRows, "forgets"): lambda: softmax((1, 1)),
    (NormEngine, "stays"): lambda: gradient((1, 1, 1), at=(-24, -18, -12)),
    (NormEngine, "all-bits"): results,
    (NormEngine, "same-unit"): lambda: results(back_at=(-20, 3)),
    (NormEngine, "of-gradients"): lambda: results(back_at=(-60, -43)),
}


@pytest.mark.skipif(not os.environ.get("GRADLOOM_DEEP"), reason="minutes: GRADLOOM_DEEP=1")
@pytest.mark.parametrize(("unit", "name"), MUTANTS, ids=lambda each: getattr(each, "__name__", each))
def test_mutants_are_found(bench, monkeypatch, unit, name):
    script = MUTANTS[unit, name]()
    script.check(bench)
    if unit is NormEngine:
        broken = mutant(NormEngine, name)(SPEC, CONFIG)
    else:
        monkeypatch.setattr(sums if unit is NormRows else hardware, unit.__name__, mutant(unit, name))
        broken = NormEngine(SPEC, CONFIG)
    with pytest.raises(AssertionError):
        script.check(EngineBench(SPEC, component=broken))


def test_an_engine_that_counts_no_tiles_of_a_row_is_found(bench):
    """It goes on with rows that this one refuses."""
    steps = beyond(Op.POWERS).steps
    assert bench.run(*steps).codes == [Error.BAD_OPERAND]
    assert not EngineBench(SPEC, component=mutant(NormEngine, "wraps-rows")(SPEC, CONFIG)).run(*steps).codes


def test_an_engine_that_looks_at_no_exponents_is_found(bench):
    """It ends a command that this one refuses."""
    assert bench.run(*above().steps).codes == [Error.BAD_OPERAND]
    assert not EngineBench(SPEC, component=mutant(NormEngine, "any-exponent")(SPEC, CONFIG)).run(*above().steps).codes
