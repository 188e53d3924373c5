"""Steps whose adapters and moments lie in memory as blocks of codes: RTL equals the reference, and both still learn."""

import numpy as np
import pytest

from gradloom.program.descent import AdamW
from gradloom.rtl.engines.update.commands import UpdateOpcode
from gradloom.rtl.machines.language import UPDATE
from gradloom.systems.text.operations.learnt.updates import Pack
from gradloom.systems.text.run.trainer import Trainer
from gradloom.systems.text.run.training import KeptBlocks, largest

from ..conftest import MODEL, TOKENS


def stored(training):
    """What a step must leave as codes, by name."""
    return {
        each.packed: each
        for operation in training.operations
        if isinstance(operation, Pack)
        for each in operation.tensors()
    }


@pytest.mark.parametrize("wide", [True, False], ids=["int8", "nf4"])
@pytest.mark.parametrize("rule", [AdamW(lr=1e-2), 0.05], ids=["adamw", "sgd"])
def test_a_block_with_its_update_and_what_is_stored_of_it(training, machine, rule, wide):
    random = np.random.default_rng(1)
    inputs = {
        name: random.normal(0, size, (len(TOKENS), MODEL.hidden)) for name, size in (("x", 1), ("gradient", 1e-2))
    }

    def run(number, packed):
        step = training([0], head=False, inputs=inputs, rule=rule, wide=wide, number=number, packed=packed)
        frac = step.fracs(largest(step.exact()), headroom=1)
        reference, made = step.integers(frac), machine.run(step, frac)
        for name, words in made.values.items():
            np.testing.assert_array_equal(words, reference.values[name], err_msg=name)
        assert made.counters.saturated == reference.saturated
        return step, frac, made

    machine.device.set("read_latency", 1)
    step, frac, first = run(1, {})
    # A and B of three adapters, and of AdamW their moments.
    assert set(stored(step)) < set(first.values) and len(stored(step)) == (12 if isinstance(rule, AdamW) else 6)
    assert first.ran.check()["commands"] == len(first.instructions)
    # The next step's words have other fraction bits.
    packed = {
        name: KeptBlocks(first.values[name], 0 if each.moments else frac[each.name] + 14 + 1)
        for name, each in stored(step).items()
    }
    _, _, second = run(2, packed)
    assert any(np.any(second.values[name] != first.values[name]) for name in stored(step))
    opcodes = [each.opcode for each in second.instructions if each.engine == UPDATE]
    assert {UpdateOpcode.PACK, UpdateOpcode.UNPACK} < set(opcodes)


@pytest.mark.parametrize("wide, near", [(True, 0.02), (False, 0.1)], ids=["int8", "nf4"])
def test_losses_stay_near_those_of_words(frozen, adapters, wide, near):
    losses = []
    for form in (None, wide):
        trainer = Trainer(frozen, dict(adapters), range(MODEL.layers), AdamW(lr=2e-3), wide=form)
        losses.append([trainer.step(TOKENS).loss for _ in range(8)])
    words, codes = map(np.array, losses)
    assert codes[-1] < codes[0] and np.abs(codes / words - 1).max() < near
