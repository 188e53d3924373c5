"""A small machine for quantised linear layers, built once and driven by the host's own driver."""

from contextlib import contextmanager

import numpy as np
import pytest

from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.shell.table import needed_table
from gradloom.systems.text.run.linear import LinearMachine, LinearStart

#: Builds in seconds, with every engine there is.
SMALL = LanguageConfig(
    edge=16,
    columns=4,
    outputs=2,
    dots=1,
    rank=4,
    tokens=8,
    depth=128,
    lane_depth=64,
    groups=4,
    features=256,
    head=16,
    packing=1,
)
#: What its programs need.
MACHINE = needed_table(SMALL)


def make_layer(outputs, inputs, tokens, rank, *, edge=SMALL.edge, seed=0):
    """Random codes, scales of one sign as those of weights are, gradients far smaller than activations."""
    rng = np.random.default_rng(seed)
    blocks = outputs * inputs // edge
    return LinearStart(
        codes=rng.integers(0, 16, (outputs, inputs)),
        scale_codes=rng.integers(0, 256, (outputs, inputs // edge)),
        absmax2=rng.uniform(0.02, 0.05, -(-blocks // 256)).astype(np.float32),
        offset=np.float32(0.08),
        a=rng.normal(0, inputs**-0.5, (rank, inputs)),
        b=rng.normal(0, 0.02, (outputs, rank)),
        x=rng.normal(0, 3, (tokens, inputs)),
        dy=rng.normal(0, 1e-4, (tokens, outputs)),
    )


@contextmanager
def stalled(machine, stall, latency, seed):
    """With a memory that stalls and answers late; then as it was."""
    for name, value in (("stall", stall), ("read_latency", latency), ("seed", seed)):
        machine.device.set(name, value)
    try:
        yield
    finally:
        machine.device.set("stall", 0)
        machine.device.set("read_latency", 40)


@pytest.fixture(scope="session")
def machine():
    machine = LinearMachine(SMALL)
    yield machine
    machine.close()
