"""A whole training step with 12 columns, whose parts go across tiles: RTL equals the reference, cycles the forecast."""

from dataclasses import replace

import pytest

from gradloom.program.descent import AdamW
from gradloom.systems.text.run.step import StepMachine

from ....deep import deep
from ..conftest import CONFIG
from .test_step import compared

TWELVE = replace(CONFIG, columns=12, outputs=8, dots=4, rank=8, ultra=1, lane_depth=512)


@pytest.fixture(scope="module")
def machine():
    machine = StepMachine(TWELVE, memory_bytes=1 << 24)
    yield machine
    machine.close()


@deep
@pytest.mark.parametrize("latency, stall", [(40, 0), (100, 0), (40, 25), (3, 120)])
def test_a_step_of_a_whole_model(training, machine, latency, stall):
    """Words, and where memory's latency is fixed every command to the cycle."""
    for name, value in (("stall", stall), ("read_latency", latency), ("seed", stall)):
        machine.device.set(name, value)
    try:
        reference, run = compared(training(rule=AdamW(lr=1e-2)), machine)
    finally:
        machine.device.set("stall", 0)
        machine.device.set("read_latency", 40)
    assert run.loss == reference.mean_loss > 1
