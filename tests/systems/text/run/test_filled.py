"""Models of no whole tiles, and odd ranks, on a machine: what fills them stays zero, and files never see it."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.models.adapters.language.instant import fresh_instant
from gradloom.models.adapters.language.lora_xs import fresh_cores
from gradloom.models.adapters.language.methods import IA3, LAYERNORM
from gradloom.models.adapters.language.vectors import Vector
from gradloom.models.adapters.lora import Adapter, fresh_lora
from gradloom.models.filled import cut, shapes_of
from gradloom.models.language import PROJECTIONS
from gradloom.program.descent import AdamW, Lion
from gradloom.systems.text.instant_text import InstantLlama
from gradloom.systems.text.operations.learnt.updates import Pack
from gradloom.systems.text.order import arranged, restored
from gradloom.systems.text.reference.llama import Llama
from gradloom.systems.text.run.instant import InstantTrainer
from gradloom.systems.text.run.trainer import Trainer
from gradloom.systems.text.run.training import Training, largest
from gradloom.systems.text.small import frozen_of, random_tensors
from gradloom.systems.text.stored import unpacked_words

from ....models.test_filled import MODELS, QWEN, TOKENS


class Case:
    """A model with random weights, as a machine has it, and unfilled in float64."""

    def __init__(self, model):
        self.model, self.tensors = model, random_tensors(np.random.default_rng(5), model)
        self.frozen = frozen_of(self.tensors, model)

    def tensor(self, key):
        name = key.removesuffix(".weight")
        if name.rpartition(".")[2] not in PROJECTIONS:
            return self.tensors[key]
        return cut(self.frozen.model, self.frozen.linear(name).weight(), *shapes_of(name))

    @property
    def llama(self):
        return Llama(self.model, self.tensor, dtype=np.float64)

    def adapters(self, rank):
        random = np.random.default_rng(6)
        return {
            name: Adapter(random.normal(0, 0.1, each.a.shape), random.normal(0, 0.1, each.b.shape), each.scale)
            for name, each in fresh_lora(self.model, rank=rank, targets=PROJECTIONS).items()
        }

    def filled_places(self, adapters):
        """Of each of the machine's arrays, by name, where files have nothing."""
        ones = {name: replace(each, a=each.a * 0 + 1, b=each.b * 0 + 1) for name, each in adapters.items()}
        made = arranged(self.frozen.model, ones)
        return {f"{name}.{which}": part == 0 for name, each in made.items() for which, part in zip("ab", _rows(each))}


def _rows(adapter):
    return adapter.a, adapter.b.T


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    return Case(MODELS[request.param])


def test_a_step_has_the_gradients_of_the_model(case):
    """In float64 as the unfilled model has them, and in integers within their usual bound."""
    adapters = case.adapters(3)
    step = Training(case.frozen, TOKENS, adapters, range(2), rule=AdamW(lr=1e-2))
    exact = step.exact()
    loss, gradients = case.llama.gradients(TOKENS, adapters)
    assert exact.mean_loss == pytest.approx(loss, rel=1e-12)
    wanted = arranged(case.frozen.model, {name: Adapter(*each, 1.0) for name, each in gradients.items()})
    for name, each in wanted.items():
        for which, values in zip("ab", _rows(each)):
            found = exact.values[f"{name}.g{which}"] * (adapters[name].scale if which == "b" else 1)
            np.testing.assert_allclose(found, values, rtol=0, atol=1e-10 * np.abs(values).max())
    frac = step.fracs(largest(exact), headroom=1)
    made = step.integers(frac)
    assert made.saturated == 0 and made.mean_loss == pytest.approx(loss, rel=1e-4)
    for name, values in exact.values.items():
        error = made.values[name] * 2.0 ** -frac[name] - values
        assert np.sqrt(np.mean(error**2)) <= 5e-3 * np.sqrt(np.mean(values**2)), name


@pytest.mark.parametrize(
    ("rule", "wide"),
    [
        (AdamW(lr=1e-2, weight_decay=0.1), None),
        (Lion(lr=1e-2, weight_decay=0.1), None),
        (0.05, None),
        (AdamW(lr=1e-2), True),
        (AdamW(lr=1e-2), False),
    ],
    ids=["adamw", "lion", "sgd", "int8", "nf4"],
)
def test_what_fills_stays_zero(case, rule, wide):
    adapters = case.adapters(3)
    trainer, places = Trainer(case.frozen, dict(adapters), range(2), rule, wide=wide), case.filled_places(adapters)
    made = [trainer.step(TOKENS) for _ in range(3)]
    assert made[-1].loss < made[0].loss
    stored = [
        each
        for operation in trainer.training(TOKENS).operations
        if isinstance(operation, Pack)
        for each in operation.tensors()
    ]
    packed = {each.name: unpacked_words(each, made[-1].values[each.packed])[0] for each in stored}
    for name, empty in places.items():
        linear, _, which = name.rpartition(".")
        assert empty.any() and not made[-1].values[f"{linear}.g{which}"].reshape(empty.shape)[empty].any()
        words = made[-1].values[name] if wide is None else packed[name]
        words = words if words.shape == empty.shape else words.T
        assert not words[empty].any() and words[~empty].any()
        moments = (trainer.moments if wide is None else packed).get(f"{linear}.m{which}")
        assert moments is None or not moments[:, empty].any()
    assert {name: each.a.shape for name, each in trainer.adapters.items()} == {
        name: each.a.shape for name, each in adapters.items()
    }


def test_of_lora_fa_b_alone_moves():
    case = Case(QWEN)
    before = case.adapters(3)
    trainer = Trainer(case.frozen, dict(before), range(2), AdamW(lr=1e-2), held=True)
    found = [trainer.step(TOKENS).loss for _ in range(2)]
    assert found[1] < found[0]
    for name, each in before.items():
        after = trainer.adapters[name]
        np.testing.assert_array_equal(after.a, each.a)
        assert after.b.shape == each.b.shape and (after.b != each.b).any()


def drawn(case, kind):
    """Vectors or matrices of another method, each of which moves the loss."""
    model, random = case.model, np.random.default_rng(7)
    if kind == "lora-xs":
        made = fresh_cores(model, case.tensor, rank=3, targets=("q_proj", "v_proj", "down_proj"))
        return {name: each.taking({"r": random.normal(0, 0.1, each.r.shape)}) for name, each in made.items()}
    method = {"ia3": IA3, "layernorm": LAYERNORM}[kind]
    names = method.modules(model, method.usual, range(2))
    return {
        name: Vector(random.normal(1, 0.3, max(next(iter(method.shapes(model, name, 1).values()))))) for name in names
    }


@pytest.mark.parametrize(
    ("name", "kind"),
    [("llama", "ia3"), ("llama", "layernorm"), ("llama", "lora-xs"), ("qwen3", "ia3"), ("phi3", "lora-xs")],
)
def test_what_else_learns_moves_against_its_gradient(name, kind):
    case = Case(MODELS[name])
    before = drawn(case, kind)
    loss, gradients = case.llama.gradients(TOKENS, before)
    trainer = Trainer(case.frozen, dict(before), range(2), 0.1)
    assert trainer.loss(TOKENS) == pytest.approx(loss, rel=1e-9)
    trainer.step(TOKENS)
    for module, gradient in gradients.items():
        for (which, old), g in zip(before[module].parts.items(), gradient, strict=True):
            moved = old - trainer.adapters[module].parts[which]
            assert np.abs(moved - 0.1 * g).max() < 2e-3 * np.abs(g).max(), (module, which)


def test_instantft_learns_from_filled_caches():
    case = Case(MODELS["qwen3"])
    random = np.random.default_rng(8)
    blocks = {
        layer: replace(each, b=random.normal(0, 0.1, each.b.shape))
        for layer, each in fresh_instant(case.model, rank=3).items()
    }
    trainer = InstantTrainer(case.frozen, dict(blocks), range(2), AdamW(lr=1e-2))
    exact = InstantLlama(case.model, case.tensor, blocks=blocks).loss(TOKENS)
    assert trainer.loss(TOKENS) == pytest.approx(exact, rel=1e-5)
    found = [trainer.step(TOKENS).loss for _ in range(3)]
    assert found[0] == pytest.approx(exact, rel=1e-4) and found[-1] < found[0]
    after = InstantLlama(case.model, case.tensor, blocks=trainer.adapters).loss(TOKENS)
    assert after == pytest.approx(trainer.loss(TOKENS), rel=1e-4) and after < found[-1]


def test_an_adapter_comes_back_as_it_was(case):
    adapters = case.adapters(3)
    made = arranged(case.frozen.model, adapters)
    assert {each.rank for each in made.values()} == {4}
    for name, each in restored(case.frozen.model, made, 3).items():
        for which, values in each.parts.items():
            np.testing.assert_array_equal(values, adapters[name].parts[which])


def test_a_filled_step_in_rtl(fresh):
    """Word for word, of a rank of one."""
    case = Case(QWEN)
    step = Training(case.frozen, TOKENS, case.adapters(1), range(2), rule=AdamW(lr=1e-2, weight_decay=0.1))
    frac = step.fracs(largest(step.exact()), headroom=1)
    reference, run = step.integers(frac), fresh.run(step, frac)
    assert run.check(reference)["commands"] == len(run.instructions)
