"""What the norm engine and its model refuse, and what they take at the ends."""

import numpy as np
import pytest

from gradloom.rtl.engines.norm.spec import SPEC
from gradloom.rtl.formats.tiles.codes import WIDE
from gradloom.rtl.formats.tiles.norm import NormOpcode as Op
from gradloom.rtl.formats.tiles.records import TileRecord, tile_argument
from gradloom.rtl.shell.registers.errors import Error
from gradloom.sim.bench.engine import FENCE, BenchCommand, BenchLoad, BenchStore

from ...deep import DEEP
from .programs import begun
from .script import EPS_OPERANDS, Script, beats_of, factor_operands, sizes

GOOD = {
    Op.SUMS: {"a": 6, "tiles": 2, "rows": 2, "a_row": 62, "features": 48, "group": 4, **EPS_OPERANDS},
    Op.NORM: {"a": 7, "o": 3, "rows": 2, "features": 32, "a_row": 62, "o_row": 62},
    Op.BACK_SUMS: {"a": 6, "b": 6, "tiles": 2, "rows": 2, "features": 48, "gain": 31},
    Op.BACK: {"a": 7, "b": 7, "o": 3, "rows": 64, "features": 64},
    Op.SOFTMAX: {"a": 7, "o": 3, "rows": 64, "features": 64, "exponent": 1023},
    Op.SOFTMAX_BACK: {"a": 6, "b": 7, "o": 3, "rows": 64, "features": 64, "exponent": 511},
    Op.LARGEST: {"a": 6, "tiles": 2, "rows": 64, "features": 3},
    Op.POWERS: {"a": 6, "tiles": 2, "rows": 64, "features": 64, "exponent": -1024},
    Op.SHARES: {"a": 7, "o": 3, "rows": 64, "features": 64, "exponent": 1023},
    Op.PULLS: {"a": 6, "b": 6, "tiles": 2, "rows": 2, "a_row": 62, "features": 1},
    Op.SOFT_BACK: {"a": 6, "b": 7, "o": 3, "rows": 64, "features": 64, "exponent": -512},
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
    (Op.LARGEST, {"tiles": 3}),
    (Op.LARGEST, {"a_row": 1}),
    (Op.POWERS, {"a": 7}),
    (Op.POWERS, {"a_row": 1}),
    (Op.SHARES, {"a": 8}),
    (Op.SHARES, {"o": 4}),
    (Op.SHARES, {"o_row": 1}),
    (Op.PULLS, {"a": 7}),
    (Op.PULLS, {"b": 7}),
    (Op.PULLS, {"a_row": 63}),
    (Op.SOFT_BACK, {"b": 8}),
    (Op.SOFT_BACK, {"o": 4}),
    (Op.SOFT_BACK, {"exponent": 512}),
]


#: What an opcode needs besides SUMS.
FIRST = {Op.POWERS: [Op.LARGEST], Op.SHARES: [Op.LARGEST, Op.POWERS], Op.SOFT_BACK: [Op.PULLS]}


def before(opcode):
    """What its commands follow, of tiles of zeros."""
    script = begun(Script())
    for each in FIRST.get(opcode, ()):
        script.run(each, **GOOD[each]).fence()
    return script


def commands(script):
    return sum(isinstance(each, BenchCommand) for each in script.steps)


@pytest.mark.parametrize(("opcode", "wrong"), WRONG, ids=str)
def test_bad_operands_are_refused_by_the_model(opcode, wrong):
    with pytest.raises(ValueError, match="BAD_OPERAND"):
        before(opcode).model.run(opcode, sizes(GOOD[opcode] | wrong))


#: A third of them, of each opcode; all with GRADLOOM_DEEP=1.
@pytest.mark.parametrize(("opcode", "wrong"), WRONG if DEEP else WRONG[::3], ids=str)
def test_bad_operands_are_refused(bench, opcode, wrong):
    """And the engine goes on after it."""
    script, operands = before(opcode), sizes(GOOD[opcode] | wrong)
    ran = bench.run(*script.steps, BenchCommand(opcode, operands), FENCE, BenchCommand(Op.SOFTMAX, {"rows": 1}))
    assert ran.codes == [Error.BAD_OPERAND] and len(ran.done) == commands(script) + 1


def test_operands_at_their_ends_are_taken(bench):
    for opcode, operands in GOOD.items():
        before(opcode).run(opcode, **operands).check(bench)
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
    bench.check(BenchCommand(11, {}), errors=[Error.UNKNOWN_OPCODE])


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
            raw = b"".join(each.to_bytes(32, "little") for each in content)
            Script().model.load(port, tile_argument(slot, rows, 8), raw)


def test_gains_have_one_row(bench):
    beats = beats_of(TileRecord(2, 8, WIDE).pack(np.zeros((2, 8)), 0))
    assert bench.run(BenchLoad("gain", beats, tile_argument(0, 2, 8))).refused
    with pytest.raises(ValueError, match="2 rows"):
        Script().model.load("gain", tile_argument(0, 2, 8), bytes(96))


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


def test_operands_may_be_forwarded_and_gains_may_not():
    assert {port.name: port.forwards for port in SPEC.loads} == {"a": True, "b": True, "gain": False}
