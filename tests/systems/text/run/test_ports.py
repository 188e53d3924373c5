"""A training step on several AXI ports: words are the reference's, and cycles the forecast's."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.program.descent import AdamW
from gradloom.program.placed import Written
from gradloom.sim.time.forecast import forecast
from gradloom.systems.text.run.decode import Decoding
from gradloom.systems.text.run.step import StepMachine
from gradloom.systems.text.run.training import largest

from ....deep import deep
from ..conftest import CONFIG, TOKENS
from .test_step import compared

MEMORIES = ({}, {"read_latency": 200}, {"read_latency": 200, "port_reads": 8}, {"stall": 25, "spread": 170})


@pytest.fixture(scope="module", params=[2, 4])
def several(request):
    machine = StepMachine(replace(CONFIG, ports=request.param), memory_bytes=1 << 24)
    yield machine
    machine.close()


def answering(machine, memory):
    """Memory behind the ports."""
    usual = {"read_latency": 40, "write_latency": 10, "port_reads": 0, "stall": 0, "spread": 0}
    for name, value in (usual | memory).items():
        machine.device.set(name, value)


@deep
@pytest.mark.parametrize("memory", MEMORIES, ids=str)
def test_a_step_on_several_ports(training, several, memory):
    answering(several, memory)
    _, run = compared(training(rule=AdamW(lr=1e-2)), several)
    if several.device.memory is None:
        return
    # The same program with one port of these, as wide as a beat, and half as wide.
    told = run.ran.forecast
    assert told is not None and told.total == run.counters.cycles
    alone = forecast(
        run.instructions, config=CONFIG, program_offset=run.ran.program.offset, memory=several.device.memory
    )
    print(f"{memory}: {told.total} cycles, {alone.total} with one port of 256 bits")


@deep
@pytest.mark.parametrize("memory", MEMORIES, ids=str)
def test_a_token_on_several_ports(training, several, memory):
    """By a head in codes."""
    answering(several, memory)
    whole = training()
    frac = whole.fracs(largest(whole.exact()), headroom=2)
    before = whole.integers(frac)
    token = Decoding(whole, frac, 4, [TOKENS[4]], coded=True)
    several.load(whole, frac)
    after, loaded = token.integers(before), token.load(several, before)
    program = loaded.program
    written = Written(config=several.config, instructions=program.instructions, code=program.code, offset=loaded.start)
    several.machine.run(written).check(saturated=after.saturated)
    for name, words in token.values(several, loaded).items():
        np.testing.assert_array_equal(words, after.values[name], err_msg=name)
