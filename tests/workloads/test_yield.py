"""A step that yields is the step that does not, in sections that nothing connects."""

import numpy as np
import pytest

from gradloom.rtl.machines.engines import LINEAR
from gradloom.rtl.plan.language.descent import AdamW
from gradloom.rtl.plan.language.sections import PAUSE, apart, is_pause
from gradloom.rtl.plan.language.step import Layout, lower
from gradloom.rtl.plan.program.assembler import Assembler, Instruction
from gradloom.rtl.shell.engines import CONTROL, LOAD
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.sim.time.forecast import forecast
from gradloom.sim.workloads.step import largest, place_frozen

from .conftest import CONFIG, TOKENS


def planned(training, every):
    frac = training.fracs(largest(training.exact()), headroom=1)
    layout = Layout()
    place_frozen(training, layout)
    return lower(training.operations, frac, layout, CONFIG, yield_every=every)


def longest(program, latency=40):
    """The longest section, by the forecast."""
    told = forecast(program.instructions, config=CONFIG, read_latency=latency)
    ends = [times[1] for step, times in zip(program.instructions, told.commands) if is_pause(step)]
    return int(np.diff([0, *ends, told.total]).max()), told.total


@pytest.mark.parametrize("every", [4000, 6000, 20000])
def test_no_section_is_longer_than_asked(training, every):
    program = planned(training(rule=AdamW(lr=1e-2)), every)
    length, total = longest(program)
    assert every / 3 < length <= every
    assert total < 1.2 * longest(planned(training(rule=AdamW(lr=1e-2)), None))[1]


def test_waits_for_what_is_done_are_left_out():
    def step(engine, wait=(), post=(), opcode=0):
        return Instruction(engine, opcode, {}, wait=wait, post=post)

    lookup = step(CONTROL, wait=(1,), opcode=ControlOpcode.LOOKUP)
    made = apart(
        [
            step(LINEAR, post=(1,)),
            step(LINEAR, post=(1,)),
            step(LINEAR, post=(1, 2)),
            step(LOAD, wait=(1,)),
            PAUSE,
            step(LOAD, wait=(1, 2)),
            lookup,
            lookup,
            step(LINEAR, post=(1,)),
            PAUSE,
            lookup,
        ]
    )
    assert [each.wait for each in made] == [(), (), (), (1,), (), (), (1,), (), (), (1,)]
    assert sum(map(is_pause, made)) == 2


@pytest.mark.parametrize("every", [2500, 9000])
def test_a_step_that_yields_in_rtl(training, machine, every):
    step = training(rule=AdamW(lr=1e-2))
    frac = step.fracs(largest(step.exact()), headroom=1)
    machine.device.set("read_latency", 40)
    try:
        reference, run = step.integers(frac), machine.run(step, frac, yield_every=every)
    finally:
        machine.device.set("read_latency", 1)
    for name, words in run.values.items():
        np.testing.assert_array_equal(words, reference.values[name], err_msg=name)
    assert run.loss == reference.mean_loss
    assert sum(map(is_pause, run.instructions)) > 4
    told = forecast(run.instructions, config=CONFIG, read_latency=40)
    assert told.total == pytest.approx(run.counters.cycles, rel=0.01)


def test_a_yield_posts_nothing():
    with pytest.raises(ValueError, match="YIELD posts"):
        Assembler().add(CONTROL, ControlOpcode.YIELD, post=(3,))


def test_several_texts_that_yield_in_rtl(training, machine):
    """Sums of gradients are added up in place, in parts, between sections too."""
    sums = {}
    for tokens, rule in ((TOKENS, None), (TOKENS[2:], AdamW(lr=1e-2))):
        step = training(tokens=tokens, texts=2, sums=sums, rule=rule)
        frac = step.fracs(largest(step.exact()), headroom=1)
        reference, run = step.integers(frac), machine.run(step, frac, yield_every=5000)
        for name, words in run.values.items():
            np.testing.assert_array_equal(words, reference.values[name], err_msg=name)
        assert sum(map(is_pause, run.instructions)) > 4
        sums = {name: (run.values[name], frac[name]) for name in run.values if name.endswith((".sa", ".sb"))}
