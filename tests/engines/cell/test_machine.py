"""Whole programs on the recurrent machine: every code, every counter, in the cycles that were forecast."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.models.recurrent.example import example_codes, example_lstm, example_network
from gradloom.models.recurrent.front import Pooling
from gradloom.rtl.machines.configs.recurrent import RecurrentConfig
from gradloom.sim.run.machine import MachineRunner
from gradloom.systems.sequences.answers import run_cell
from gradloom.systems.sequences.program.image import CellImage
from gradloom.systems.sequences.program.program import CellProgram, CellSetup

from .test_layers import LATE

#: The machine that the command line generates and simulates in tests/cli/models/test_recurrent_verbs.py.
SMALL = RecurrentConfig(cells=4, hidden=16, inputs=16, parallel=8, sequences=4, products=1)


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
@pytest.mark.parametrize(
    ("config", "made", "count", "samples", "each"),
    [
        (SMALL, example_lstm(1, 16, 1, powers=False), 7, 40, False),
        (SMALL, example_lstm(1, 9, 8, powers=False), 1, 12, False),
        (SMALL, example_network(1, 16, 4, kernel=5, stride=2, outputs=8, classes=30), 5, 81, True),
        (SMALL, example_network(2, 13, 1, kernel=2, stride=1, outputs=3, classes=3), 4, 20, False),
        (SMALL, example_network(3, 8, 4, kernel=8, stride=3, outputs=8, classes=32), 1, 30, True),
        (LATE, example_network(2, 13, 2, kernel=4, stride=2, outputs=5, classes=3), 2, 24, True),
    ],
    ids=["steps", "few", "each", "last", "wide", "late"],
)
def test_the_forecast_is_exact(config, made, count, samples, each, memory):
    """With slow writes the queues of results fill, and rows wait for their room."""
    image = CellImage(made, config)
    codes = image.windows(example_codes(made, np.random.default_rng(2), count, samples))
    programs = [CellSetup(image, config), CellProgram(image, codes, config, each=each)]
    with MachineRunner.simulated(config, timing=memory) as machine:
        for program in programs:
            assert machine.run(program).check()["commands"] == len(program)


def test_a_changed_model_of_time_is_caught(forecast_is_compared):
    image = CellImage(example_lstm(1, 9, 8, powers=False), SMALL)
    codes = image.windows(example_codes(example_lstm(1, 9, 8, powers=False), np.random.default_rng(2), 1, 12))
    with MachineRunner.simulated(SMALL) as machine:
        machine.run(CellSetup(image, SMALL))
        forecast_is_compared(machine.run(CellProgram(image, codes, SMALL)), "cell.FIFO")


@pytest.mark.parametrize("timing", [None, {"stall": 50, "seed": 3}], ids=["free", "stalls"])
def test_sequences_in_batches_equal_the_reference(timing):
    made = example_lstm(2, 11, 6)
    codes = example_codes(made, np.random.default_rng(3), 6, 9)
    ran = run_cell(made, codes, SMALL, timing=timing)
    assert ran.trace.h.shape == (6, 9, 11) and ran.sums is None
    assert (timing is None) == (ran.figures["cycles"] == ran.figures["forecast"])


def test_a_pool_in_front_is_computed_by_the_host():
    made, outputs = example_lstm(3, 16, 6), np.arange(6)
    groups = np.stack([outputs, 6 + outputs], axis=1)
    pool = Pooling(kernel=3, stride=2, pads=(1, 0), groups=groups, inputs=12).coded(made.input)
    network = replace(made, front=(pool,))
    ran = run_cell(network, example_codes(network, np.random.default_rng(6), 2, 12), SMALL)
    assert ran.trace.h.shape == (2, 6, 16) and ran.figures["cycles"] == ran.figures["forecast"]


@pytest.mark.parametrize("how", [{}, {"every": True}, {"every": True, "stream": True}], ids=["last", "every", "stream"])
def test_a_network_with_a_convolution_equals_the_reference(how):
    """Also as a stream: the state stays in the engine from one program to the next."""
    made = example_network(4, 13, 3, kernel=4, stride=2, outputs=6, classes=5)
    count = 1 if "stream" in how else 6
    ran = run_cell(made, example_codes(made, np.random.default_rng(5), count, 12), SMALL, **how)
    assert ran.sums.shape == ((count, 6, 5) if how else (count, 5))
    assert ("cycles_an_answer" in ran.figures) == ("stream" in how)
