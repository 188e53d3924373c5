"""A token is drawn of the likeliest, as often as softmax says."""

import numpy as np
import pytest

from gradloom.systems.text.reference.drawn import Draw
from gradloom.systems.text.requests import TextAnswers

LOGITS = np.log([0.1, 0.4, 0.2, 0.05, 0.25])


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_tokens_come_as_often_as_softmax_says(temperature):
    draw = Draw(3, temperature, 7)
    found = np.bincount([draw(LOGITS) for _ in range(4000)], minlength=5) / 4000
    want = np.array([0, 0.4, 0.2, 0, 0.25]) ** (1 / temperature)
    assert np.abs(found - want / want.sum()).max() < 0.025
    assert [Draw(3, temperature, 7)(LOGITS) for _ in range(2)] == [Draw(3, temperature, 7)(LOGITS)] * 2


def test_the_likeliest_is_the_lowest_of_equals():
    assert Draw()(np.array([1.0, 3.0, 3.0])) == 1
    # A k beyond the vocabulary takes all.
    assert {Draw(9, seed=seed)(LOGITS) for seed in range(60)} == set(range(5))


@pytest.mark.parametrize(
    "wrong, told",
    [
        ({"temperature": 0.5}, "temperature=0.5: must be left out without top_k"),
        ({"seed": 3}, "seed=3: must be left out without top_k"),
        ({"top_k": 0}, "top_k=0: must be at least 1"),
        ({"top_k": 2, "temperature": 0.0}, "temperature=0.0: must be above 0"),
        ({"top_k": 2, "port": "/dev/tty"}, "top_k=2: must be left out with --port"),
    ],
)
def test_options_without_a_meaning_are_refused(wrong, told):
    with pytest.raises(ValueError, match=told):
        TextAnswers(prompt="a", **wrong).check()
