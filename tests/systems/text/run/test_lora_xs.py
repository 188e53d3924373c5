"""Steps of LoRA-XS: mathematics, integers and RTL."""

import numpy as np
import pytest

from gradloom.models.adapters.language.lora_xs import fresh_cores
from gradloom.program.descent import AdamW
from gradloom.systems.text.run.trainer import Trainer, trainer_machine
from gradloom.systems.text.run.training import Training, largest

from ..conftest import CONFIG, MODEL, TARGETS, TOKENS, exact_llama
from .test_step import compared


@pytest.fixture
def cores(tensors):
    """Near where a fine-tune starts, or there."""

    def make(layers=range(MODEL.layers), size=0.3):
        random = np.random.default_rng(4)
        found = fresh_cores(MODEL, tensors.__getitem__, rank=2, targets=TARGETS, layers=layers)
        return {name: each.taking({"r": random.normal(0, size, each.r.shape)}) for name, each in found.items()}

    return make


def test_gradients_are_those_of_the_model(frozen, cores):
    """Those of a step in float64, and the machine's within what formats lose."""
    learnt = cores()
    step = Training(frozen, TOKENS, learnt, range(MODEL.layers), rule=AdamW(lr=1e-3))
    exact = step.exact()
    loss, gradients = exact_llama(frozen).gradients(TOKENS, learnt)
    assert exact.mean_loss == pytest.approx(loss, rel=1e-6)
    frac = step.fracs(largest(exact), headroom=1)
    made = step.integers(frac)
    assert made.saturated == 0 and made.mean_loss == pytest.approx(loss, rel=1e-4)
    for module, (wanted,) in gradients.items():
        np.testing.assert_allclose(exact.values[f"{module}.gr"][:, :2], wanted.T, rtol=1e-4, atol=1e-7)
        found = made.values[f"{module}.gr"] * 2.0 ** -frac[f"{module}.gr"]
        assert np.linalg.norm(found[:, :2] - wanted.T) < 2e-3 * np.linalg.norm(wanted), module
        assert not found[:, 2:].any()


@pytest.mark.parametrize("rule", [AdamW(lr=1e-2), 0.05], ids=["adamw", "sgd"])
def test_a_step_in_rtl(frozen, cores, machine, rule):
    step = Training(frozen, TOKENS, cores(), range(MODEL.layers), rule=rule)
    machine.device.set("stall", 25)
    try:
        reference, run = compared(step, machine)
    finally:
        machine.device.set("stall", 0)
    assert run.loss == reference.mean_loss > 1
    made = {f"{name}.{kind}" for name in step.cores for kind in ("r", "b", "gb", "gr", *["mr"] * (rule != 0.05))}
    assert made <= set(run.values)
    frac = step.fracs(largest(step.exact()), headroom=1)
    for name, each in step.cores.items():
        moved = run.values[f"{name}.r"][:, :2] * 2.0 ** -frac[f"{name}.r"] - each.r.T
        assert np.abs(moved).max() > (5e-3 if rule != 0.05 else 1e-6)


def test_the_first_step_and_one_that_yields_and_shares_places(frozen, cores, machine):
    """R of 0 changes nothing and learns; cycles are those of the forecast."""
    step = Training(frozen, TOKENS, cores(size=0), range(MODEL.layers), rule=AdamW(lr=1e-2))
    frac = step.fracs(largest(step.exact()), headroom=1)
    machine.device.set("read_latency", 40)
    try:
        reference, run = step.integers(frac), machine.run(step, frac, yield_every=4000, share=True)
    finally:
        machine.device.set("read_latency", 1)
    for name in step.cores:
        for kind in ("r", "mr"):
            np.testing.assert_array_equal(run.values[f"{name}.{kind}"], reference.values[f"{name}.{kind}"])
    assert (run.loss, run.counters.saturated) == (reference.mean_loss, reference.saturated)
    assert run.loss == Training(frozen, TOKENS, {}, range(MODEL.layers)).integers(frac).mean_loss
    assert run.ran.check()["commands"] == len(run.instructions)


def test_a_trainer_in_rtl_adds_texts_up_and_keeps_the_trunk(frozen, cores, fresh, monkeypatch):
    """Two updates of two texts each from the last layer on: words, moments and losses of the reference."""
    monkeypatch.setattr("gradloom.systems.text.run.trainer.StepMachine", lambda config, **_: fresh)
    texts, rule = (TOKENS, TOKENS[::-1]), AdamW(lr=1e-2)
    model, made = (Trainer(frozen, cores(layers=[1], size=0), range(MODEL.layers), rule, texts=2) for _ in range(2))
    trainer_machine(made, texts, CONFIG)
    losses = []
    for _ in range(2):
        expected, found = (each.update(texts) for each in (model, made))
        assert found.loss == expected.loss and found.saturated == expected.saturated == 0
        losses.append(found.loss)
    assert losses[0] > losses[1]
    for name, each in model.adapters.items():
        np.testing.assert_array_equal(made.adapters[name].r, each.r)
        np.testing.assert_array_equal(made.moments[f"{name}.mr"], model.moments[f"{name}.mr"])
