"""What families of models have beside LLaMA's parts, in float, in integers, in RTL, and as a request."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.models.adapters.language.methods import IA3
from gradloom.models.adapters.language.vectors import Vector
from gradloom.models.adapters.lora import Adapter, fresh_lora
from gradloom.program.descent import AdamW
from gradloom.systems.text.operations.elements import Biased
from gradloom.systems.text.run.decode import Decoding
from gradloom.systems.text.run.step import StepMachine
from gradloom.systems.text.run.training import Training, largest
from gradloom.systems.text.small import SMALL, frozen_of, random_tensors

from ....deep import deep
from ..conftest import CONFIG, TARGETS, TOKENS, exact_llama
from ..conftest import FAMILIES as MODEL


@pytest.fixture(scope="module")
def frozen():
    return frozen_of(random_tensors(np.random.default_rng(5), MODEL), MODEL)


@pytest.fixture(scope="module")
def adapters():
    random = np.random.default_rng(6)
    return {
        name: Adapter(random.normal(0, 0.1, each.a.shape), random.normal(0, 0.1, each.b.shape), each.scale)
        for name, each in fresh_lora(MODEL, rank=2, targets=TARGETS).items()
    }


@pytest.fixture(scope="module")
def step(frozen, adapters):
    """A step with its fraction bits, in float and in integers."""
    made = Training(frozen, TOKENS, adapters, range(MODEL.layers), rule=AdamW(lr=1e-2))
    exact = made.exact()
    frac = made.fracs(largest(exact), headroom=1)
    return made, frac, exact, made.integers(frac)


def test_operations_are_those_of_the_model(step, frozen, adapters):
    _, _, made, _ = step
    loss, gradients = exact_llama(frozen).gradients(TOKENS, adapters)
    assert made.mean_loss == pytest.approx(loss, rel=1e-12)
    for name, (ga, gb) in gradients.items():
        np.testing.assert_allclose(made.values[f"{name}.ga"], ga, rtol=0, atol=1e-11 * np.abs(ga).max())
        gb = gb.T / adapters[name].scale
        np.testing.assert_allclose(made.values[f"{name}.gb"], gb, rtol=0, atol=1e-11 * np.abs(gb).max())


def test_integers_follow_floats(step):
    """Within the bound of a step without these parts."""
    _, frac, exact, made = step
    assert made.saturated == 0 and made.mean_loss == pytest.approx(exact.mean_loss, rel=1e-4)
    for name, values in exact.values.items():
        error = made.values[name] * 2.0 ** -frac[name] - values
        assert np.sqrt(np.mean(error**2)) <= 5e-3 * np.sqrt(np.mean(values**2)), name


def test_a_step_in_rtl(step, fresh):
    made, frac, _, reference = step
    assert sum(isinstance(each, Biased) for each in made.operations) == 6
    run = fresh.run(made, frac)
    assert run.check(reference)["commands"] == len(run.instructions)


def test_tokens_behind_a_text(step, fresh, frozen, adapters):
    """Rows that a step over all tokens makes, and in RTL those of the integers."""
    whole = Training(frozen, TOKENS, adapters, range(MODEL.layers))
    exact = whole.exact()
    frac = whole.fracs(largest(exact), headroom=2)
    before = whole.integers(frac)
    wanted = {name: values.copy() for name, values in before.values.items()}
    floats = {name: values.copy() for name, values in exact.values.items()}
    position = 6
    for held in (before, exact):
        for name, values in held.values.items():
            if name.endswith((".k", ".v")):
                values[position:] = 0
    token = Decoding(whole, frac, position, TOKENS[position])
    np.testing.assert_allclose(token.exact(exact).values["next.2.logits"][0], floats["2.logits"][position], rtol=1e-9)
    fresh.load(whole, frac)
    after = token.integers(before)
    np.testing.assert_array_equal(after.values["next.2.logits"][0], wanted["2.logits"][position])
    loaded = token.load(fresh, before)
    fresh.host.request(loaded.start, len(loaded.program))
    fresh.host.wait_request()
    for name, words in token.values(fresh, loaded).items():
        np.testing.assert_array_equal(words, after.values[name], err_msg=name)


def test_vectors_multiply_biases_too(frozen):
    """IA3's factors stand behind the bias, as PEFT has them."""
    random = np.random.default_rng(7)
    learnt = {
        name: Vector(random.normal(1, 0.3, max(next(iter(IA3.shapes(MODEL, name, 1).values())))))
        for name in IA3.modules(MODEL, IA3.usual, range(MODEL.layers))
    }
    step = Training(frozen, TOKENS, learnt, range(MODEL.layers), rule=AdamW(lr=1e-2))
    loss, gradients = exact_llama(frozen).gradients(TOKENS, learnt)
    made = step.exact()
    assert made.mean_loss == pytest.approx(loss, rel=1e-12)
    for name, (gradient,) in gradients.items():
        np.testing.assert_allclose(made.values[f"{name}.gw"][0], gradient, rtol=0, atol=1e-11)


@deep
def test_a_step_of_a_large_vocabulary_in_rtl():
    """Targets lie where an index of 17 bits would be another's, as those of Llama 3 and Qwen do."""
    model = replace(SMALL, hidden=64, inter=64, layers=1, heads=1, kv_heads=1, vocab=(1 << 17) + 100, tied=True)
    frozen = frozen_of(random_tensors(np.random.default_rng(7), model), model)
    tokens = 5, (1 << 17) + 99
    learnt = fresh_lora(model, rank=2, targets=("q_proj",))
    step = Training(frozen, tokens, learnt, range(1), rule=0.05)
    frac = step.fracs(largest(step.exact()), headroom=1)
    reference = step.integers(frac)
    machine = StepMachine(CONFIG, memory_bytes=1 << 27)
    try:
        run = machine.run(step, frac)
        assert run.check(reference)["commands"] == len(run.instructions)
    finally:
        machine.close()
    gradient = run.values["1.dlogits"]
    np.testing.assert_array_equal(gradient[:1].argmin(axis=1), tokens[1:])
