"""Stacks, two directions and cells of all kinds on one engine: RTL is the reference, and the forecast is exact."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.models.recurrent.coding import Coding
from gradloom.models.recurrent.example import example_codes, example_network
from gradloom.models.recurrent.example_cells import example_cell, example_dense, example_layers, example_odd
from gradloom.rtl.engines.cell.engine import CellEngine
from gradloom.rtl.engines.cell.feed import Feed
from gradloom.rtl.engines.cell.gru import GruStages
from gradloom.rtl.engines.cell.requantize import MultiplyShift
from gradloom.rtl.engines.cell.spec import SPEC
from gradloom.rtl.engines.cell.states import StateStages
from gradloom.rtl.formats.cell import CellOpcode
from gradloom.rtl.machines.configs.recurrent import RecurrentConfig
from gradloom.rtl.shell.registers.errors import Error
from gradloom.sim.bench.engine import BenchCommand, EngineBench
from gradloom.sim.bench.mutants import mutant
from gradloom.systems.sequences.answers import run_cell
from gradloom.systems.sequences.program.image import CellImage

from ...deep import deep
from .test_cell import play

SIZES = RecurrentConfig(hidden=8, inputs=32, parallel=2, sequences=4, window=16, cells=4, gru=1)
#: GRUs that reset in front of the product: a cell of each pass. Ties of scales whose ratio has an odd denominator.
PASSES = SIZES.replace(cells=8, gru=2, ties=1)
#: With a register behind tables, and one product a slice.
LATE = SIZES.replace(hidden=16, parallel=1, products=1, sequences=2, cells=4, gru=2, table_cycles=2)
#: For the bench of the engine alone.
BENCH = RecurrentConfig(hidden=8, inputs=8, parallel=2, sequences=2, cells=2, gru=2, ties=1)

KINDS = ("LSTM", "CIFG", "GRU", "RNN")
#: Slow writes fill the queue of results; slow reads starve the input.
MEMORIES = [{}, {"read_latency": 150, "write_latency": 600}, {"stall": 50, "seed": 3}]


def with_windows(both):
    """A convolution in front of one direction, or of both."""
    made = example_network(3, 8, 3, kernel=4, stride=2, outputs=7, classes=5, powers=not both)
    if not both:
        return replace(made, cell=example_cell("GRU", 9, 8, 7, powers=False))
    weight = np.concatenate([made.head.weight, -made.head.weight[::-1]], axis=1)
    backward = example_cell("LSTM", 99, 8, 7, powers=False)
    return replace(made, backward=backward, pick="ends", head=replace(made.head, weight=weight))


def drawn(kind, **more):
    """Scales of which requantisers become multipliers."""
    return example_layers(kind, 5, 7, 5, powers=False, classes=9, **more)


NETWORKS = {
    **{kind: (drawn(kind), 5, 6) for kind in KINDS},
    "stack": (drawn("LSTM", layers=3, pick="mean"), 3, 6),
    "stack of GRU": (example_layers("GRU", 6, 8, 6, layers=2), 5, 5),
    "both": (drawn("LSTM", both=True, pick="ends"), 3, 6),
    "both, GRU": (drawn("GRU", both=True, pick="last"), 1, 9),
    "stack of both": (drawn("GRU", layers=2, both=True, pick="mean"), 3, 19),
    "stack of both, RNN": (drawn("RNN", layers=2, both=True, pick="ends"), 2, 11),
    "windows": (with_windows(False), 3, 16),
    "dense layers": (example_dense(with_windows(False), 5, (8, "relu"), (6, "tanh")), 3, 16),
    "dense of the ends": (example_dense(drawn("GRU", both=True, pick="ends"), 5, (8, "sigmoid")), 2, 7),
    "dense of the last": (example_dense(drawn("LSTM", both=True, pick="last"), 6, (7, "relu")), 2, 7),
    "dense of all": (example_dense(drawn("RNN", both=True, pick="all"), 7, (8, "tanh")), 1, 9),
    "windows of both": (with_windows(True), 3, 16),
}


#: Those of two passes a step.
NETWORKS |= {
    "reset first": (drawn("GRU0"), 5, 6),
    "reset first, stack": (drawn("GRU0", layers=2, pick="mean"), 3, 6),
    "reset first, both": (drawn("GRU0", both=True, pick="ends"), 2, 7),
    "reset first, stack of both": (drawn("GRU0", layers=2, both=True, pick="last"), 2, 5),
    "reset first, windows": (replace(with_windows(False), cell=example_cell("GRU0", 9, 8, 7)), 3, 16),
    "reset first, dense layers": (example_dense(drawn("GRU0"), 5, (8, "relu")), 3, 6),
}


@pytest.mark.parametrize("memory", MEMORIES, ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_code_sum_and_counter(name, memory):
    made, count, steps = NETWORKS[name]
    codes = example_codes(made, np.random.default_rng(3), count, steps)
    ran = run_cell(made, codes, PASSES if name.startswith("reset") else SIZES, timing=memory)
    assert "stall" in memory or ran.figures["cycles"] == ran.figures["forecast"]
    assert len(np.unique(ran.trace.h)) > 6
    assert not made.behind or len(np.unique(ran.sums)) > made.head.weight.shape[0]


def tied(kind):
    """Of the sums of most gates each sixth is a tie."""
    made = example_layers(kind, 14, 8, 6)
    half, none = np.full(8, 0.5), np.zeros(8)
    coding = Coding(6 * 0.5 * made.input.scale, -32, 31)
    gates = {
        name: replace(
            each, w=np.sign(each.w), u=np.sign(each.u), w_scale=half, u_scale=half, bias=none, accumulator=coding
        )
        for name, each in made.cell.gates.items()
    }
    return replace(made, cell=replace(made.cell, gates=gates))


ODD = {
    "windows": example_odd(example_network(37, 8, 3, kernel=4, stride=2, outputs=6, classes=5), 37),
    "GRU": example_odd(example_layers("GRU", 14, 8, 6), 14),
    "LSTM of many": tied("LSTM"),
    "GRU0 of many": tied("GRU0"),
}


@pytest.mark.parametrize("name", ODD)
def test_ties_of_scales_in_any_ratio_go_to_the_even_code(name):
    made = ODD[name]
    found = [each["quantizer"] for each in made.integers.quantizers() if "near" in each]
    assert len(found) > 2, found
    ran = run_cell(made, example_codes(made, np.random.default_rng(6), 2, 16), PASSES, timing=MEMORIES[2])
    assert len(np.unique(ran.trace.h)) > 6


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "GRU0"])
def test_one_product_a_slice_and_late_tables(kind):
    made = drawn(kind, both=True, pick="ends")
    ran = run_cell(made, example_codes(made, np.random.default_rng(4), 2, 6), LATE)
    assert ran.figures["cycles"] == ran.figures["forecast"]


@pytest.mark.parametrize("kind", ["CIFG", "GRU", "GRU0"])
def test_a_stream_keeps_the_state_of_each_layer(kind):
    """A step a program: both layers go on where they stopped."""
    made = example_layers(kind, 8, 8, 6, layers=2, classes=3)
    codes = example_codes(made, np.random.default_rng(5), 1, 7)
    whole, stream = (run_cell(made, codes, PASSES, every=True, stream=stream) for stream in (False, True))
    np.testing.assert_array_equal(whole.trace.h, stream.trace.h)
    np.testing.assert_array_equal(whole.sums, stream.sums)


@pytest.fixture(scope="module")
def bench():
    return EngineBench(SPEC, BENCH)


@pytest.mark.parametrize("kind", ["GRU", "GRU0", pytest.param("RNN", marks=deep)])
def test_long_holds_change_nothing(bench, kind):
    """One command goes on where the other stopped."""
    made = example_layers(kind, 7, 7, 5, powers=False)
    image = CellImage(made, BENCH)
    play(bench, image, example_codes(made, np.random.default_rng(1), 2, 6), parts=2, stall=0.3, hold=60)


@pytest.mark.parametrize(
    "wrong",
    [
        {"cell": 2},
        {"both": 1},
        {"both": 1, "sequences": 2, "cell": 1},
        {"passes": 1},
        {"passes": 1, "gru": 1, "steps": 3},
        {"passes": 1, "gru": 1, "cell": 1},
        {"passes": 1, "gru": 1, "both": 1, "sequences": 2},
    ],
    ids=["cell", "odd", "second", "no GRU", "half a step", "second pass", "too few"],
)
def test_an_operand_is_refused(bench, wrong):
    operands = {"steps": 2, "sequences": 1, "hidden": 1, "inputs": 1} | wrong
    bench.check(BenchCommand(CellOpcode.RUN, operands), errors=[Error.BAD_OPERAND])


def test_a_design_without_them_refuses_them():
    plain = EngineBench(SPEC, BENCH.replace(cells=1, gru=0))
    for wrong in ({"cell": 1}, {"both": 1, "sequences": 2}, {"gru": 1}, {"passes": 1}):
        operands = {"steps": 2, "sequences": 1, "hidden": 1, "inputs": 1} | wrong
        plain.check(BenchCommand(CellOpcode.RUN, operands), errors=[Error.BAD_OPERAND])


@deep
@pytest.mark.parametrize(
    ("unit", "name", "kind"),
    [
        (GruStages, "unkept", "GRU"),
        (GruStages, "early", "GRU"),
        (Feed, "unpassed", "GRU0"),
        (StateStages, "forgotten", "GRU0"),
        (MultiplyShift, "near", "LSTM"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mutant_fails_the_bench(monkeypatch, unit, name, kind):
    made, each, engine = example_layers(kind, 7, 7, 5, powers=False), mutant(unit, name), CellEngine
    if unit is MultiplyShift:
        made = tied(kind)
    if unit is StateStages:  # a part of the engine's class
        engine = type("Broken", (each, CellEngine), {})
    else:
        place = {GruStages: "states", MultiplyShift: "gates"}.get(unit, "engine")
        monkeypatch.setattr(f"gradloom.rtl.engines.cell.{place}.{unit.__name__}", each)
    broken = EngineBench(SPEC, component=engine(SPEC, BENCH))
    with pytest.raises(AssertionError):
        play(broken, CellImage(made, BENCH), example_codes(made, np.random.default_rng(1), 2, 4))


def gru(**changes):
    made = example_layers("GRU", 7, 8, 5)
    return replace(made, cell=replace(made.cell, **changes))


def gates(**changes):
    cell = example_layers("GRU", 7, 8, 5).cell
    return gru(gates={name: replace(each, **changes.get(name, {})) for name, each in cell.gates.items()})


RESET = example_layers("GRU0", 7, 8, 5).cell
WIDE = example_layers("LSTM", 1, 40, 50, layers=2, both=True)
BAD = {
    "every size at once": (
        WIDE,
        SIZES.replace(cells=2, sequences=1),
        "example: does not fit a design with hidden=8, inputs=32, cells=2, sequences=1: set hidden=64 .40 elements of "
        "a hidden state., inputs=128 .88 of an input., cells=4 .4 layers and directions., sequences=2 .2 directions.$",
    ),
    "a GRU": (gru(), SIZES.replace(gru=0), "example: does not fit a design with gru=0: set gru=1 .a GRU.$"),
    "a GRU that resets first": (
        example_layers("GRU0", 1, 8, 5, both=True),
        SIZES.replace(cells=2),
        "does not fit a design with cells=2, gru=1: set cells=4 .4 layers, directions and passes., gru=2 .a GRU that "
        "resets in front of its product.$",
    ),
    "what a reset gate passes": (
        replace(example_layers("GRU0", 7, 8, 5), cell=replace(RESET, passed=Coding(2.0**-8, -200, 200))),
        PASSES,
        "codes of the hidden state that the reset gate passes are -200 to 200: must be within -128 and 127",
    ),
    "a GRU in two directions": (
        example_layers("GRU", 1, 8, 5, both=True),
        SIZES.replace(gru=0, cells=1),
        "does not fit a design with cells=1, gru=0: set cells=2 .2 layers and directions., gru=1 .a GRU.$",
    ),
    "ties": (
        example_odd(example_layers("GRU", 14, 8, 5), 14),
        SIZES,
        "with ties=0: set ties=1 .ties of the update accumulator, the ratio of whose scales has an odd denominator.$",
    ),
    "codes of the inner sum": (
        gru(inner=Coding(2.0**-4, -200, 200)),
        SIZES,
        "inner accumulator: has 401 codes: at most 256 fit the cell engine",
    ),
    "scales of the states": (
        gates(new={"output": Coding(0.0271, -32, 31, name="n")}),
        SIZES,
        "the hidden state has scale 0.03125 and the new state, quantised by 'n', 0.0271, whose ratio must be one of",
    ),
    "1 minus the gate": (
        gates(update={"output": Coding(2.0**-9, 0, 255)}),
        SIZES,
        "1 minus the update gate: has codes .* must be within -256 and 255",
    ),
    "the sums of the input": (
        gates(new={"bias": np.full(8, 40.0)}),
        SIZES,
        "new accumulator: sums of the input reach .*: must be within 18 bits",
    ),
    "the state": (gru(), SIZES.replace(state_bits=5), "with state_bits=5: set state_bits=6 .states -32 to 31.$"),
    "beyond every design": (
        example_layers("LSTM", 1, 300, 5, layers=9),
        SIZES,
        "is beyond every design: hidden=300 .*at most 256., inputs=300 .*at most 256., cells=9 .*at most 8.$",
    ),
    "thresholds": (
        gru(hidden=Coding(2.0**-5, -2, 2, levels=np.array([[-0.7, -0.1, 0.3, 0.31]]))),
        SIZES,
        "hidden state: became a table of 4 thresholds, which are on no line",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_refused_by_its_part(case):
    network, config, said = BAD[case]
    with pytest.raises(ValueError, match=said) as refused:
        CellImage(network, config).check()
    assert "\n" not in str(refused.value)
