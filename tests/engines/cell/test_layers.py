"""Stacked and two-way networks of all kinds on one engine: RTL is the reference, and the forecast is exact."""

import numpy as np
import pytest

from gradloom.models.recurrent.example import example_codes
from gradloom.models.recurrent.example_cells import example_layers
from gradloom.rtl.machines.configs.recurrent import RecurrentConfig
from gradloom.systems.sequences.answers import run_cell

SMALL = RecurrentConfig(hidden=8, inputs=32, parallel=4, sequences=4, products=2, cells=4, gru=1)

NETWORKS = {
    "stack": (example_layers("LSTM", 1, 7, 5, layers=2, classes=3), 3, 6),
    "both": (example_layers("LSTM", 2, 8, 6, both=True, classes=3, pick="ends"), 3, 6),
}


@pytest.mark.parametrize("timing", [None, {"read_latency": 90, "write_latency": 300}, {"stall": 50, "seed": 3}])
@pytest.mark.parametrize("name", NETWORKS)
def test_layers_and_directions_equal_the_reference(name, timing):
    made, count, steps = NETWORKS[name]
    ran = run_cell(made, example_codes(made, np.random.default_rng(3), count, steps), SMALL, timing=timing)
    assert "stall" in (timing or {}) or ran.figures["cycles"] == ran.figures["forecast"]
