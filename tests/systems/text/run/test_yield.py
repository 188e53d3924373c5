"""A step that yields is the step that does not, in sections that nothing connects."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from gradloom.models.adapters.lora import fresh_lora
from gradloom.models.pack import quantize_linear
from gradloom.program.assembler import Assembler, Instruction
from gradloom.program.descent import AdamW
from gradloom.rtl.formats.vector import VectorOpcode
from gradloom.rtl.machines.language import LINEAR, UPDATE, VECTOR
from gradloom.rtl.shell.engines import CONTROL, LOAD
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.systems.text.program.layout import Layout
from gradloom.systems.text.program.sections import PAUSE, apart, is_pause
from gradloom.systems.text.program.step import lower
from gradloom.systems.text.run.frozen import Frozen
from gradloom.systems.text.run.section_cycles import kept_spacing, section_cycles
from gradloom.systems.text.run.step import place_frozen
from gradloom.systems.text.run.training import Training, largest

from ..conftest import CONFIG, LONG_HEADS, MODEL, TARGETS, TOKENS


def planned(training, every, config=CONFIG):
    frac = training.fracs(largest(training.exact()), headroom=1)
    layout = Layout()
    place_frozen(training, layout)
    return lower(training.operations, frac, layout, config, yield_every=every)


def longest(program):
    """The longest section and all cycles, by the forecast."""
    lengths = section_cycles(program, CONFIG)
    return max(lengths), sum(lengths)


@pytest.mark.parametrize("every", [4000, 6000, 20000])
def test_no_section_is_longer_than_asked(training, every):
    program = planned(training(rule=AdamW(lr=1e-2)), every)
    length, total = longest(program)
    assert every / 3 < length <= every
    assert total < 1.2 * longest(planned(training(rule=AdamW(lr=1e-2)), None))[1]


@pytest.mark.parametrize("every", [6000, 10_000, 20_000, 40_000])
def test_no_section_of_a_large_vocabulary_is_longer_than_asked(tensors, adapters, every):
    """A loss over 2,000 words is longer than the shortest section; its products are bound by the bus."""
    model = replace(MODEL, vocab=2000)
    random = np.random.default_rng(5)
    more = {name: random.normal(0, 0.1, shape) for name, shape in model.tensors.items() if tensors[name].shape != shape}
    found = {**tensors, **more}
    large = Frozen(model, found.__getitem__, lambda name: quantize_linear(found[f"{name}.weight"].astype(np.float32)))
    used = {name: each for name, each in adapters.items() if ".layers.1." in name}
    program = planned(Training(large, TOKENS, used, [0, 1], rule=AdamW(lr=1e-2)), every)
    length, total = longest(program)
    assert length <= every and total < 90_000
    sums = [step for step in program.instructions if step.engine == VECTOR and step.opcode == VectorOpcode.TARGETS]
    assert len(sums) == (2 if every == 6000 else 1)


WIDE = replace(CONFIG, rank=8, tokens=64, lane_depth=256, depth=1024)


@pytest.fixture(scope="module")
def of_rank_8(frozen):
    made = fresh_lora(MODEL, rank=8, targets=TARGETS)
    return Training(frozen, [n % MODEL.vocab for n in range(32)], made, [0, 1], rule=AdamW(lr=1e-2))


@pytest.mark.parametrize("every", [10_000, 20_000])
def test_no_section_with_updates_is_longer_than_asked(of_rank_8, every):
    """Updates behind long gradients wait until these have left, although the bus is idle."""
    program = planned(of_rank_8, every, WIDE)
    lengths, steps = np.array(section_cycles(program, WIDE)), program.instructions
    updates = np.cumsum([step.engine == UPDATE for step in steps])
    counts = np.diff([0, *(updates[at] for at, step in enumerate(steps) if is_pause(step)), updates[-1]])
    assert every / 3 < lengths[counts > 0].max() <= every


@pytest.mark.parametrize("bound", [5_000, 8_000])
def test_a_bound_is_kept_where_the_weavers_clock_is_not(of_rank_8, bound):
    every, cycles = kept_spacing(partial(planned, of_rank_8, config=WIDE), bound, WIDE)
    assert every < bound and bound / 2 < max(cycles) <= bound


def test_a_bound_that_no_program_keeps_is_refused(of_rank_8):
    """Beside the least that can be kept."""
    with pytest.raises(ValueError, match=r"bound=900: the shortest sections .* must be at least") as caught:
        kept_spacing(partial(planned, of_rank_8, config=WIDE), 900, WIDE)
    least = int(str(caught.value).rsplit(" ", 1)[1])
    assert max(kept_spacing(partial(planned, of_rank_8, config=WIDE), least, WIDE)[1]) <= least


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


@pytest.mark.parametrize(
    ("model", "every"), [*((MODEL, every) for every in (600, 2500, 9000)), (LONG_HEADS, 600)], indirect=["model"]
)
def test_a_step_that_yields_in_rtl(training, fresh, every):
    step = training(rule=AdamW(lr=1e-2))
    frac = step.fracs(largest(step.exact()), headroom=1)
    fresh.device.set("read_latency", 40)
    try:
        reference, run = step.integers(frac), fresh.run(step, frac, yield_every=every)
    finally:
        fresh.device.set("read_latency", 1)
    for name, words in run.values.items():
        np.testing.assert_array_equal(words, reference.values[name], err_msg=name)
    # The shortest sections part the loss: nine tokens by six. Each part is cut to 16 fraction bits, of base 2.
    losses = [step for step in run.instructions if step.engine == VECTOR and step.opcode == VectorOpcode.TARGETS]
    assert len(losses) == (2 if every == 600 else 1)
    cut = (len(losses) - 1) * 2.0**-16 * math.log(2) / (len(TOKENS) - 1)
    assert run.loss == pytest.approx(reference.mean_loss, rel=0, abs=1.001 * cut)
    assert sum(map(is_pause, run.instructions)) > 4
    assert run.ran.check()["commands"] == len(run.instructions)


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
