"""AdamW on records of gradients: RTL equals the model, alone and in a machine, in the cycles that were forecast."""

import numpy as np
import pytest

from gradloom.program.descent import AdamW
from gradloom.program.placed import PlacedProgram
from gradloom.rtl.engines.update import engine, unit
from gradloom.rtl.engines.update.adamw import AdamLane
from gradloom.rtl.engines.update.codes import GradientCodes
from gradloom.rtl.engines.update.commands import UpdateOpcode
from gradloom.rtl.engines.update.engine import UpdateEngine
from gradloom.rtl.engines.update.parameters import UpdateParameters
from gradloom.rtl.engines.update.spec import SPEC
from gradloom.rtl.engines.update.unit import UpdateUnit
from gradloom.rtl.formats.adamw import gradient_argument
from gradloom.rtl.formats.tiles.codes import WIDE, ZERO
from gradloom.rtl.formats.tiles.records import BEAT, TileRecord
from gradloom.rtl.formats.weights.linear import ACTIVATION, MASTER
from gradloom.rtl.shell.registers.errors import Error
from gradloom.sim.bench.engine import BenchCommand, BenchLoad, BenchStore, EngineBench, pressures
from gradloom.sim.bench.mutants import mutant
from gradloom.sim.reference.update import UpdateModel, adamw
from gradloom.sim.run.machine import MachineRunner

from ...deep import deep
from ..records import beats_of
from .machine import RecordConfig
from .test_engine import moments, operands

CONFIG = RecordConfig()


class Piece:
    """A command on some rows of a record, and the bytes that go through each port."""

    def __init__(self, rng, features, at, rows, *, header=True, plain=False, **changes):
        codes = rng.integers(-32767, 32768, (rows, features)) >> rng.integers(0, WIDE, (rows, features))
        whole = -(-features // 8) * 8
        count = rows * whole
        self.argument = gradient_argument(features, header=header)
        self.opcode = UpdateOpcode.ADAMW_CODES
        self.gradients = TileRecord(rows, features, WIDE).pack(codes, at)[0 if header else BEAT :]
        if plain:
            self.argument, self.opcode = 0, UpdateOpcode.ADAMW
            self.gradients = rng.integers(ACTIVATION.lo, ACTIVATION.hi + 1, count).astype("<i4").tobytes()
        self.words = rng.integers(MASTER.lo, MASTER.hi + 1, count).astype("<i4").tobytes()
        self.moments = moments(rng, 2 * count, signed=False).astype("<u4").tobytes()
        self.beats = count // 8
        self.operands = operands(rng) | {"beats": self.beats} | changes
        if features % 8 == 0:
            self.exact = codes.reshape(-1), at

    def expected(self, model):
        for port, argument, content in (
            ("directions", self.argument, self.gradients),
            ("words", 0, self.words),
            ("moments", 0, self.moments),
        ):
            model.load(port, argument, content)
        model.run(self.opcode, self.operands)
        return {"moments": model.store("moments", 0, 2 * self.beats), "words": model.store("words", 0, self.beats)}


def pieces(seed=0):
    """Records of all widths, in one command and in parts; one of zeros; exponents to both ends; plain words between."""
    rng = np.random.default_rng(seed)
    # Lion, whose sums nearly cancel.
    lion = Piece(rng, 20, -13, 12, sign=1, beta2=100_000, exponent=20, gradient=108)
    fraction, exponent, sign = (rng.integers(0, most, 2 * 12 * 24) for most in (1 << 23, 4, 2))
    lion.moments = (fraction | exponent + 92 << 23 | sign << 31).astype("<u4").tobytes()
    return [
        lion,
        Piece(rng, 20, -13, 3),
        Piece(rng, 8, -17, 5),
        Piece(rng, 1, 0, 2),
        Piece(rng, 20, -13, 2, plain=True),
        Piece(rng, 16, ZERO, 2, gradient=260),
        Piece(rng, 64, -9, 2),
        Piece(rng, 8, 127, 2, gradient=500),
        Piece(rng, 40, -127, 2, gradient=-500),
    ]


def steps_of(some, model):
    steps, words = [], {"moments": [], "words": []}
    for piece in some:
        made = piece.expected(model)
        steps += [
            BenchCommand(piece.opcode, piece.operands),
            BenchLoad("directions", beats_of(piece.gradients), piece.argument),
            BenchLoad("words", beats_of(piece.words)),
            BenchLoad("moments", beats_of(piece.moments)),
            BenchStore("moments", 2 * piece.beats),
            BenchStore("words", piece.beats),
        ]
        for port, content in made.items():
            words[port] += beats_of(content)
    return steps, words


def check(bench, some, **pressure):
    model = UpdateModel()
    steps, words = steps_of(some, model)
    ran = bench.check(*steps, words=words, **pressure)
    assert ran.total("saturated") == model.saturated
    return ran


@pytest.fixture(scope="module")
def bench():
    return EngineBench(SPEC, CONFIG)


@pytest.mark.parametrize("pressure", pressures(120), ids=["free", "stalls", "holds"])
def test_rtl_is_the_model(bench, pressure):
    check(bench, pieces(), **pressure)


def test_a_record_comes_in_parts():
    """What follows the header's rows has the exponent of the last header."""
    rng = np.random.default_rng(4)
    model, bench = UpdateModel(), EngineBench(SPEC, CONFIG)
    first = Piece(rng, 24, -11, 2)
    second = Piece(rng, 24, 55, 3, header=False)
    steps, words = steps_of([first, second], model)
    bench.check(*steps, words=words)
    whole = UpdateModel()
    for each in (first, second):
        each.operands = first.operands | {"beats": each.beats}
    made = [each.expected(whole) for each in (first, second)]
    codes = (
        np.frombuffer((first.gradients + second.gradients)[BEAT:], "<i2")
        .astype(np.int64)
        .reshape(-1, 32)[:, :24]
        .reshape(-1)
    )
    p = np.frombuffer(first.words + second.words, "<i4").astype(np.int64)
    pairs = np.frombuffer(first.moments + second.moments, "<u4").astype(np.int64).reshape(-1, 2, 4)
    rule = {name: value for name, value in first.operands.items() if name != "beats"}
    rule["gradient"] -= 11
    new, m, _, _ = adamw(p, codes << 8, pairs[:, 0].reshape(-1), pairs[:, 1].reshape(-1), **rule)
    assert b"".join(each["words"] for each in made) == new.astype("<i4").tobytes()
    moved = np.frombuffer(b"".join(each["moments"] for each in made), "<u4").reshape(-1, 2, 4)
    np.testing.assert_array_equal(moved[:, 0].reshape(-1), m)


def test_a_command_of_several_records_has_the_exponent_of_each(bench):
    rng = np.random.default_rng(5)
    some = [Piece(rng, 8, exponent, 1) for exponent in (-3, -30, -9, -14)]
    model = UpdateModel()
    for each in some:
        model.load("directions", each.argument, each.gradients)
        model.load("words", 0, each.words)
        model.load("moments", 0, each.moments)
    rule = some[0].operands | {"beats": 4}
    model.run(UpdateOpcode.ADAMW_CODES, rule)
    bench.check(
        BenchCommand(UpdateOpcode.ADAMW_CODES, rule),
        *(BenchLoad("directions", beats_of(each.gradients), each.argument) for each in some),
        BenchLoad("words", beats_of(b"".join(each.words for each in some))),
        BenchLoad("moments", beats_of(b"".join(each.moments for each in some))),
        BenchStore("moments", 8),
        BenchStore("words", 4),
        words={"moments": beats_of(model.store("moments", 0, 8)), "words": beats_of(model.store("words", 0, 4))},
    )


def test_gradients_that_have_no_room_do_not_stop_words(bench):
    """More rows than the queue of gradients holds come before their words."""
    piece = Piece(np.random.default_rng(6), 64, -9, 2 * UpdateEngine.depth // 8 + 1)
    steps, words = steps_of([piece], UpdateModel())
    command, gradients, masters, state, *stores = steps
    # A record's header, what the queue has room for, and a beat more.
    held, first = 1 + UpdateEngine.depth + 1, 200
    bench.check(
        command,
        BenchLoad("directions", gradients.beats[:held], gradients.arg),
        BenchLoad("words", masters.beats[:first]),
        BenchLoad("moments", state.beats[: 2 * first]),
        BenchLoad("directions", gradients.beats[held:], gradient_argument(64, header=False)),
        BenchLoad("words", masters.beats[first:]),
        BenchLoad("moments", state.beats[2 * first :]),
        *stores,
        words=words,
        patience=600,
    )


def test_codes_that_no_quantizer_makes_are_refused(bench):
    codes = np.zeros((2, 8), np.int64)
    codes[1, 7] = -(1 << WIDE - 1)
    content = TileRecord(2, 8, WIDE).pack(codes, 0)
    ran = bench.run(BenchLoad("directions", beats_of(content), gradient_argument(8)))
    assert [(port, beat) for _, port, beat in ran.refused] == [("directions", 2)]
    with pytest.raises(ValueError, match="must be rows of 16 above -32768"):
        UpdateModel().load("directions", gradient_argument(8), content)


@pytest.mark.parametrize(
    ("opcode", "wrong", "code"),
    [
        (UpdateOpcode.ADAMW_CODES, {"beats": 0, "beta2": 1 << 16}, Error.BAD_OPERAND),
        (UpdateOpcode.ADAMW_CODES, {"beats": 1, "beta2": (1 << 16) - 1}, Error.BAD_OPERAND),
        (UpdateOpcode.ADAMW_CODES, {"beats": 1, "beta2": 1 << 16, "eps": 1}, Error.BAD_OPERAND),
        (UpdateOpcode.PACK, {"blocks": 2, "seed": 1}, Error.UNKNOWN_OPCODE),
        (5, {"beats": 1, "beta2": 1 << 16}, Error.UNKNOWN_OPCODE),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused(bench, opcode, wrong, code):
    bench.check(BenchCommand(opcode, wrong), errors=[code])
    with pytest.raises(ValueError, match=r"\d"):
        UpdateModel().run(opcode, wrong)


def test_records_need_beats_of_256_bits():
    with pytest.raises(ValueError, match="edge=32: must be 64 with records=1"):
        UpdateParameters(records=1, edge=32)


def test_a_step_is_that_of_adamw_on_values():
    """Words have eight fraction bits more than codes."""
    rng = np.random.default_rng(8)
    rule = AdamW(lr=1e-3)
    piece = Piece(rng, 8, -19, 4, **rule.operands(1, 8, 20))
    piece.moments = bytes(len(piece.moments))
    piece.words = bytes(len(piece.words))
    made = np.frombuffer(piece.expected(UpdateModel())["words"], "<i4") * 2.0**-20
    codes, exponent = piece.exact
    g = codes * 2.0**exponent
    np.testing.assert_allclose(made, -1e-3 * g / (np.abs(g) + 1e-8), atol=2.0**-20)


class Program(PlacedProgram):
    """Pieces one after another; loads of the next go on beside a command."""

    def __init__(self, seed, config=CONFIG):
        super().__init__(config)
        rng, model = np.random.default_rng(seed), UpdateModel()
        self.results, self.model = [], model
        for number in range(12):
            features = int(rng.integers(1, 65))
            rows = int(rng.integers(1, 1 + min(127 // -(-features // 8), 64)))
            piece = Piece(rng, features, int(rng.integers(-30, 0)), rows, plain=number % 4 == 3)
            made = piece.expected(model)
            for port, content, argument in (
                ("directions", piece.gradients, piece.argument),
                ("words", piece.words, 0),
                ("moments", piece.moments, 0),
            ):
                self.load(self.put(np.frombuffer(content, "<i4")), "update", port, arg=argument)
            self.do("update", piece.opcode, **piece.operands)
            for port, content in made.items():
                place = self.room(len(content) // 4)
                self.store(place, "update", port)
                self.results.append((place, content))
        self.end()


@pytest.mark.parametrize(
    "memory",
    [
        {},
        {"read_latency": 3, "write_latency": 1},
        {"read_latency": 150, "write_latency": 600},
        {"read_latency": 90, "port_reads": 3},
    ],
    ids=str,
)
def test_memory_and_cycles_are_those_of_the_models(memory):
    programs = [Program(seed) for seed in range(3)]
    with MachineRunner.simulated(CONFIG, timing=memory) as machine:
        for program in programs:
            ran = machine.run(program)
            for place, expected in program.results:
                assert machine.read(place.offset, place.length) == expected
            ran.check(saturated=program.model.saturated)


MUTANTS = {
    "accepts": GradientCodes,
    "whole-beats": GradientCodes,
    "counts-zeros": GradientCodes,
    "beside": UpdateUnit,
    "blocks": UpdateUnit,
    "command-alone": UpdateEngine,
    "ahead": UpdateEngine,
    "adds": AdamLane,
}
_CASES = {
    "accepts": test_codes_that_no_quantizer_makes_are_refused,
    "ahead": test_a_command_of_several_records_has_the_exponent_of_each,
    "blocks": test_gradients_that_have_no_room_do_not_stop_words,
}


@deep
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_found(monkeypatch, name):
    kind = MUTANTS[name]
    broken = mutant(kind, name)
    if kind is not UpdateUnit:
        monkeypatch.setattr(engine if kind is AdamLane else unit, kind.__name__, broken)
    component = (broken if kind is UpdateUnit else UpdateUnit)(SPEC, CONFIG)
    bench = EngineBench(SPEC, component=component)
    with pytest.raises(AssertionError):
        _CASES.get(name, lambda bench: check(bench, pieces(), patience=300))(bench)
