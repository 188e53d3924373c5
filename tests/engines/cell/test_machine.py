"""Whole programs on the recurrent machine: every code, every counter, in the cycles that were forecast."""

import numpy as np
import pytest

from gradloom.rtl.machines.configs import RecurrentConfig
from gradloom.rtl.models.recurrent.example import example_codes, example_lstm
from gradloom.rtl.plan.recurrent.program import CellProgram
from gradloom.sim.run.programs import forecast_placed, run_placed
from gradloom.sim.workloads.answers import run_cell

SMALL = RecurrentConfig(hidden=16, inputs=8, parallel=8, sequences=4, products=1)


@pytest.mark.parametrize(
    "memory", [{}, {"read_latency": 3, "write_latency": 1}, {"read_latency": 150, "write_latency": 600}], ids=str
)
@pytest.mark.parametrize(("units", "inputs", "count", "steps"), [(16, 1, 7, 40), (9, 8, 1, 12)])
def test_the_forecast_is_exact(units, inputs, count, steps, memory):
    """With slow writes the results' queue fills, and steps wait for its room."""
    made = example_lstm(1, units, inputs, powers=False)
    program = CellProgram(made, example_codes(made, np.random.default_rng(2), count, steps), SMALL)
    forecast = forecast_placed(program, **memory)
    run_placed(program, timing=memory).check(program, forecast)


@pytest.mark.parametrize("timing", [None, {"stall": 50, "seed": 3}], ids=["free", "stalls"])
def test_sequences_in_batches_equal_the_reference(timing):
    made = example_lstm(2, 11, 6)
    codes = example_codes(made, np.random.default_rng(3), 6, 9)
    trace, figures = run_cell(made, codes, SMALL, timing=timing)
    assert trace.h.shape == (6, 9, 11) and (timing is None) == (figures["cycles"] == figures["forecast"])
