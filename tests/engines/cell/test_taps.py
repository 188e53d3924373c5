"""Taps in RTL: every word equals the reference, whatever holds the beats."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.models.recurrent.example import example_codes, example_lstm, example_network
from gradloom.models.recurrent.example_cells import example_cell, example_layers
from gradloom.models.recurrent.taps import TapSums, parts_of
from gradloom.program.assembler import pack
from gradloom.rtl.engines.cell.engine import CellEngine
from gradloom.rtl.engines.cell.spec import SPEC
from gradloom.rtl.engines.cell.stages import tap_cycles
from gradloom.rtl.engines.cell.taps import Taps
from gradloom.rtl.formats.cell import CellOpcode, TapArgument
from gradloom.rtl.machines.configs.recurrent import RecurrentConfig
from gradloom.rtl.shell.registers.errors import Error
from gradloom.sim.bench.engine import FENCE, BenchCommand, BenchLoad, BenchStore, EngineBench, pressures
from gradloom.sim.bench.mutants import mutant
from gradloom.sim.reference import cell as reference
from gradloom.systems.sequences.program.image import CellImage
from gradloom.systems.sequences.taps import segments_of, tap_sums, tap_words

from ...deep import deep
from .test_cell import loads, run

SMALL = RecurrentConfig(hidden=8, inputs=8, parallel=2, sequences=2, state_bits=8, window=16, tap_channels=8)
#: Small and large shifts: some words are clipped.
SHIFTS = (13, 0, 9, 17)


@pytest.fixture(scope="module")
def small():
    return EngineBench(SPEC, SMALL)


def asked(sequence=0, shifts=SHIFTS):
    return pack(TapArgument, {"sequence": sequence} | dict(zip(("h", "squashed", "sum", "x"), shifts)))


def stores(image, count):
    """Of each sequence, its cells' words."""
    parts = parts_of(image.network, image.config.parallel)
    shifts = tuple(SHIFTS[("h", "tanh c", "sum of h", "input").index(part.kind)] for part in parts)
    (segments,) = segments_of(image.network, image.config.parallel, shifts)
    taps = TapSums(parts=parts, shifts=shifts)
    whole = int(np.prod(taps.shape)) // 4
    found = []
    for sequence in range(count):
        for way, each in enumerate(segments):
            flags = {"cell": way, "plain": "squashed" not in each.shifts, "alone": "x" not in each.shifts}
            own = {"sequence": sequence * len(segments) + way} | flags | each.shifts
            beats = whole - each.first if each.last else each.beats
            found.append(BenchStore("taps", beats, pack(TapArgument, own)))
    return taps, found


def tapped(bench, made, codes, *, config=SMALL, commands=1, **pressure):
    """Taps of sequences, a STORE each; the command runs so many times."""
    image, network, parallel = CellImage(made, config), made, config.parallel
    windows = image.windows(codes)
    image.check_taps(windows.shape[1])
    taps, requests = stores(image, len(codes))
    wanted, clipped = tap_words(taps, tap_sums(network, reference.run(network, codes), parallel))
    steps = []
    for _ in range(commands):
        ways = image.directions
        command = run(
            image,
            windows,
            sequences=ways * len(codes),
            every=0,
            quiet=1,
            classes=0,
            channels=image.channels,
            own=image.own,
        )
        steps += [FENCE, *command, FENCE, *requests]
    ran = bench.check(*loads(image), *steps, **pressure)
    raw = b"".join(word.to_bytes(16, "little") for word in ran.words["taps"])
    words = np.frombuffer(raw, "<i4").reshape(commands, len(codes), -1)
    for each in words:
        np.testing.assert_array_equal(each, wanted.reshape(len(codes), -1))
    return ran, clipped


@pytest.mark.parametrize(
    ("steps", "pressure"), list(zip([11, 6], pressures(60)[1:], strict=True)), ids=["stalls", "holds"]
)
def test_words_equal_the_reference(small, steps, pressure):
    made = example_lstm(3, 8, 7)
    codes = example_codes(made, np.random.default_rng(steps), 2, steps)
    _, clipped = tapped(small, made, codes, commands=2, **pressure)
    assert steps < 11 or clipped > 0


@pytest.mark.parametrize(("channels", "kernel", "stride"), [(3, 4, 2), (2, 5, 3)], ids=str)
def test_of_a_window_the_steps_own_samples_count(small, channels, kernel, stride):
    """Windows overlap: each sample is added up once."""
    made = example_network(9, 8, channels, kernel=kernel, stride=stride, outputs=7, classes=5)
    codes = example_codes(made, np.random.default_rng(4), 2, 24)
    tapped(small, made, codes, stall=0.3)
    tapped(small, made, codes[:1])


#: Of several cells and kinds, and of both directions.
MANY = SMALL.replace(cells=4, gru=2, sequences=4, table_cycles=2)


@pytest.fixture(scope="module")
def many():
    return EngineBench(SPEC, MANY)


@pytest.mark.parametrize("both", [False, True], ids=["one", "both"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "GRU0", "RNN"])
def test_cells_of_all_kinds_have_taps(many, kind, both):
    """A cell without a state has no tanh of it; the backward cell has no sums of x."""
    made = example_layers(kind, 3, 8, 5, both=both)
    codes = example_codes(made, np.random.default_rng(5), 2, 7)
    tapped(many, made, codes, config=MANY, commands=2, stall=0.3)


def test_each_sample_of_two_passes_counts_once(many):
    """The windows of both passes of a step are alike."""
    made = example_network(9, 8, 3, kernel=4, stride=2, outputs=7, classes=5)
    made = replace(made, cell=example_cell("GRU0", 9, 8, 7))
    tapped(many, made, example_codes(made, np.random.default_rng(4), 2, 24), config=MANY, commands=2, stall=0.3)
    odd = {"steps": 9, "channels": 1, "own": 1, "gru": 1, "passes": 1, "hidden": 1, "inputs": 1, "sequences": 1}
    for steps in (6, 9):
        many.check(BenchCommand(CellOpcode.RUN, odd | {"steps": steps}), errors=[Error.BAD_OPERAND])


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param({"parallel": 1, "products": 1, "sequences": 1}, marks=deep),
        {"hidden": 16, "parallel": 4, "products": 1, "cells": 2, "gru": 1},
    ],
    ids=str,
)
def test_other_sizes_equal_the_reference_too(sizes):
    """And beats come when it is said."""
    config = SMALL.replace(**{"table_cycles": 2} | sizes)
    bench, random = EngineBench(SPEC, config), np.random.default_rng(2)
    made = example_network(5, 8, 3, kernel=3, stride=1 if config.parallel == 8 else 2, outputs=5, classes=3)
    tapped(bench, made, example_codes(made, random, config.sequences, 9), config=config, stall=0.2)
    made = example_lstm(4, 8, 8, powers=False)
    ran, _ = tapped(bench, made, example_codes(made, random, 1, 4), config=config)
    first, step = tap_cycles(config.parallel)
    assert (first, step) == (5 + step, max(4 // config.parallel, 1))
    assert set(np.diff(ran.stored["taps"])) == {step}


@pytest.mark.parametrize(
    "wrong", [{"channels": 5, "own": 1}, {"channels": 1, "own": 0}, {"channels": 1, "own": 1, "steps": 3}], ids=str
)
def test_an_operand_is_refused(small, wrong):
    operands = {"steps": 4, "sequences": 1, "hidden": 1, "inputs": 1} | wrong
    small.check(BenchCommand(CellOpcode.RUN, operands), errors=[Error.BAD_OPERAND])


def test_a_request_that_cannot_be_answered_is_refused(small):
    assert small.run(BenchStore("taps", 4, asked(2))).refused
    made = example_lstm(6, 8, 8)
    command, _ = run(CellImage(made, SMALL), example_codes(made, np.random.default_rng(1), 1, 4))
    # Starved of input, the command runs when the request comes.
    assert small.run(command, BenchStore("taps", 4, asked(), after=9), patience=300).refused
    without = EngineBench(SPEC, SMALL.replace(tap_channels=0))
    assert without.run(BenchStore("taps", 4, asked())).refused


def test_more_beats_than_there_are_are_zeros(small):
    """No request hangs."""
    ran = small.check(BenchStore("taps", 70, asked()), BenchLoad("x", [1]))
    assert len(ran.words["taps"]) == 70 and not any(ran.words["taps"][-30:])


@deep
@pytest.mark.parametrize(("name", "kind"), [("whole", "GRU"), ("twice", "GRU0")])
def test_a_mutant_fails_with_several_cells(monkeypatch, name, kind):
    monkeypatch.setattr("gradloom.rtl.engines.cell.states.Taps", mutant(Taps, name))
    made = example_layers(kind, 3, 8, 5)
    with pytest.raises(AssertionError):
        codes = example_codes(made, np.random.default_rng(5), 2, 7)
        tapped(EngineBench(SPEC, component=CellEngine(SPEC, MANY)), made, codes, config=MANY)


@deep
@pytest.mark.parametrize("name", ["unopened", "lastless", "stale"])
def test_a_mutant_fails(monkeypatch, name):
    monkeypatch.setattr("gradloom.rtl.engines.cell.states.Taps", mutant(Taps, name))
    bench = EngineBench(SPEC, component=CellEngine(SPEC, SMALL))
    # A channel: its samples are added up one cycle after the other.
    made = example_network(9, 8, 1, kernel=4, stride=2, outputs=7, classes=5)
    with pytest.raises(AssertionError):
        tapped(bench, made, example_codes(made, np.random.default_rng(4), 2, 24))
