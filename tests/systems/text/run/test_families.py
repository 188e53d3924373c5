"""What families of models have beside LLaMA's parts, in float, in integers, in RTL, and as a request."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.models.adapters.language.lora_xs import fresh_cores
from gradloom.models.adapters.language.methods import IA3
from gradloom.models.adapters.language.vectors import Vector
from gradloom.models.adapters.lora import Adapter, fresh_lora
from gradloom.program.descent import AdamW
from gradloom.systems.text.operations.elements import Biased
from gradloom.systems.text.operations.scaling import Norm
from gradloom.systems.text.order import arranged
from gradloom.systems.text.run.decode import Decoding
from gradloom.systems.text.run.step import StepMachine
from gradloom.systems.text.run.trainer import Trainer
from gradloom.systems.text.run.training import Training, largest
from gradloom.systems.text.small import SMALL, frozen_of, random_tensors

from ....deep import deep
from ..conftest import CONFIG, FAMILIES, LONG_HEADS, TARGETS, TOKENS, exact_llama


@pytest.fixture(scope="module", params=[FAMILIES, LONG_HEADS], ids=["heads of 64", "heads of 128"])
def model(request):
    return request.param


@pytest.fixture(scope="module")
def frozen(model):
    return frozen_of(random_tensors(np.random.default_rng(5), model), model)


@pytest.fixture(scope="module")
def adapters(model):
    random = np.random.default_rng(6)
    return {
        name: Adapter(random.normal(0, 0.1, each.a.shape), random.normal(0, 0.1, each.b.shape), each.scale)
        for name, each in fresh_lora(model, rank=2, targets=TARGETS).items()
    }


@pytest.fixture(scope="module")
def step(model, frozen, adapters):
    """A step with its fraction bits, in float and in integers."""
    made = Training(frozen, TOKENS, adapters, range(model.layers), rule=AdamW(lr=1e-2))
    exact = made.exact()
    frac = made.fracs(largest(exact), headroom=1)
    return made, frac, exact, made.integers(frac)


def test_operations_are_those_of_the_model(step, frozen, adapters):
    _, _, made, _ = step
    loss, gradients = exact_llama(frozen).gradients(TOKENS, adapters)
    assert made.mean_loss == pytest.approx(loss, rel=1e-12)
    ordered = arranged(frozen.model, {name: replace(adapters[name], b=gb) for name, (_, gb) in gradients.items()})
    for name, (ga, _) in gradients.items():
        np.testing.assert_allclose(made.values[f"{name}.ga"], ga, rtol=0, atol=1e-11 * np.abs(ga).max())
        gb = ordered[name].b.T / adapters[name].scale
        np.testing.assert_allclose(made.values[f"{name}.gb"], gb, rtol=0, atol=1e-11 * np.abs(gb).max())


def test_integers_follow_floats(step):
    """Within the bound of a step without these parts."""
    _, frac, exact, made = step
    assert made.saturated == 0 and made.mean_loss == pytest.approx(exact.mean_loss, rel=1e-4)
    for name, values in exact.values.items():
        error = made.values[name] * 2.0 ** -frac[name] - values
        assert np.sqrt(np.mean(error**2)) <= 5e-3 * np.sqrt(np.mean(values**2)), name


def test_a_step_in_rtl(step, fresh, frozen):
    made, frac, _, reference = step
    assert sum(isinstance(each, Biased) for each in made.operations) == 6
    norms = sum(isinstance(each, Norm) for each in made.operations)
    assert norms == (9 + 2 * 3 if frozen.model.head_norms else 5 + 2 * 2)
    run = fresh.run(made, frac)
    assert run.check(reference)["commands"] == len(run.instructions)


def test_tokens_behind_a_text(fresh, frozen, adapters):
    """Rows that a step over all tokens makes, and in RTL those of the integers."""
    whole = Training(frozen, TOKENS, adapters, range(frozen.model.layers))
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
    token = Decoding(whole, frac, position, [TOKENS[position]])
    np.testing.assert_allclose(token.exact(exact).values["next.2.logits"][0], floats["2.logits"][position], rtol=1e-9)
    fresh.load(whole, frac)
    after = token.integers(before)
    np.testing.assert_array_equal(after.values["next.2.logits"][0], wanted["2.logits"][position])
    loaded = token.load(fresh, before)
    fresh.host.request(loaded.start, len(loaded.program))
    fresh.host.wait_request()
    for name, words in token.values(fresh, loaded).items():
        np.testing.assert_array_equal(words, after.values[name], err_msg=name)


def learning(frozen, kind, tensors):
    """Adapters of a kind on queries and keys, or factors of keys; each moves the loss."""
    model, random = frozen.model, np.random.default_rng(7)
    if kind == "ia3":
        # Its factors stand behind the bias, as PEFT has them.
        return {
            name: Vector(random.normal(1, 0.3, max(next(iter(IA3.shapes(model, name, 1).values())))))
            for name in IA3.modules(model, IA3.usual, range(model.layers))
        }
    targets = ("q_proj", "k_proj")
    if kind == "lora-xs":
        made = fresh_cores(model, tensors.__getitem__, rank=2, targets=targets, layers=range(model.layers))
        return {name: each.taking({"r": random.normal(0, 0.1, each.r.shape)}) for name, each in made.items()}
    return {
        name: replace(each, b=random.normal(0, 0.1, each.b.shape))
        for name, each in fresh_lora(model, rank=2, targets=targets).items()
    }


@pytest.mark.parametrize("kind", ["lora", "lora-xs", "ia3"])
def test_what_learns_moves_against_its_gradient(frozen, model, kind):
    """In the order of files, and in integers, which make an update."""
    before = learning(frozen, kind, random_tensors(np.random.default_rng(5), model))
    loss, gradients = exact_llama(frozen).gradients(TOKENS, before)
    trainer = Trainer(frozen, dict(before), range(model.layers), 0.1)
    assert trainer.loss(TOKENS) == pytest.approx(loss, rel=1e-9)
    trainer.step(TOKENS)
    for name, gradient in gradients.items():
        for (which, old), g in zip(before[name].parts.items(), gradient, strict=True):
            moved = old - trainer.adapters[name].parts[which]
            assert np.abs(moved - 0.1 * g).max() < 2e-3 * np.abs(g).max(), (name, which)


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
