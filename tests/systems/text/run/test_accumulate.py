"""Gradients of several texts before one update: the mathematics, the integers, and the machine's words."""

import os

import numpy as np
import pytest

from gradloom.program.descent import AdamW
from gradloom.systems.text.operations.learnt.accumulate import spare_bits
from gradloom.systems.text.reference.llama import Llama
from gradloom.systems.text.run.trainer import Trainer
from gradloom.systems.text.run.training import largest

from ..conftest import MODEL, TOKENS

TEXTS = (TOKENS, (7, 7, 1, 90, 33, 20, 4, 8), (60, 2, 41, 5, 5, 18, 100, 3, 12))


def test_sums_are_of_the_mean_loss(training, frozen, tensors, adapters):
    """After the last text, the sums are the gradients of the mean of the texts' losses."""
    exact = {
        name: frozen.linear(name.removesuffix(".weight")).weight() if "_proj" in name else values
        for name, values in tensors.items()
    }
    llama = Llama(MODEL, exact.__getitem__, dtype=np.float64)
    found = [llama.gradients(tokens, adapters)[1] for tokens in TEXTS]
    sums = {}
    for tokens in TEXTS:
        made = training(tokens=tokens, texts=3, sums=sums).exact().values
        sums = {name: (made[name], 0) for name in made if name.endswith((".sa", ".sb"))}
    for name, each in adapters.items():
        ga, gb = (sum(pairs[name][place] for pairs in found) / 3 for place in (0, 1))
        np.testing.assert_allclose(made[f"{name}.sa"], ga, rtol=0, atol=1e-11 * np.abs(ga).max())
        np.testing.assert_allclose(made[f"{name}.sb"], gb.T / each.scale, rtol=0, atol=1e-11 * np.abs(gb).max())


def test_texts_in_rtl_equal_the_reference(training, machine):
    """An update with the last text, every word of each; the sums stay in place from text to text.

    The texts before it are the same for both rules. There is one of them, or two with GRADLOOM_DEEP=1.
    """
    before, sums = (TEXTS[:-1] if os.environ.get("GRADLOOM_DEEP") else TEXTS[:1]), {}
    count = len(before) + 1

    def compared(tokens, rule):
        prepared = training(tokens=tokens, texts=count, sums=sums, rule=rule)
        frac = prepared.fracs(largest(prepared.exact()), headroom=1)
        reference, run = prepared.integers(frac), machine.run(prepared, frac)
        for name, words in run.values.items():
            np.testing.assert_array_equal(words, reference.values[name], err_msg=name)
        assert run.counters.saturated == reference.saturated == 0 and run.loss == reference.mean_loss
        return run, {name: (run.values[name], frac[name]) for name in run.values if name.endswith((".sa", ".sb"))}

    for tokens in before:
        _, sums = compared(tokens, None)
        assert len(sums) == 12
    for rule in (AdamW(lr=1e-2), 0.05):
        run, last = compared(TEXTS[-1], rule)
        assert len(last) == 12 and {"model.layers.1.mlp.down_proj.a"} < set(run.values)


def test_a_trainer_updates_with_the_last_text(frozen, adapters):
    trainer = Trainer(frozen, dict(adapters), range(MODEL.layers), AdamW(lr=3e-3), texts=3)
    before = {name: each.a for name, each in adapters.items()}
    for tokens in TEXTS[:2]:
        trainer.step(tokens)
        assert trainer.number == 0 and all(trainer.adapters[name].a is a for name, a in before.items())
    trainer.step(TEXTS[2])
    assert trainer.number == 1 and not trainer.sums
    losses = [trainer.update(TEXTS).loss for _ in range(3)]
    assert losses == sorted(losses, reverse=True) and trainer.number == 4
    with pytest.raises(ValueError, match="texts=1: an update is made of 3"):
        trainer.update([TOKENS])


def test_one_text_again_and_again_is_one_text(frozen, adapters):
    """The same text twice gives the update of that text alone, but for a bit of its gradients."""
    one, two = (Trainer(frozen, dict(adapters), range(MODEL.layers), 0.05, texts=texts) for texts in (1, 2))
    one.step(TOKENS)
    two.update([TOKENS, TOKENS])
    for name, each in one.adapters.items():
        np.testing.assert_allclose(two.adapters[name].a, each.a, rtol=0, atol=1e-6)
        np.testing.assert_allclose(two.adapters[name].b, each.b, rtol=0, atol=1e-6)


@pytest.mark.parametrize("texts, bits", [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (256, 8)])
def test_a_sum_holds_so_many(texts, bits):
    assert spare_bits(texts) == bits and 2**bits >= texts > 2**bits // 2
