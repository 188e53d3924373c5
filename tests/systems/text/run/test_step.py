"""A whole training step in RTL equals the reference, word for word; its cycles are those of the forecast."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.models.adapters.lora import fresh_lora
from gradloom.models.texts.example import Example
from gradloom.program.descent import AdamW
from gradloom.rtl.machines.language import LINEAR
from gradloom.rtl.shell.engines import LOAD
from gradloom.sim.run.counted import PACED, MismatchError
from gradloom.systems.text.run.trainer import as_far_as_formats
from gradloom.systems.text.run.training import Training, largest
from gradloom.systems.text.small import frozen_of, random_tensors

from ..conftest import CONFIG, MODEL, TOKENS


def compared(training, machine):
    frac = training.fracs(largest(training.exact()), headroom=1)
    reference, run = training.integers(frac), machine.run(training, frac)
    checked = run.check(reference)
    assert reference.saturated == 0 and checked["words"] == sum(each.size for each in run.values.values())
    # Random stalls have no forecast.
    assert checked["commands"] == (len(run.instructions) if machine.device.memory else 0)
    return reference, run


@pytest.mark.parametrize("stall", [0, 25])
@pytest.mark.parametrize("rule", [AdamW(lr=1e-2), 0.05], ids=["adamw", "sgd"])
def test_a_step_of_a_whole_model(training, machine, rule, stall):
    machine.device.set("stall", stall)
    try:
        reference, run = compared(training(rule=rule), machine)
    finally:
        machine.device.set("stall", 0)
    assert run.loss == reference.mean_loss > 1
    # Two layers, four kinds of h and gradients, twelve adapter tensors and the moments, logits.
    assert {"0.p", "1.ds", "2.dlogits", "1.dx", "model.layers.1.mlp.down_proj.a"} < set(run.values)


def test_tokens_that_are_not_learnt_have_no_loss_and_no_gradient(training, machine):
    """They name no target; the mean is over those that are learnt, whatever stands behind them."""
    learnt = (False, False, False, True, True, False, True, False, False)
    reference, run = compared(training(tokens=Example(TOKENS, learnt), rule=AdamW(lr=1e-2)), machine)
    gradient = run.values["2.dlogits"]
    assert not gradient[[0, 1, 4, 6, 7, 8]].any() and gradient[[2, 3, 5]].any(axis=1).all()
    assert run.loss == reference.mean_loss and reference.foretold == 3
    # A text that ends with the last token that is learnt: the same loss and gradients, in floating point exactly.
    whole, cut = (
        training(tokens=Example(TOKENS[:size], learnt[:size]), rule=AdamW(lr=1e-2)).exact() for size in (9, 7)
    )
    assert abs(whole.mean_loss - cut.mean_loss) < 1e-12 and abs(whole.mean_loss - run.loss) < 1e-3 * whole.mean_loss
    gradients = [name for name in whole.values if name.endswith((".ga", ".gb"))]
    assert len(gradients) == 12
    for name in gradients:
        np.testing.assert_allclose(whole.values[name], cut.values[name], rtol=1e-9, atol=1e-15)


def test_a_second_step_goes_on_with_moments(training, machine):
    first, _ = compared(training(rule=AdamW(lr=1e-2)), machine)
    moments = {name: words for name, words in first.values.items() if name.endswith((".ma", ".mb"))}
    compared(training(rule=AdamW(lr=1e-2), moments=moments, number=2), machine)


@pytest.mark.parametrize("count", [2, 16])
def test_a_block_alone_of_few_and_of_most_tokens(training, machine, count):
    random = np.random.default_rng(count)
    shape = count, MODEL.hidden
    inputs = {"x": random.normal(0, 1, shape), "gradient": random.normal(0, 1e-2, shape)}
    _, run = compared(training([0], tokens=tuple(range(count)), head=False, inputs=inputs), machine)
    assert run.loss == 0


def test_a_counter_that_is_wrong_ends_a_run(training, machine, monkeypatch):
    """Each that a program explains; of clipped words the reference tells."""
    random = np.random.default_rng(3)
    inputs = {"x": random.normal(0, 1, (2, MODEL.hidden)), "gradient": random.normal(0, 1e-2, (2, MODEL.hidden))}
    step = training([0], tokens=(0, 1), head=False, inputs=inputs)
    frac = step.fracs(largest(step.exact()), headroom=1)
    right = machine.run(step, frac)
    names = set(right.counters.as_dict()) - set(PACED)
    assert {"commands_done", "read_beats", "write_beats", "saturated", "underflowed", "gradient_norm"} < names
    for name in names:
        held = getattr(right.counters, name)
        wrong = replace(right.counters, **{name: held + 1})
        match = f"the counter {name} is {held + 1}, not {held}"
        with pytest.raises(MismatchError, match=match):
            replace(right.ran, counters=wrong).check(saturated=right.counters.saturated)
        if name != "saturated":
            monkeypatch.setattr(machine.host, "run", lambda *_, wrong=wrong, **__: wrong)
            with pytest.raises(MismatchError, match=match):
                machine.run(step, frac)


def test_a_mismatch_is_no_end_of_the_formats():
    def step(number):
        if number:
            raise MismatchError("RTL and program differ")
        return number

    with pytest.raises(MismatchError):
        as_far_as_formats(step, 2, lambda *_: None)


@pytest.mark.parametrize("latency", [1, 40])
def test_the_forecast_of_a_step(training, machine, latency):
    """It is of the memory that the step runs on."""
    machine.device.set("read_latency", latency)
    try:
        _, run = compared(training(), machine)
    finally:
        machine.device.set("read_latency", 1)
    assert run.ran.memory.read_latency == latency and run.ran.forecast.total == run.counters.cycles


def test_a_changed_model_of_time_is_caught(training, machine, forecast_is_compared):
    _, run = compared(training(rule=AdamW(lr=1e-2)), machine)
    constants = "linear.HiddenFoot.latency", "gradient.Requantize.latency", "update.AdamLane.latency", "vector.FIFO"
    forecast_is_compared(run.ran, *constants, saturated=0)


def test_work_is_woven(training, machine):
    """Between two tile loads of a product are loads of other work."""
    _, run = compared(training(), machine)
    order = [step.operands["dest"] for step in run.instructions if step.engine == LOAD]
    assert any(1 in order[:n] and 1 in order[n:] and order[n] >= 4 for n in range(len(order)))


def test_operands_of_wide_layers_pass_through(fresh):
    """Forward of one linear and backward of two, with h of adapters; the same words if the machine held them."""
    model = replace(MODEL, inter=64 * (CONFIG.depth // len(TOKENS) + 2), layers=1)
    frozen = frozen_of(random_tensors(np.random.default_rng(3), model), model)
    random = np.random.default_rng(4)
    targets = ("v_proj", "gate_proj", "down_proj")
    adapters = {
        name: replace(each, b=random.normal(0, 0.1, each.b.shape))
        for name, each in fresh_lora(model, rank=2, targets=targets).items()
    }
    _, run = compared(Training(frozen, TOKENS, adapters, [0], rule=AdamW(lr=1e-2)), fresh)
    products = [each.operands for each in run.instructions if each.engine == LINEAR]
    wide = [each for each in products if each["inner"] * each["tokens"] > CONFIG.depth]
    assert [each["outer"] for each in wide] == [1] * 6 and {each["rank"] for each in wide} == {0, 2}
