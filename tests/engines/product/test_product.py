"""The product engine beside its reference: words, cycles, errors."""

import numpy as np
import pytest

from gradloom.compiler.estimate.products import ShapedProduct as Of
from gradloom.rtl.engines.product.spec import SPEC
from gradloom.rtl.formats.tiles.codes import NARROW, WIDE, ZERO
from gradloom.rtl.formats.tiles.pixels import Pixels
from gradloom.rtl.formats.tiles.product import ProductOpcode
from gradloom.rtl.formats.tiles.records import BEAT, TileRecord, tile_argument
from gradloom.rtl.shell.registers.errors import Error
from gradloom.sim.bench.engine import FENCE, BenchCommand, BenchLoad, BenchStore, EngineBench, pressures
from gradloom.sim.bench.mutants import mutant
from gradloom.sim.reference.product import ProductModel
from gradloom.sim.run.machine import MachineRunner
from gradloom.sim.time.forecast import MODELS, forecast
from gradloom.sim.time.product import ProductTime
from gradloom.systems.diffusion.dataflows import DataflowArray, exposed_weight

from ...deep import deep
from ..forwarding import CONFIG
from ..records import beats_of
from .machine import ProductConfig
from .play import Play, Stepped, convolved

SCAN, PRODUCT, BIAS = ProductOpcode.SCAN, ProductOpcode.PRODUCT, ProductOpcode.BIAS


def plain(play):
    play.load("x", 0).load("w", 0).fence().run(PRODUCT, fresh=1, start=1, last=1).store().store(wide=False)


def transposed(play):
    play.load("x", 3).load("w", 5).fence()
    for n, (x_turn, w_turn) in enumerate(((0, 1), (1, 0), (1, 1))):
        play.run(PRODUCT, x=3, w=5, x_turn=x_turn, w_turn=w_turn, fresh=1, start=1, last=1, o=n)
    for n in range(3):
        play.store(n)


def several(play):
    """Three tiles of K of exponents far apart, the last of 20 indices; a bias; an adapter's product of 8."""
    play.load("x", 0, exponent=-3).load("x", 1, exponent=2).load("x", 2, rows=64, features=20, exponent=-20)
    play.load("w", 0, count=2).load("w", 2, rows=20, exponent=1).load("x", 7, features=8).load(
        "w", 7, rows=64, features=8
    )
    play.load("bias", 9, rows=1).fence()
    parts = {"x_step": 1, "w_step": 1, "tiles": 2, "k_to": 19}, {"x": 7, "w": 7, "k_to": 7, "w_turn": 1}
    play.run(SCAN, fresh=1, **parts[0]).run(SCAN, **parts[1]).run(SCAN, bias=9, last=1)
    play.run(BIAS, bias=9, start=1).run(PRODUCT, **parts[0]).run(PRODUCT, last=1, **parts[1])
    play.store().store(wide=False)


def positive(play):
    """Sums of several commands of which those below 0 are not kept; a bias alone; columns that keep their signs.

    The largest sum is far below 0: the tile's exponent is of those above.
    """
    play.load("x", 0, count=2).load("w", 0, count=2).load("bias", 3, rows=1, exponent=-2, most=9)
    codes = np.where(np.arange(64) % 8, 1, -127)
    play.put_codes("w", 2, np.tile(codes, (64, 1)), -7).put_codes("x", 2, np.full((64, 64), 100), -7).fence()
    deep = {"x_step": 1, "w_step": 1, "tiles": 1}
    play.run(SCAN, fresh=1, **deep).run(SCAN, bias=3, last=1)
    play.run(BIAS, bias=3, start=1, positive=1).run(PRODUCT, last=1, positive=1, **deep)
    play.run(PRODUCT, x=2, w=2, o=1, fresh=1, start=1, last=1, positive=1)
    # The left columns come last: they leave those behind them alone.
    play.run(SCAN, fresh=1, last=1, bias=3, o=2).run(BIAS, bias=3, start=1, last=1, o=2, o_column=40, columns=23)
    play.run(SCAN, last=1, bias=3, o=2).run(BIAS, bias=3, start=1, last=1, positive=1, columns=39, o=2)
    for o in range(3):
        play.store(o).store(o, wide=False)


def heads(play):
    """Scores of two heads and two images of 16 rows; then what they mix, side by side in one tile."""
    play.load("x", 0).load("w", 0).fence()
    for n in range(2):
        for image in range(2):
            play.run(
                PRODUCT, fresh=1, start=1, last=1, o=2 * n + image, x_row=16 * image, rows=15, w_column=16 * image,
                columns=15, k_from=24 * n, k_to=24 * n + 23, w_turn=1,
            )  # fmt: skip
    for n in range(4):
        play.store(n, 16, 16)
    play.load("x", 4, 16, 16, count=4, most=40).fence()
    every = [
        {"x": 4 + 2 * n + image, "rows": 15, "o_row": 16 * image, "w_row": 16 * image, "k_to": 15, "o_column": 24 * n,
         "w_column": 24 * n, "columns": 23, "o": 1}
        for n in range(2) for image in range(2)
    ]  # fmt: skip
    for n, each in enumerate(every):
        play.run(SCAN, fresh=n == 0, **each)
    for each in every:
        play.run(PRODUCT, start=1, last=1, **each)
    play.store(1, 32, 48).store(1, 32, 48, wide=False)


def exposed(play):
    """Loads that are exposed beside those that are hidden, in commands of one row, of many, and behind a bias."""
    play.load("x", 0, count=3).load("w", 0, count=3).load("bias", 0, rows=1).fence()
    for o, (wait, rows) in enumerate(((47, 63), (1, 0), (63, 30), (10, 7))):
        place = {"rows": rows, "columns": 40, "o": o}
        deep = {"x_step": 1, "w_step": 1, "tiles": 2, "k_from": 5, "k_to": 20}
        play.run(SCAN, fresh=1, **place, **deep).run(SCAN, x=2, **place).run(SCAN, bias=0, last=1, **place)
        play.run(BIAS, start=1, bias=0, **place).run(PRODUCT, exposed=wait, **place, **deep)
        play.run(PRODUCT, x=2, last=1, exposed=wait * (o % 2), **place)
    for o, rows in enumerate((64, 1, 31, 8)):
        play.store(o, rows, 41)


def late(play):
    """Products that begin behind the first rows of an array that takes a tile in parts: alone, and in two tiles."""
    play.load("x", 0, count=2).load("w", 0, count=2).load("bias", 0, rows=1).fence()
    two = {"x_step": 1, "w_step": 1, "tiles": 1, "k_from": 33, "k_to": 9}
    for o, operands in enumerate(({"k_from": 32, "k_to": 36}, {"k_from": 40}, two)):
        play.run(SCAN, fresh=1, o=o, **operands).run(SCAN, bias=0, last=1, o=o)
        play.run(BIAS, bias=0, start=1, o=o).run(PRODUCT, last=1, o=o, **operands)
    for o in range(3):
        play.store(o)


CASES = {
    "plain": plain,
    "late": late,
    "exposed": exposed,
    "transposed": transposed,
    "several": several,
    "positive": positive,
    "heads": heads,
    "convolution": lambda play: convolved(play, Pixels(2, (8, 8), (8, 8)), 64),
    "tall convolution": lambda play: convolved(play, Pixels(1, (16, 16), (16, 16)), 64),
    "stride 2": lambda play: convolved(play, Pixels(1, (8, 8), (16, 16), (2, 2)), 0),
    "stride 2 back": lambda play: convolved(play, Pixels(1, (16, 16), (8, 8), (2, 2), True, True), 128, back=1),
    "upsampled": lambda play: convolved(play, Pixels(1, (16, 16), (8, 8), (2, 2), True), 192),
    "small images": lambda play: convolved(play, Pixels(8, (4, 4), (4, 4)), 64),
    "part of a tile of K": lambda play: convolved(
        play, Pixels(2, (8, 8), (8, 8)), 0, count=2, x_pitch=2, x_step=1, w_step=0, tiles=1, k_to=39
    ),
    "lines of 7": lambda play: convolved(play, Pixels(4, (5, 7), (5, 7)), 64),
    "sequence": lambda play: convolved(
        play, Pixels(2, (1, 119), (1, 245), (1, 2)), 100, (1, 7), (0, 1), (1, 2), count=5, rows=60
    ),
    "stride 3 back": lambda play: convolved(
        play, Pixels(3, (10, 13), (4, 3), (3, 4), True, True), 128, (4, 5), (1, 2), (2, 3), back=1
    ),
    "zeros": lambda play: play.load("x", 0, exponent=ZERO, most=0 or None).load("w", 0).fence()
    .run(PRODUCT, fresh=1, start=1, last=1).store(),
    "few rows": lambda play: play.load("x", 0).load("w", 0).load("bias", 1, rows=1).fence()
    .run(PRODUCT, fresh=1, start=1, last=1, o=1, rows=19, columns=15).run(SCAN, fresh=1, last=1, bias=1)
    .run(BIAS, start=1, bias=1, rows=0, columns=15).run(BIAS, bias=1, rows=0, columns=15, last=1)
    .store(0, 1, 16).store(1, 20, 16),
}  # fmt: skip


MEMORY = (
    {},
    {"read_latency": 3, "write_latency": 1},
    {"read_latency": 150, "write_latency": 600},
    {"read_latency": 90, "port_reads": 3},
)


def played(name, seed=0, config=CONFIG):
    play = Play(seed, config)
    CASES[name](play)
    assert any(any(content[BEAT:]) for _, content in play.expected) or name == "zeros"
    play.end()
    return play


def compared(machine, play):
    """Records of memory, and cycles of every command."""
    ran = machine.run(play)
    for place, content in play.expected:
        found = machine.read(place.offset, place.length)
        assert found == content, f"{play.expected.index((place, content))}: a record differs"
    ran.check(saturated=play.model.saturated, underflowed=play.model.underflowed)


@pytest.mark.parametrize("memory", MEMORY, ids=str)
def test_records_and_cycles_are_those_of_the_reference(monkeypatch, memory):
    monkeypatch.setitem(MODELS, "product", ProductTime)
    plays = [played(name) for name in CASES]
    with MachineRunner.simulated(CONFIG, timing=memory) as machine:
        for play in plays:
            compared(machine, play)


@deep
@pytest.mark.parametrize("memory", [{"read_latency": 3}], ids=str)
def test_random_programs_on_the_largest_array(monkeypatch, memory):
    """Two passes of one part; products in a row of which none waits for the one before."""
    monkeypatch.setitem(MODELS, "product", ProductTime)
    config = ProductConfig(array_rows=64, array_columns=32, x_slots=4, w_slots=4)
    play = Play(7, config)
    play.load("x", 0, count=4).load("w", 0, count=4).load("bias", 0, rows=1).load("bias", 1, rows=1).fence()
    for _ in range(3):
        for o in range(4):
            x, w, rows, columns, low = (int(n) for n in play.random.integers(0, (4, 4, 64, 64, 64)))
            place = {"o": o, "rows": rows, "columns": columns, "k_from": low, "x": x, "w": w}
            kind = int(play.random.integers(3))
            if kind:
                play.run(SCAN, fresh=1, **place).run(SCAN, last=1, bias=o % 2)
                play.run(BIAS, start=1, bias=o % 2, **place | {"last": int(kind == 1)})
                if kind == 2:
                    play.run(PRODUCT, last=1, **place)
            else:
                play.run(PRODUCT, fresh=1, start=1, last=1, **place)
            play.shape = getattr(play, "shape", {}) | {o: (rows + 1, columns + 1)}
        for o in range(4):
            play.store(o, *play.shape[o], wide=bool(o % 2))
    play.end()
    with MachineRunner.simulated(config, timing=memory) as machine:
        compared(machine, play)


@pytest.fixture(scope="module")
def bench():
    return EngineBench(SPEC, ProductConfig(array_rows=16, array_columns=16, x_slots=2, w_slots=2))


PLAIN = {"k_to": 63, "rows": 3, "columns": 7, "fresh": 1, "start": 1, "last": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"x": 2},
        {"w": 2},
        {"tiles": 1, "x_step": 2},
        {"tiles": 2, "w_step": 1},
        {"o_row": 61},
        {"o_column": 57},
        {"k_from": 40, "k_to": 39},
        {"gather": 1, "reach": 2, "x_pitch": 1},
        {"gather": 1, "x_turn": 1},
        {"gather": 1, "x_row": 1},
        {"gather": 1, "column": 1},
        {"gather": 1, "line": 1},
        {"gather": 1, "source": 64},
    ],
    ids=str,
)
def test_operands_out_of_range_are_an_error(bench, wrong):
    run = bench.run(BenchCommand(PRODUCT, PLAIN | wrong))
    assert run.codes == [Error.BAD_OPERAND] and not run.done


def test_an_unknown_opcode_is_an_error(bench):
    assert bench.run(BenchCommand(3, PLAIN)).codes == [Error.UNKNOWN_OPCODE]


def test_a_bias_needs_no_tiles(bench):
    assert len(bench.check(BenchCommand(BIAS, PLAIN | {"x": 60, "w": 60, "k_to": 0, "k_from": 1})).done) == 1


@pytest.mark.parametrize("pressure", pressures(400)[1:], ids=str)
def test_records_are_the_same_under_stalls(bench, pressure):
    random, model = np.random.default_rng(3), ProductModel(bench.component.config)
    steps, words = [], []

    for port, rows in (("x", 40), ("w", 64)):
        record = TileRecord(rows, 16)
        content = record.pack(random.integers(-127, 128, (rows, 16)), -5)
        model.load(port, tile_argument(1, rows, 16), content)
        steps.append(BenchLoad(port, beats_of(content), tile_argument(1, rows, 16)))
    operands = PLAIN | {"x": 1, "w": 1, "k_to": 39, "x_turn": 1, "rows": 15, "columns": 15}
    model.run(PRODUCT, operands)
    steps += [FENCE, BenchCommand(PRODUCT, operands), FENCE]
    for wide in (True, False):
        record = TileRecord(16, 16, WIDE if wide else NARROW)
        arg = tile_argument(0, 16, 16, wide=wide)
        words += beats_of(model.store("o", arg, record.beats))
        steps.append(BenchStore("o", record.beats, arg))
    bench.check(*steps, words={"o": words}, **pressure)


@pytest.mark.parametrize("rows", [1, 20, 64])
def test_exposed_loads_follow_scale_sims_law(monkeypatch, rows):
    """A tile takes its load, its rows, and rows + columns - 2 cycles of drain."""
    monkeypatch.setitem(MODELS, "product", ProductTime)
    array = DataflowArray(rows=CONFIG.array_rows, columns=CONFIG.array_columns)
    taken, law = [], []
    for columns in (16, 64):
        play = Play().load("x", 0).load("w", 0).fence()
        exposed = array.rows + array.columns - 2
        play.run(PRODUCT, rows=rows - 1, columns=columns - 1, fresh=1, start=1, last=1, exposed=exposed // 2).end()
        told = forecast(play)
        ((first, last),) = (
            cycles for cycles, each in zip(told.commands, told.instructions) if each.engine.name == "product"
        )
        taken.append(last - first)
        law.append(exposed_weight(Of("", "", m=rows, k=64, n=columns), array))
    assert taken[1] - taken[0] == law[1] - law[0]


@deep
@pytest.mark.parametrize(
    "name, unit, module, case",
    [
        ("straight", "TurningMemory", "turning", "heads"),
        ("unmasked", "KeptFeed", "feeds", "heads"),
        ("unsettled", "ProductSums", "sums", "few rows"),
        ("keeps-negative", "ProductEngine", "engine", "positive"),
    ],
)
def test_a_wrong_circuit_is_found(monkeypatch, name, unit, module, case):
    from gradloom.rtl.engines.product import engine, feeds, sums, turning

    modules = {"turning": turning, "feeds": feeds, "sums": sums, "engine": engine}
    monkeypatch.setattr(engine, unit, mutant(getattr(modules[module], unit), name))
    config = ProductConfig(array_rows=16, array_columns=16, x_slots=8, w_slots=8)
    bench, play = EngineBench(SPEC, config), Stepped(CASES[case], config)
    with pytest.raises(AssertionError, match="words differ"):
        bench.check(*play.steps, words={"o": play.words})


def test_operands_that_are_not_checked_are_found(monkeypatch):
    from gradloom.rtl.engines.product import engine
    from gradloom.rtl.engines.product.front import Front

    monkeypatch.setattr(engine, "Front", mutant(Front, "unbounded"))
    bench = EngineBench(SPEC, ProductConfig(array_rows=16, array_columns=16, x_slots=2, w_slots=2))
    assert not bench.run(BenchCommand(PRODUCT, PLAIN | {"x": 2})).codes
