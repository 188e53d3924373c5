"""The cell engine alone: RTL equals the reference under stalls and long holds, cycle for cycle as said."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.models.recurrent.coding import Coding
from gradloom.models.recurrent.example import KINDS, example_codes, example_lstm, example_network
from gradloom.models.recurrent.readers.reader import load_recurrent
from gradloom.rtl.engines.cell.engine import CellEngine
from gradloom.rtl.engines.cell.feed import Feed
from gradloom.rtl.engines.cell.gates import GateStages
from gradloom.rtl.engines.cell.results import Results, Sums
from gradloom.rtl.engines.cell.spec import SPEC
from gradloom.rtl.engines.cell.stages import stages_of
from gradloom.rtl.formats.cell import CellOpcode
from gradloom.rtl.machines.configs.recurrent import RecurrentConfig
from gradloom.rtl.shell.registers.errors import Error
from gradloom.sim.bench.engine import FENCE, BenchCommand, BenchLoad, BenchStore, EngineBench, pressures
from gradloom.sim.bench.mutants import mutant
from gradloom.sim.reference import cell as reference
from gradloom.systems.sequences.program.image import CellImage
from gradloom.systems.sequences.program.words import CellWords

from ...deep import deep
from ...models.recurrent.models import AUTHORS, arrays

HOLD = 60
SMALL = RecurrentConfig(hidden=16, inputs=8, parallel=2, sequences=2, state_bits=8, window=16)


def beats(raw):
    return [int.from_bytes(raw[at : at + 16], "little") for at in range(0, len(raw), 16)]


def loads(image):
    return [BenchLoad(name, beats(getattr(image, name))) for name in ("weights", "rows", "tables", "quantizers")]


def run(image, codes, **changes):
    """A command and its input."""
    operands = image.layers[0].operands(codes.shape[1]) | {
        "sequences": len(codes),
        "every": 1,
        "fresh": 1,
        "classes": image.classes,
    }
    return BenchCommand(CellOpcode.RUN, operands | changes), BenchLoad("x", beats(image.input_rows(codes)))


def whole(bench, image, codes, *, each=False, parts=1, every=True, **pressure):
    """A network with a convolution and a dense layer, in commands of ``parts`` equal numbers of steps."""
    network, count = image.network, len(codes)
    trace = reference.run(network, codes)
    windows, steps, taken = image.windows(codes), [], 0
    assert np.array_equal(trace.source, codes)
    for number, part in enumerate(np.split(windows, parts, axis=1)):
        steps += [FENCE] * bool(number)
        steps += run(image, part, fresh=number == 0, every=every, each=each, quiet=not every)
        rows = part.shape[1] * count
        if every:
            steps.append(BenchStore("h", rows * image.result // 16))
        if image.classes:
            steps.append(BenchStore("logits", (rows if each else count) * image.classes * image.config.parallel))
        taken += part.shape[1]
    ran = bench.check(
        *loads(image),
        FENCE,
        *steps,
        FENCE,
        BenchStore("state", 2 * image.config.sequences * image.config.groups),
        **pressure,
    )
    raw = {name: b"".join(word.to_bytes(16, "little") for word in words) for name, words in ran.words.items()}
    kept = image.state_codes(raw["state"], count)
    np.testing.assert_array_equal(kept[0], trace.state.c)
    np.testing.assert_array_equal(kept[1], trace.state.h)
    if every:
        np.testing.assert_array_equal(image.hidden_codes(raw["h"], count), trace.h)
    ends = trace.h if each else trace.h[:, taken // parts - 1 :: taken // parts]
    np.testing.assert_array_equal(image.sums(raw["logits"], count), reference.sums(network, ends))
    return ran


def play(bench, image, codes, *, parts=1, every=True, **pressure):
    """Sequences in ``parts`` commands that go on where the last ended; h of all steps, or of each command's last."""
    config, network = image.config, image.network
    state, hidden, steps = reference.start(network.integers.cell, len(codes)), [], []
    for number, part in enumerate(np.split(codes, parts, axis=1)):
        steps += [FENCE] * bool(number) + [*run(image, part, fresh=number == 0, every=every)]
        for at in range(part.shape[1]):
            state = reference.step(network.integers.cell, part[:, at], state)
            if every or at == part.shape[1] - 1:
                hidden.append(state.h)
        rows = part.shape[1] * image.top.passes if every else 1
        steps.append(BenchStore("h", rows * len(codes) * image.result // 16))
    ran = bench.check(*loads(image), FENCE, *steps, FENCE, BenchStore("state", 2 * config.state_places), **pressure)
    raw = {name: b"".join(word.to_bytes(16, "little") for word in words) for name, words in ran.words.items()}
    np.testing.assert_array_equal(image.hidden_codes(raw["h"], len(codes)), np.stack(hidden, axis=1))
    kept = image.state_codes(raw["state"], len(codes))
    np.testing.assert_array_equal(kept[0][:, : state.c.shape[1]], state.c)
    np.testing.assert_array_equal(kept[1], state.h)
    return ran


@pytest.fixture(scope="module")
def small():
    """With few places for results, which a hold fills."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(Results, "depth", 4)
        yield EngineBench(SPEC, SMALL)


@pytest.mark.parametrize(
    ("kind", "pressure"),
    [("shifts", pressures(HOLD)[1]), *((kind, pressures(HOLD)[2]) for kind in list(KINDS)[1:])],
    ids=["stalls", *list(KINDS)[1:]],
)
def test_rtl_is_the_reference(small, kind, pressure):
    made = example_lstm(3, 15, 7, **KINDS[kind])
    image, rng = CellImage(made, SMALL), np.random.default_rng(1)
    play(small, image, example_codes(made, rng, 2, 8), parts=2, **pressure)
    if kind == "shifts":
        play(small, image, example_codes(made, rng, 1, 3), every=False, **pressure)


FREE, STALLS, HOLDS = pressures(HOLD)


@pytest.mark.parametrize(
    ("each", "pressure"),
    [
        pytest.param(False, FREE, id="last-free"),
        pytest.param(True, STALLS, id="each-stalls"),
        pytest.param(True, HOLDS, id="each-holds"),
        pytest.param(True, FREE, id="each-free", marks=deep),
        pytest.param(False, STALLS, id="last-stalls", marks=deep),
        pytest.param(False, HOLDS, id="last-holds", marks=deep),
    ],
)
def test_a_convolution_and_a_dense_layer_are_the_reference(small, each, pressure):
    """Two sequences in two commands: the windows of the next steps go beside the state's."""
    made = example_network(9, 15, 3, kernel=4, stride=2, outputs=7, classes=5, powers=each)
    image = CellImage(made, SMALL)
    codes = example_codes(made, np.random.default_rng(4), 2, 16)
    whole(small, image, codes, each=each, parts=2, **pressure)
    whole(small, image, codes[:1], each=each, parts=8, every=False, **pressure)


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param({"parallel": 1, "products": 1}, marks=deep),
        {"parallel": 1, "products": 2},
        {"parallel": 4, "products": 2},
        {"parallel": 4, "products": 1, "sequences": 1},
        {"parallel": 1, "products": 1, "sequences": 2, "table_cycles": 2},
    ],
    ids=str,
)
def test_other_sizes_are_the_reference_too(sizes):
    config = SMALL.replace(**{"hidden": 8} | sizes)
    made = example_lstm(4, 7, 5, powers=False)
    codes = example_codes(made, np.random.default_rng(2), config.sequences, 2)
    play(EngineBench(SPEC, config), CellImage(made, config), codes, stall=0.3)


def test_the_authors_sequences_give_the_authors_codes():
    """FINN-GL's own model: 8-bit codes, multipliers of 24 bits, an unclipped state of 9 bits, ties to even."""
    made, config = load_recurrent(AUTHORS), SMALL.replace(hidden=32, inputs=16, state_bits=9)
    x = arrays("authors_scan_qcdq")["x"][:2, :5, :, 0]
    play(EngineBench(SPEC, config), CellImage(made, config), made.input.codes(x))


@pytest.mark.parametrize(("inputs", "sequences", "tables"), [(8, 1, 1), (1, 1, 1), (8, 2, 1), (8, 1, 2)])
def test_a_step_takes_what_is_said(small, inputs, sequences, tables):
    """The input enters while results are made; a register behind each of two tables is two cycles."""
    config = SMALL.replace(table_cycles=tables)
    made, steps, own = example_lstm(5, 16, inputs), 5, stages_of(config)
    assert own.results == 24 + 2 * tables
    image = CellImage(made, config)
    bench = small if tables == 1 else EngineBench(SPEC, config)
    codes = example_codes(made, np.random.default_rng(3), sequences, steps)
    found = play(bench, image, codes, patience=2000)
    cycles = found.done[0] - found.started[0]
    # The input's queue is empty before the command; beats of x are given from its start on.
    step = image.hidden + max(image.inputs, own.results - 1) if sequences == 1 else None
    if step is not None:
        first = image.hidden + image.inputs
        last = own.results + image.hidden - 1 + own.finish - 1
        wait = found.loaded["x"][0] + 2 - (found.started[0] + own.begin)
        assert cycles == own.begin + max(wait, 0) + first + (steps - 1) * step + last
    else:
        assert cycles < steps * (image.hidden + own.results) + 60


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"sequences": 0},
        {"sequences": 3},
        {"hidden": 0},
        {"hidden": 9},
        {"inputs": 0},
        {"inputs": 5},
        {"window": 9, "filters": 1},
        {"window": 1},
        {"filters": 2},
        {"filters": 1, "front": 8},
        {"classes": 9},
        {"filters": 1, "classes": 8},
    ],
    ids=str,
)
def test_an_operand_is_refused(small, wrong):
    operands = {"steps": 1, "sequences": 1, "hidden": 1, "inputs": 1} | wrong
    small.check(BenchCommand(CellOpcode.RUN, operands), errors=[Error.BAD_OPERAND])
    small.check(BenchCommand(1, {}), errors=[Error.UNKNOWN_OPCODE])


@pytest.mark.parametrize(
    "port, count", [("weights", 8 * 32), ("rows", 128), ("tables", 256), ("quantizers", 9), ("state", 32)]
)
def test_what_has_no_place_is_refused(small, port, count):
    small.check(BenchLoad(port, [0] * count))
    assert small.run(BenchLoad(port, [0] * (count + 1))).refused
    made = example_lstm(6, 16, 8)
    codes = example_codes(made, np.random.default_rng(1), 1, 2)
    command, x = run(CellImage(made, SMALL), codes)
    # Starved of input, the command runs when the load comes.
    assert small.run(command, BenchLoad(port, [0] * 8)).refused


def test_states_are_loaded_where_they_are_stored(small):
    made = example_lstm(7, 16, 8)
    image, rng = CellImage(made, SMALL), np.random.default_rng(5)
    cell = made.integers.cell
    c, h = rng.integers(-100, 100, (2, 16)), rng.integers(-32, 32, (2, 16))
    codes = example_codes(made, rng, 2, 1)
    after = reference.step(cell, codes[:, 0], reference.CellState(h, c))
    words = np.zeros((2, 2, 8, 8), "<i2")
    words[0, ..., :2], words[1, ..., :2] = c.reshape(2, 8, 2), h.reshape(2, 8, 2)
    ran = small.check(
        *loads(image),
        BenchLoad("state", beats(words.tobytes())),
        FENCE,
        *run(image, codes, fresh=0),
        BenchStore("h", 2),
    )
    raw = b"".join(word.to_bytes(16, "little") for word in ran.words["h"])
    np.testing.assert_array_equal(image.hidden_codes(raw, 2)[:, 0], after.h)


def at_the_bound(over):
    """Input and hidden state at their least code, -128, give an upper sum of a slice just above its bound, -2**18.

    With ``over`` it is the bound. The lower sum is negative, so it borrows from the upper one.
    """
    made = example_lstm(11, 16, 8)
    ends = {"w_scale": np.full(16, 8.0), "u_scale": np.full(16, 8.0), "bias": np.zeros(16)}
    gates = {}
    for number, (name, each) in enumerate(made.cell.gates.items()):
        row = np.zeros(24, np.int64)
        row[:17] = [127] * 16 + [2047 - 16 * 127 + over] if number % 2 else [1] + [0] * 16
        u, w = np.tile(row[:16], (16, 1)), np.tile(row[16:], (16, 1))
        code = replace(each.accumulator, scale=0.25, step=0.0)
        gates[name] = replace(each, u=u, w=w, accumulator=code, **ends)
    source = Coding(2.0**-5, -128, 127)
    return replace(made, input=source, cell=replace(made.cell, gates=gates, hidden=source))


@pytest.mark.parametrize("over", [0, 1], ids=["bound", "beyond"])
def test_a_sum_at_its_bound_is_exact_and_one_more_is_refused(over, monkeypatch):
    """The bound is that of the circuit: without the check, one more gives other codes than the reference."""
    made, config = at_the_bound(over), SMALL.replace(parallel=1, sequences=1)
    if over:
        with pytest.raises(ValueError, match="sums of a lane of products of the cell reach 262144: .* below 262144"):
            CellImage(made, config).check()
        monkeypatch.setattr(CellWords, "_check_chains", lambda *_: None)
    image = CellImage(made, config)
    h, c = np.full((1, 16), -128), np.full((1, 16), 100)
    codes = np.full((1, 1, 8), -128)
    after = reference.step(made.integers.cell, codes[:, 0], reference.CellState(h, c))
    words = np.zeros((2, 1, 16, 8), "<i2")
    words[0, ..., 0], words[1, ..., 0] = c, h
    ran = EngineBench(SPEC, config).check(
        *loads(image),
        BenchLoad("state", beats(words.tobytes())),
        FENCE,
        *run(image, codes, fresh=0),
        BenchStore("h", 1),
        FENCE,
        BenchStore("state", 2 * 16),
    )
    raw = {name: b"".join(word.to_bytes(16, "little") for word in held) for name, held in ran.words.items()}
    kept = image.state_codes(raw["state"], 1)
    assert (np.array_equal(kept[0], after.c) and np.array_equal(kept[1], after.h)) == (not over)


@pytest.fixture
def broken(monkeypatch):
    """A bench of a mutant, with few places for results."""

    def made(unit, name, config):
        each = mutant(unit, name)
        monkeypatch.setattr(each if unit is Results else Results, "depth", 4)
        monkeypatch.setattr(each if unit is Sums else Sums, "depth", 2)
        if unit is GateStages:  # a part of the engine's class
            return EngineBench(SPEC, component=type("Broken", (each, CellEngine), {})(SPEC, config))
        monkeypatch.setattr(f"gradloom.rtl.engines.cell.engine.{unit.__name__}", each)
        return EngineBench(SPEC, component=CellEngine(SPEC, config))

    return made


@deep
@pytest.mark.parametrize("unit, name", [(Results, "overfull"), (Feed, "early"), (GateStages, "unborrowed")])
def test_a_mutant_fails_the_bench(broken, unit, name):
    config = SMALL.replace(sequences=1)
    # Sums of which a last place counts.
    made = example_lstm(8, 16, 1)
    gates = {
        name: replace(each, w_scale=each.w_scale * 32, u_scale=each.u_scale * 32)
        for name, each in made.cell.gates.items()
    }
    made = replace(made, cell=replace(made.cell, gates=gates))
    bench = broken(unit, name, config)
    codes = example_codes(made, np.random.default_rng(1), 1, 12)
    with pytest.raises(AssertionError):
        play(bench, CellImage(made, config), codes, hold=600, patience=700)


@deep
@pytest.mark.parametrize("unit, name", [(Sums, "crammed"), (Feed, "crowded")])
def test_a_mutant_fails_beside_a_convolution(broken, unit, name):
    made = example_network(10, 16, 3, kernel=2, stride=1, outputs=7, classes=9)
    bench, image = broken(unit, name, SMALL), CellImage(made, SMALL)
    with pytest.raises(AssertionError):
        whole(bench, image, example_codes(made, np.random.default_rng(1), 2, 12), each=True, hold=600, patience=700)
