"""Tensors that share places: the program reads what it would, in less memory; the machine's words are the same."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gradloom.program.descent import AdamW
from gradloom.rtl.formats.vector import VectorOpcode
from gradloom.rtl.machines.language import VECTOR
from gradloom.systems.text.operations.blocks.head import LOSS
from gradloom.systems.text.operations.learnt.again import again
from gradloom.systems.text.program.layout import Layout
from gradloom.systems.text.program.step import lower
from gradloom.systems.text.run.step import place_frozen
from gradloom.systems.text.run.training import largest

from ..conftest import CONFIG, TOKENS


def planned(training, *, share, every=None):
    frac = training.fracs(largest(training.exact()), headroom=1)
    layout = Layout()
    place_frozen(training, layout)
    return lower(training.operations, frac, layout, CONFIG, share=share, yield_every=every), layout


def test_a_step_in_less_memory(training):
    step = training(rule=AdamW(lr=1e-2))
    program, shared = planned(step, share=True)
    # The same operations, each tensor in a place of its own.
    apart = Layout()
    place_frozen(step, apart)
    plain = lower(*again(step.operations, step.fracs(largest(step.exact()), headroom=1)), apart, CONFIG)
    size, alone = shared.shared_bytes, sum(-(-apart.sizes[name] // 64) * 64 for name in shared.shared)
    assert 0 < size < alone / 2
    assert apart.end - shared.end >= alone - size
    assert {"0.attended.again", "1.attended.again"} <= shared.shared
    assert [replace(each, operands={}) for each in program.instructions] == [
        replace(each, operands={}) for each in plain.instructions
    ]
    # What a step leaves has a place of its own; the gradient of the logits has the logits'.
    own = [name for name in shared.offsets if name.endswith((".a", ".b", ".ma", ".mb")) or name in step.starts]
    assert len(own) > 20 and all(shared[name] + shared.sizes[name] <= shared.end - size for name in own)
    assert shared["2.dlogits"] == shared["2.logits"] >= shared.end - size
    assert shared[LOSS] < shared.end - size


@pytest.mark.parametrize("every", [None, 600, 2500])
def test_a_step_that_shares_places_in_rtl(training, machine, every):
    """Adapters, moments and loss are the reference's; the shortest sections part the loss."""
    step = training(rule=AdamW(lr=1e-2))
    frac = step.fracs(largest(step.exact()), headroom=1)
    reference = step.integers(frac)
    machine.device.set("read_latency", 40)
    try:
        run = machine.run(step, frac, yield_every=every, share=True)
    finally:
        machine.device.set("read_latency", 1)
    parts = sum(step.engine == VECTOR and step.opcode == VectorOpcode.TARGETS for step in run.instructions)
    assert parts == (2 if every == 600 else 1)
    # Each part of the loss is cut to 16 fraction bits, of base 2.
    cut = 1.001 * (parts - 1) * 2.0**-16 * math.log(2) / (len(TOKENS) - 1)
    assert (
        run.loss == pytest.approx(reference.mean_loss, rel=0, abs=cut) and run.counters.saturated == reference.saturated
    )
    assert len(run.values) == 24 and {name.rsplit(".", 1)[1] for name in run.values} == {"a", "b", "ma", "mb"}
    for name, words in run.values.items():
        np.testing.assert_array_equal(words, reference.values[name], err_msg=name)
