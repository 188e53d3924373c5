"""Steps of learnt norms and of (IA)³: mathematics, integers and RTL."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gradloom.models.adapters.language.methods import IA3, LAYERNORM
from gradloom.models.adapters.language.vectors import Vector
from gradloom.models.pack import quantize_linear
from gradloom.models.texts.example import Example
from gradloom.program.descent import AdamW
from gradloom.rtl.formats.vector import VectorOpcode
from gradloom.rtl.machines.language import VECTOR
from gradloom.systems.text.run.frozen import Frozen
from gradloom.systems.text.run.trainer import Trainer, trainer_machine
from gradloom.systems.text.run.training import Training, largest

from ..conftest import CONFIG, MODEL, TOKENS, exact_llama
from .test_step import compared

METHODS = {"layernorm": LAYERNORM, "ia3": IA3}


@pytest.fixture
def vectors(tensors):
    """Of a method, near where a fine-tune starts."""

    def make(method, targets=None, layers=range(MODEL.layers), model=MODEL):
        random = np.random.default_rng(6)
        found = method.modules(model, targets or method.usual, layers)
        sizes = {name: max(next(iter(method.shapes(model, name, 1).values()))) for name in found}
        return {
            name: Vector(tensors[f"{name}.weight"] if method is LAYERNORM else random.normal(1, 0.3, sizes[name]))
            for name in found
        }

    return make


MASKED = Example(TOKENS, tuple(place in (2, 5, 6) for place in range(len(TOKENS))))


@pytest.mark.parametrize("text", [TOKENS, MASKED], ids=["all", "masked"])
@pytest.mark.parametrize("name", METHODS)
def test_gradients_are_those_of_the_model(frozen, vectors, name, text):
    """Those of a step in float64, whose frozen words are the model's, and the machine's within what formats lose."""
    learnt = vectors(METHODS[name])
    step = Training(frozen, text, learnt, range(MODEL.layers), rule=AdamW(lr=1e-3))
    exact = step.exact()
    loss, gradients = exact_llama(frozen).gradients(text, learnt)
    assert exact.mean_loss == pytest.approx(loss, rel=1e-12)
    frac = step.fracs(largest(exact), headroom=1)
    made = step.integers(frac)
    assert made.saturated == 0 and made.mean_loss == pytest.approx(loss, rel=1e-4)
    for module, (wanted,) in gradients.items():
        np.testing.assert_allclose(exact.values[f"{module}.gw"][0], wanted, rtol=1e-9, atol=1e-12)
        found = made.values[f"{module}.gw"][0] * 2.0 ** -frac[f"{module}.gw"]
        assert np.linalg.norm(found - wanted) < 2e-3 * np.linalg.norm(wanted), module


@pytest.mark.parametrize("rule", [AdamW(lr=1e-2), 0.05], ids=["adamw", "sgd"])
@pytest.mark.parametrize("name", METHODS)
def test_a_step_in_rtl(frozen, vectors, machine, name, rule):
    learnt = vectors(METHODS[name])
    step = Training(frozen, TOKENS, learnt, range(MODEL.layers), rule=rule)
    machine.device.set("stall", 25)
    try:
        reference, run = compared(step, machine)
    finally:
        machine.device.set("stall", 0)
    assert run.loss == reference.mean_loss > 1
    made = {f"{module}.{kind}" for module in learnt for kind in ("w", "gw", *(["mw"] * isinstance(rule, AdamW)))}
    assert made <= set(run.values)
    frac = step.fracs(largest(step.exact()), headroom=1)
    for module, each in learnt.items():
        moved = run.values[f"{module}.w"][0] * 2.0 ** -frac[f"{module}.w"] - each.values
        assert np.abs(moved).max() > (5e-3 if isinstance(rule, AdamW) else 1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_the_forecast_of_a_step_that_yields_and_shares_places(frozen, vectors, machine, name):
    """It leaves the words that one without does."""
    step = Training(frozen, TOKENS, vectors(METHODS[name]), range(MODEL.layers), rule=AdamW(lr=1e-2))
    frac = step.fracs(largest(step.exact()), headroom=1)
    machine.device.set("read_latency", 40)
    try:
        reference, run = step.integers(frac), machine.run(step, frac, yield_every=4000, share=True)
    finally:
        machine.device.set("read_latency", 1)
    for module in step.vectors:
        for kind in ("w", "mw"):
            np.testing.assert_array_equal(run.values[f"{module}.{kind}"], reference.values[f"{module}.{kind}"])
    assert (run.loss, run.counters.saturated) == (reference.mean_loss, reference.saturated)
    assert run.ran.check()["commands"] == len(run.instructions)


def test_factors_of_more_features_than_the_engine_holds(tensors, fresh):
    """They are loaded in parts."""
    model = replace(MODEL, inter=CONFIG.features + 64)
    random = np.random.default_rng(8)
    held = {
        name: random.normal(1, 0.2, shape) if len(shape) == 1 else random.normal(0, 0.1, shape)
        for name, shape in model.tensors.items()
    }
    wide = Frozen(model, held.__getitem__, lambda name: quantize_linear(held[f"{name}.weight"].astype(np.float32)))
    learnt = {"model.layers.0.mlp.down_proj": Vector(random.normal(1, 0.3, model.inter))}
    inputs = {"x": random.normal(0, 1, (4, 128)), "gradient": random.normal(0, 1e-2, (4, 128))}
    # Its matrices are others of the same names.
    _, run = compared(Training(wide, (0, 1, 2, 3), learnt, [0], head=False, inputs=inputs, rule=0.05), fresh)
    assert np.abs(run.values["model.layers.0.mlp.down_proj.gw"]).min(axis=0)[-64:].any()
    loads = [each for each in run.instructions if each.engine == VECTOR and each.opcode == VectorOpcode.WEIGHTS]
    assert max(each.operands["tiles"] for each in loads) <= CONFIG.features // 64


@pytest.mark.parametrize("name", METHODS)
def test_a_trainer_in_rtl_adds_texts_up_and_keeps_the_trunk(frozen, vectors, fresh, monkeypatch, name):
    """Two updates of two texts each from the last layer on: words, moments and losses of the reference."""
    monkeypatch.setattr("gradloom.systems.text.run.trainer.StepMachine", lambda config, **_: fresh)
    texts = TOKENS, TOKENS[::-1]
    model, made = (
        Trainer(frozen, dict(vectors(METHODS[name], layers=[1])), range(MODEL.layers), AdamW(lr=1e-2), texts=2)
        for _ in range(2)
    )
    trainer_machine(made, texts, CONFIG)
    for _ in range(2):
        expected, found = (each.update(texts) for each in (model, made))
        assert found.loss == expected.loss and found.saturated == expected.saturated == 0
    assert found.cycles and [len(each) for each in made.cache.values()] == [1, 1]
    for module, each in model.adapters.items():
        np.testing.assert_array_equal(made.adapters[module].values, each.values)
        np.testing.assert_array_equal(made.moments[f"{module}.mw"], model.moments[f"{module}.mw"])
    later = Trainer(frozen, dict(vectors(METHODS[name], layers=[1])), range(MODEL.layers), AdamW(lr=1e-2), texts=2)
    later.restore(deepcopy(model.state()))
    assert later.update(texts).loss == model.update(texts).loss


@pytest.mark.parametrize("name", METHODS)
def test_text_that_was_never_learnt_gets_likelier(frozen, vectors, name):
    """Letters of this project's own words, by the integer reference: windows that are judged are not learnt."""
    written = (Path(__file__).parents[4] / "docs" / "glossary.md").read_bytes()[:1024]
    letters = [byte - 32 for byte in written if 32 <= byte < 128]
    windows = [tuple(letters[at : at + 16]) for at in range(0, 16 * 32, 16)]
    trainer = Trainer(frozen, dict(vectors(METHODS[name])), range(MODEL.layers), AdamW(lr=2e-2))
    before = np.mean([trainer.loss(window) for window in windows[1::2]])
    found = [trainer.step(window) for window in windows[::2]]
    after = np.mean([trainer.loss(window) for window in windows[1::2]])
    assert sum(each.saturated for each in found) == 0 and after < before - 0.2
