"""Adapters in the last layers alone: what enters them is kept of each text, and later steps run nothing before them."""

from copy import deepcopy

import numpy as np
import pytest

from gradloom.program.descent import AdamW
from gradloom.systems.text.operations.learnt import training as planned
from gradloom.systems.text.operations.products import Gradient, Product
from gradloom.systems.text.operations.tensors import Codes
from gradloom.systems.text.program.layout import Layout
from gradloom.systems.text.program.traffic import base_bytes
from gradloom.systems.text.reference.llama import Llama
from gradloom.systems.text.run.step import StepMachine
from gradloom.systems.text.run.trainer import Trainer, trainer_machine
from gradloom.systems.text.run.training import largest

from ..conftest import CONFIG, MODEL, TOKENS

OTHER = TOKENS[::-1]


@pytest.fixture
def last(adapters):
    return {name: each for name, each in adapters.items() if ".layers.1." in name}


@pytest.fixture
def trainer(frozen, last):
    return lambda **options: Trainer(frozen, dict(last), range(MODEL.layers), AdamW(lr=1e-2), **options)


def test_gradients_are_a_llamas(frozen, tensors, last, trainer):
    """Of the first step and of a later one, which begins at what is kept."""
    exact = {
        name: frozen.linear(name.removesuffix(".weight")).weight() if "_proj" in name else values
        for name, values in tensors.items()
    }
    llama = Llama(MODEL, exact.__getitem__, dtype=np.float64)
    loss, gradients = llama.gradients(TOKENS, last)
    again, same = llama.gradients(TOKENS, last, llama.entering(1, TOKENS))
    assert again == loss
    made = trainer()
    first, _ = made.prepared(TOKENS)
    entry = first.exact().values["1.x"]
    made.cache[TOKENS] = {"1.x": (entry, 0)}
    later, _ = made.prepared(TOKENS)
    assert [len(each.layers) for each in (first, later)] == [2, 1]
    for training in (first, later):
        step = training.exact()
        assert step.mean_loss == pytest.approx(loss, rel=1e-12)
        for name, (ga, gb) in gradients.items():
            np.testing.assert_array_equal(ga, same[name][0])
            np.testing.assert_allclose(step.values[f"{name}.ga"], ga, rtol=0, atol=1e-11 * np.abs(ga).max())
            np.testing.assert_allclose(
                step.values[f"{name}.gb"], gb.T / last[name].scale, rtol=0, atol=1e-11 * np.abs(gb).max()
            )


def test_operations_left_out_change_no_word(training, monkeypatch):
    short = training(rule=AdamW(lr=1e-2))
    monkeypatch.setattr(planned, "needed", lambda operations, wanted: operations)
    whole = training(rule=AdamW(lr=1e-2))
    frac = whole.fracs(largest(whole.exact()), headroom=1)
    found, every = short.integers(frac), whole.integers(frac)
    assert len(short.operations) < len(whole.operations) and found.loss == every.loss
    names = [
        f"{each.adapter.name}.{which}"
        for each in whole.operations
        if isinstance(each, Gradient)
        for which in ("ga", "gb", "h", "dh", "a", "b", "ma", "mb")
    ]
    assert len(names) == 48
    for name in names:
        np.testing.assert_array_equal(found.values[name], every.values[name], err_msg=name)


def test_a_trainer_keeps_what_enters_the_last_layers(trainer):
    made = trainer()
    found = [made.step(text) for text in (TOKENS, OTHER) * 3]
    assert found[4].loss < found[2].loss < found[0].loss and sum(each.saturated for each in found) == 0
    first, later = (base_bytes(made.prepared(text)[0].operations) for text in ((1, 2, 3), TOKENS))
    assert [each.base_bytes for each in found] == [first] * 2 + [later] * 4 and first > later
    words, frac = made.cache[TOKENS]["1.x"]
    np.testing.assert_array_equal(words, found[0].values["1.x"])
    assert frac == found[0].frac["1.x"] == found[2].frac["1.x"]
    other = trainer()
    other.restore(deepcopy(made.state()))
    assert other.step(TOKENS).loss == made.step(TOKENS).loss
    assert [each.name for each in made.cached(TOKENS)] == ["1.x"]


def test_layers_that_all_learn_keep_nothing(frozen, adapters):
    made = Trainer(frozen, dict(adapters), range(MODEL.layers), AdamW(lr=1e-2))
    made.step(TOKENS)
    assert made.cached(TOKENS) == [] and made.cache == {TOKENS: {}}
    assert made.prepared(TOKENS)[0].layers == range(MODEL.layers)


def test_two_epochs_in_rtl(trainer, machine, monkeypatch):
    """Every word of the steps on two texts is the reference's; in the second epoch, where the first layer's weights
    were in memory is something else."""
    monkeypatch.setattr(
        "gradloom.systems.text.run.trainer.StepMachine",
        lambda config, memory_bytes, **_: machine if memory_bytes <= 1 << 24 else None,
    )
    made, model = trainer(), trainer()
    assert trainer_machine(made, [TOKENS, OTHER], CONFIG) is machine and isinstance(machine, StepMachine)
    try:
        for text in (TOKENS, OTHER):
            compared(made.step(text), model.step(text))
        matrices = {
            each.weight.name
            for each in made.prepared((1, 2))[0].operations
            if isinstance(each, Product) and isinstance(each.weight, Codes) and ".layers.0." in each.weight.name
        }
        assert len(matrices) == 7
        for name in matrices:
            machine.host.store(machine.frozen[name], b"\xa5" * machine.frozen.sizes[name])
        for text in (TOKENS, OTHER, TOKENS):
            compared(made.step(text), model.step(text))
    finally:
        machine.frozen, machine.held = Layout(), set()


def compared(run, reference):
    assert run.loss == reference.loss and run.saturated == reference.saturated == 0 and run.cycles
    assert len(run.values) > 50
    for name, words in run.values.items():
        np.testing.assert_array_equal(words, reference.values[name], err_msg=name)
