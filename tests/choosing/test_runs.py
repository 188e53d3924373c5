"""Short runs side by side: layers below are shared, and nothing depends on the number of threads."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from gradloom.choosing import runs
from gradloom.choosing.candidates import METHODS, Candidate
from gradloom.choosing.costs import Cost
from gradloom.choosing.finalists import Offer
from gradloom.choosing.quality import Slopes, learns
from gradloom.choosing.state import ChoiceState
from gradloom.choosing.texts import Split
from gradloom.choosing.trunk import FloatTrunk
from gradloom.models.adapters.language.methods import IA3, LAYERNORM
from gradloom.models.adapters.lora import fresh_lora
from gradloom.sim.run.threads import Stopped, threads
from gradloom.systems.text.costs.request import TARGETS
from gradloom.systems.text.reference.llama import Llama

from .test_costs import MODEL

SMALL = replace(MODEL, vocab=128, context=16)
CHOICES = (
    Candidate(targets=TARGETS["all"], rank=4, from_layer=2, seq=16),
    Candidate(targets=TARGETS["q,v"], rank=2, seq=16),
    Candidate(method="layernorm", targets=LAYERNORM.usual, rank=0, from_layer=4, seq=16),
)


@pytest.fixture(scope="module")
def tensors():
    random = np.random.default_rng(3)
    return {
        name: np.asarray(random.normal(float(len(shape) == 1), 0.2 if len(shape) == 1 else shape[-1] ** -0.5, shape))
        for name, shape in SMALL.tensors.items()
    }


@pytest.fixture(scope="module")
def llama(tensors):
    return Llama(SMALL, tensors.__getitem__)


@pytest.fixture
def split():
    tokens = np.random.default_rng(4).integers(0, SMALL.vocab, 6 * 16).tolist()
    return Split(learnt=tokens[: 4 * 16], judged=[tokens[4 * 16 : 5 * 16], tokens[5 * 16 :]])


def offered(each):
    cost = Cost(update_cycles=1000 - each.from_layer, trunk_cycles=0, memory={}, update_bytes=0)
    return Offer(candidate=each, cost=cost, steps=3, wanted=3, seconds=1, texts=3, classes={}, update=0)


def ran(llama, tensors, split, folder, jobs, tell=lambda *told: None):
    planned = [(offered(each), 3) for each in CHOICES]
    with threads(jobs) as made:
        return runs.short_runs(
            llama,
            tensors.__getitem__,
            split,
            planned,
            seed=0,
            state=ChoiceState(folder, {}, {}),
            tell=tell,
            threads=made,
        )


def test_losses_are_those_of_runs_alone(llama, tensors, split, tmp_path):
    """However many threads there are, and with the layers below run once a text."""
    alone = [learns(llama, tensors.__getitem__, split, each, 3, seed=0)[0] for each in CHOICES]
    before = np.mean([llama.loss(window) for window in split.judged])
    for jobs in (1, 2):
        told = []
        found = ran(llama, tensors, split, tmp_path / str(jobs), jobs, lambda *each, told=told: told.append(each))
        assert found == (pytest.approx(before, rel=1e-6), pytest.approx(alone, rel=1e-6))
        # What is behind before each text that is run below, and before each of three updates of three finalists.
        behind = [*((number, 5) for number in range(5)), *((number, 9) for number in range(9))]
        assert {(done, total) for done, total, _ in told} <= set(behind)
        assert jobs > 1 or [(done, total) for done, total, _ in told] == behind


def test_the_layers_below_run_once_a_text(llama, tensors, split, tmp_path, monkeypatch):
    entered = []
    entering = llama.entering
    monkeypatch.setattr(llama, "entering", lambda layer, *given: entered.append(layer) or entering(layer, *given))
    ran(llama, tensors, split, tmp_path, 1)
    # Three texts to learn from and two that judge, each at both lowest layers.
    assert sorted(entered) == [2] * 5 + [4] * 5


def test_what_enters_a_layer_follows_from_what_enters_a_lower_one(llama):
    tokens = list(range(9))
    low = llama.entering(2, tokens)
    np.testing.assert_array_equal(llama.entering(4, tokens, (2, low)), llama.entering(4, tokens))
    trunk = FloatTrunk(llama)
    adapters = fresh_lora(SMALL, rank=2, targets=TARGETS["all"], layers=[3, 4])
    trunk.keep(tokens, (0, 3))
    assert trunk.loss(tokens, adapters) == llama.loss(tokens, adapters) == llama.loss(tokens)


def test_one_pass_has_the_gradients_of_norms_and_adapters(llama, tensors, split):
    """As many passes as there are methods that learn in the same modules; worths are those of passes alone."""
    everywhere = {
        "lora": Candidate(targets=TARGETS["all"], rank=4, seq=16),
        "layernorm": Candidate(method="layernorm", targets=LAYERNORM.usual, rank=0, seq=16),
        "ia3": Candidate(method="ia3", targets=IA3.usual, rank=0, seq=16),
    }
    passes = []

    class Counted(Llama):
        def gradients(self, *given):
            passes.append(given)
            return super().gradients(*given)

    with threads(1) as one:
        given = split, everywhere, 0, lambda *told: None, one
        slopes = Slopes(Counted(SMALL, tensors.__getitem__), tensors.__getitem__, *given)
    assert len(passes) == 2 * 4
    for name, each in everywhere.items():
        fresh = METHODS[name].fresh(SMALL, tensors.__getitem__, each, 0)
        sums = [
            sum(np.abs(part).sum() for parts in llama.gradients(window, fresh)[1].values() for part in parts)
            for window in split.windows(16)
        ]
        assert slopes.of(each) == pytest.approx(METHODS[name].lr * np.mean(sums), rel=1e-5)


def test_a_failure_ends_the_other_threads(llama, tensors, split, tmp_path, monkeypatch):
    """Soon: a run looks whether it should end before each of its updates."""
    begun, ended = threading.Event(), []

    def learns(trunk, tensor, parts, each, steps, *, tell, **given):
        if each is CHOICES[1]:
            begun.wait(10)
            raise KeyboardInterrupt
        try:
            for number in range(10_000):
                begun.set()
                tell(number, 10_000, "")
                threading.Event().wait(0.001)
        except Stopped:
            ended.append(each)
            raise

    monkeypatch.setattr(runs, "learns", learns)
    with pytest.raises(KeyboardInterrupt):
        ran(llama, tensors, split, tmp_path, 2)
    assert ended
