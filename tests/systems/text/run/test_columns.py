"""A whole training step with 12 columns, whose parts go across tiles: RTL equals the reference, cycles the forecast."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.program.descent import AdamW
from gradloom.rtl.machines.language import LINEAR
from gradloom.systems.text.operations.shapes import larger, suited
from gradloom.systems.text.program.parted import parted as in_parts
from gradloom.systems.text.run.step import StepMachine
from gradloom.systems.text.run.training import Training, largest
from gradloom.systems.text.small import SMALL, frozen_of, random_tensors

from ....deep import deep
from ..conftest import CONFIG, MODEL, TARGETS, TOKENS
from ..operations.test_blocks import drawn
from .test_step import compared

TWELVE = replace(CONFIG, columns=12, outputs=8, dots=4, rank=8, ultra=1, depth=4096, lane_depth=512)


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


@deep
@pytest.mark.parametrize("config", [TWELVE, CONFIG], ids=["12 columns", "4 columns"])
def test_a_step_of_a_larger_rank(frozen, config):
    """On the machine that it needs, whose parts carry as many indices as they can."""
    made = suited(config, MODEL, rank=16, targets=TARGETS)
    assert larger(made, config)["rank"] == 16
    machine = StepMachine(made, memory_bytes=1 << 24)
    try:
        for rank in (16, 10):
            adapters = drawn(MODEL, targets=TARGETS, rank=rank)
            compared(Training(frozen, TOKENS, adapters, range(2), rule=AdamW(lr=1e-2)), machine)
    finally:
        machine.close()


@pytest.fixture(scope="module")
def wide():
    """A layer with more queries than a panel has, on 32 tokens."""
    model = replace(SMALL, hidden=256, inter=320, heads=4, kv_heads=2, layers=1)
    frozen = frozen_of(random_tensors(np.random.default_rng(3), model), model)
    adapters = drawn(model, targets=("q_proj", "v_proj"), layers=range(1))
    tokens = np.random.default_rng(5).integers(0, model.vocab, 32).tolist()
    return Training(frozen, tokens, adapters, range(1), rule=AdamW(lr=1e-2))


def test_products_in_parts_use_their_operands_again(wide):
    config = replace(TWELVE, tokens=32)
    parts = [each.outputs for each in in_parts(wide.operations, config) if each.outputs]
    assert parts == [range(0, 3), range(3, 4)] * 2
    machine = StepMachine(config, memory_bytes=1 << 24)
    frac = wide.fracs(largest(wide.exact()), headroom=1)
    reference, run = wide.integers(frac), machine.run(wide, frac)
    assert run.check(reference)["commands"] == len(run.instructions) and not reference.saturated
    again = [each for each in run.instructions if each.engine == LINEAR and not each.operands["early"]]
    assert again and len(again) < len([each for each in run.instructions if each.engine == LINEAR]) / 2
    machine.close()


@pytest.fixture
def fresh(machine):
    """Another machine on the same device, which overwrites what the first has in memory."""
    yield StepMachine(TWELVE, device=machine.device)
    machine.held.clear()


def parted(adapters, x):
    """A step of a layer whose head has two parts, the second one shorter."""
    model = replace(MODEL, vocab=64 * TWELVE.head_part + 150)
    frozen = frozen_of(random_tensors(np.random.default_rng(3), model), model)
    frozen.head_part = TWELVE.head_part
    used = {name: each for name, each in adapters.items() if ".1." in name}
    return Training(frozen, TOKENS, used, [1], inputs={"x": x}, rule=AdamW(lr=1e-2))


@deep
def test_a_head_in_parts(adapters, fresh):
    """Parts are as long as the machine's depth lets them be."""
    _, run = compared(parted(adapters, np.random.default_rng(1).normal(size=(9, 128))), fresh)
    assert {"2.part.0", "2.part.56", "2.sum.56"} <= set(run.values) and "2.part.32" not in run.values


@deep
def test_eight_outputs_that_are_clipped_in_a_cycle_are_counted(adapters, fresh):
    """Of equal elements a norm makes gradients that are next to nothing, whose exponents clip."""
    training = parted(adapters, np.ones((9, 128)))
    frac = training.fracs(largest(training.exact()), headroom=1)
    reference = training.integers(frac)
    assert reference.saturated > 1000
    fresh.run(training, frac).check(reference)
