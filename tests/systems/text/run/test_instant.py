"""InstantFT on a small transformer: the mathematics, the integers, the machine's words, and what it reads."""

import numpy as np
import pytest

from gradloom.models.adapters.lora import Adapter
from gradloom.program.descent import AdamW
from gradloom.rtl.machines.language import LINEAR
from gradloom.rtl.shell.engines import LOAD
from gradloom.systems.text.operations.instant import InstantStep
from gradloom.systems.text.operations.products import Product
from gradloom.systems.text.operations.tensors import Codes
from gradloom.systems.text.program.layout import Layout
from gradloom.systems.text.program.step import lower
from gradloom.systems.text.program.traffic import base_bytes
from gradloom.systems.text.reference.llama import Llama
from gradloom.systems.text.reference.mathematics import cross_entropy, rms_norm
from gradloom.systems.text.reference.optimizers import Sgd
from gradloom.systems.text.run.instant import InstantTrainer, arranged
from gradloom.systems.text.run.step import place_frozen
from gradloom.systems.text.run.training import largest

from ..conftest import CONFIG, MODEL, TOKENS

OTHER = (7, 7, 1, 90, 33, 20, 4)


def fresh(rank, seed=4):
    random, hidden = np.random.default_rng(seed), MODEL.hidden
    return {
        layer: Adapter(random.normal(0, 0.1, (rank, hidden)), random.normal(0, 0.1, (hidden, rank)), 2.0)
        for layer in range(MODEL.layers)
    }


@pytest.fixture
def trainer(frozen):
    def make(rank=2, rule=None, rows=16, **options):
        return InstantTrainer(frozen, fresh(rank), range(MODEL.layers), rule or AdamW(lr=1e-2), rows=rows, **options)

    return make


@pytest.fixture(scope="module")
def loss_of(frozen, tensors):
    """Loss of a text with such adapters, by the model written as a model."""
    exact = {
        name: frozen.linear(name.removesuffix(".weight")).weight() if "_proj" in name else values
        for name, values in tensors.items()
    }
    llama = Llama(MODEL, exact.__getitem__, dtype=np.float64)

    def loss(tokens, adapters):
        x, base, ids = llama.embedding[np.asarray(tokens)], 0, np.asarray(tokens)
        for layer, each in adapters.items():
            x, kept = llama._layer(layer, x, {})
            base = base + each.scale * (kept.attended @ each.a.T) @ each.b.T
        return cross_entropy(rms_norm(x + base, llama.norm, MODEL.norm_eps) @ llama.head.T, ids)[0]

    return loss


@pytest.mark.parametrize("rank, rows", [(2, 16), (8, 8), (64, 64)])
def test_gradients_are_those_of_the_loss(trainer, loss_of, rank, rows):
    """Against differences of the loss, in every block and along random directions of both matrices."""
    made = trainer(rank, rule=Sgd(lr=0.1), rows=rows)
    made.fill(TOKENS)
    training = made.learning(TOKENS, made.cache[TOKENS])
    exact = training.exact()
    assert exact.mean_loss == pytest.approx(loss_of(TOKENS, made.adapters), rel=1e-12)
    found = training.instant.split(exact.values["instant.ga"], exact.values["instant.gb"])
    random, size = np.random.default_rng(0), 1e-5
    for layer, held in made.adapters.items():
        for place, which in enumerate("ab"):
            way = random.normal(0, 1, getattr(held, which).shape)
            ends = [
                loss_of(
                    TOKENS,
                    made.adapters | {layer: Adapter(**{**vars(held), which: getattr(held, which) + sign * size * way})},
                )
                for sign in (1, -1)
            ]
            slope = np.sum(found[layer][place] * way) * (held.scale if which == "b" else 1)
            assert slope == pytest.approx((ends[0] - ends[1]) / (2 * size), rel=1e-6)


def test_adapters_go_into_words_and_back(frozen):
    for rank, rows in ((2, 16), (8, 8), (3, 64)):
        step, adapters = InstantStep(MODEL, 9, rank, range(2), rows), fresh(rank)
        assert step.groups == {8: 2}.get(rank, 1)
        a, b = step.stacked(adapters).values()
        for layer, (got_a, got_b) in step.split(a, b).items():
            np.testing.assert_array_equal(got_a, adapters[layer].a)
            np.testing.assert_array_equal(got_b, 2 * adapters[layer].b)


@pytest.mark.parametrize("rank, rows", [(2, 16), (8, 8)])
def test_integers_follow_floats(trainer, rank, rows):
    """Every tensor within 0.5 % of its RMS, as in a step through the blocks."""
    made = trainer(rank, rows=rows)
    fill = made.filling(TOKENS)
    exact = fill.exact()
    frac = fill.fracs(largest(exact), headroom=1)
    words = fill.integers(frac)
    assert words.saturated == 0
    kept = {each.name: (words.values[each.name], frac[each.name]) for each in fill.instant.cached}
    learn = made.learning(TOKENS, kept)
    exact = learn.exact()
    frac = learn.fracs(largest(exact), headroom=1)
    words = learn.integers(frac)
    assert words.saturated == 0 and words.mean_loss == pytest.approx(exact.mean_loss, rel=1e-4)
    for name, values in exact.values.items():
        if name not in ("instant.a", "instant.b"):
            error = words.values[name] * 2.0 ** -frac[name] - values
            assert np.sqrt(np.mean(error**2)) <= 5e-3 * np.sqrt(np.mean(values**2)), name


def test_a_trainer_learns_and_fills_once(trainer):
    made, exact = trainer(rule=0.05), trainer(rule=Sgd(lr=0.05))
    found = [made.step(text) for text in (TOKENS, OTHER) * 3]
    wanted = [exact.step(text) for text in (TOKENS, OTHER) * 3]
    np.testing.assert_allclose([each.loss for each in found], [each.loss for each in wanted], rtol=1e-3)
    assert found[4].loss < found[2].loss < found[0].loss and sum(each.saturated for each in found) == 0
    head = 2 * 2 * 192 * MODEL.hidden
    blocks = base_bytes(made.filling(TOKENS).operations)
    assert (
        [each.base_bytes for each in found]
        == [each.base_bytes for each in wanted]
        == [blocks + head, blocks + head, head, head, head, head]
    )
    assert made.loss(TOKENS) == pytest.approx(made.step(TOKENS).loss, rel=1e-3)


def test_ranks_are_bounded(trainer):
    for rank, rows, named in ((0, 64, "rank=0: must be from 1 to 64"), (17, 16, "rank=17: must be from 1 to 16")):
        with pytest.raises(ValueError, match=named):
            InstantStep(MODEL, 9, rank, range(2), rows)


@pytest.mark.parametrize("rank, rule", [(2, AdamW(lr=1e-2)), (8, 0.05), (16, 0.05)], ids=["adamw", "sgd", "wide"])
def test_two_epochs_in_rtl(trainer, machine, rank, rule):
    """Every word of two texts' caches and steps is the reference's; from the second epoch on, where the blocks' weights
    were in memory is something else."""
    made, model = trainer(rank, rule=rule), trainer(rank, rule=rule)
    machine.frozen, machine.held, _ = arranged(made, [TOKENS, OTHER], CONFIG)
    made.machine = machine
    try:
        for text in (TOKENS, OTHER):
            compared(made.fill(text), model.fill(text))
            for name, (words, frac) in made.cache[text].items():
                np.testing.assert_array_equal(words, model.cache[text][name][0])
                assert frac == model.cache[text][name][1]
        matrices = [
            each.weight
            for each in made.filling(TOKENS).operations
            if isinstance(each, Product) and isinstance(each.weight, Codes)
        ]
        assert len(matrices) == 14
        for each in matrices:
            machine.host.store(machine.frozen[each.name], b"\xa5" * machine.frozen.sizes[each.name])
        for text in (TOKENS, OTHER, TOKENS):
            result = made.step(text)
            compared(result, model.step(text))
            assert result.base_bytes == 2 * 2 * 192 * MODEL.hidden
    finally:
        machine.frozen, machine.held = Layout(), set()


def compared(run, reference):
    assert run.loss == reference.loss and run.saturated == reference.saturated == 0 and run.cycles
    for name, words in run.values.items():
        np.testing.assert_array_equal(words, reference.values[name], err_msg=name)


def test_the_loads_of_a_step_are_what_is_said_of_it(trainer):
    """Beats of the program's loads from where frozen matrices lie, of both programs.

    A product in parts brings its header with each.
    """
    made = trainer()
    made.fill(TOKENS)
    for training in (made.filling(TOKENS), made.learning(TOKENS, made.cache[TOKENS])):
        frac = training.fracs(largest(training.exact()), headroom=1)
        layout = Layout()
        place_frozen(training, layout)
        end, beat = layout.end, CONFIG.data_bits // 8
        loads = [
            step.operands
            for step in lower(training.operations, frac, layout, CONFIG).instructions
            if step.engine == LOAD and step.operands["offset"] < end
        ]
        headers = [each for each in loads if each["dest"] == LINEAR.load("tables")]
        again = sum(each["beats"] for before, each in zip(headers, headers[1:]) if before == each)
        assert (sum(each["beats"] for each in loads) - again) * beat == base_bytes(training.operations)
