"""Held-out losses: when they are made, when they end a fine-tune, and what is then kept."""

import math

import numpy as np
import pytest

from gradloom.models.adapters.language.vectors import Vector
from gradloom.systems.held_out import Judging, drawn_parts
from gradloom.systems.text.data import Turns


def judging(losses, **more):
    left = list(losses)
    return Judging(score=lambda adapters: {"loss": left.pop(0)}, **{"every": 2, "steps": 9, **more})


def run(made, start=0, steps=9):
    """Steps until the end: how many were made."""
    for step in range(start + 1, steps + 1):
        if made.after(step, {"x": Vector(np.array([float(step)]))}):
            return step
    return steps


FIRST = {"x": Vector(np.zeros(1))}


def test_losses_are_made_at_start_each_epoch_and_the_end():
    made = judging([5, 4, 3, 2, 1, 0])
    made.start(FIRST)
    made.start(FIRST)
    assert run(made) == 9 and [step for step, _ in made.scores] == [0, 2, 4, 6, 8, 9] and not made.ended
    last = {"x": Vector(np.array([9.0]))}
    assert made.finish(9, last) == last and made.kept == (9, {"loss": 0})
    assert made.figures() == {
        "held_out_before": 5,
        "held_out_after": 0,
        "held_out_losses": [{"step": step, **score} for step, score in made.scores],
        "kept_step": 9,
    }


def test_patience_ends_it_and_the_lowest_is_kept():
    made = judging([5, 4, 4, 4.5, 1], patience=2)
    made.start(FIRST)
    assert run(made) == 6 and made.ended
    assert made.finish(6, {"x": Vector(np.array([6.0]))})["x"].values == [2.0]
    assert made.kept == (2, {"loss": 4}) and made.figures()["held_out_after"] == 4


def test_a_lower_loss_starts_patience_anew():
    made = judging([5, 6, 4, 4.5, 3, 2], patience=2)
    made.start(FIRST)
    assert run(made) == 9 and not made.ended and made.kept == (9, {"loss": 2})


def test_it_goes_on_from_a_state():
    whole, part = judging([5, 4, 6, 7], patience=2), judging([5, 4, 6], patience=2)
    for each, steps in ((whole, 9), (part, 5)):
        each.start(FIRST)
        run(each, steps=steps)
    later = judging([7], patience=2)
    later.restore(part.state())
    later.start(FIRST)
    assert run(later, start=5) == 6 and later.scores == whole.scores
    assert later.finish(6, FIRST)["x"].values == whole.finish(6, FIRST)["x"].values == [2.0]


def test_a_loss_that_is_not_finite_is_never_the_lowest():
    made = judging([math.nan, 4, math.inf, math.nan], patience=2)
    made.start(FIRST)
    assert run(made) == 6 and made.kept == (2, {"loss": 4}) and made.figures()["held_out_before"] is None


def test_nothing_held_out_ends_nothing():
    made = Judging(score=None, every=1, steps=9, patience=0)
    made.start(FIRST)
    assert run(made) == 9 and made.figures() == {} and made.finish(9, FIRST) == FIRST


def test_a_fine_tune_that_ended_between_two_losses_is_judged_then():
    made = judging([5, 4, 3])
    made.start(FIRST)
    run(made, steps=3)
    made.finish(3, FIRST)
    assert [step for step, _ in made.scores] == [0, 2, 3]


@pytest.mark.parametrize("seed", [None, 3])
def test_texts_take_turns(seed):
    texts = [(number,) for number in range(5)]
    turns = Turns(texts, 2, seed)
    taken = [text for step in range(10) for text in turns.of(step)]
    epochs = [taken[first : first + 5] for first in range(0, 20, 5)]
    assert all(sorted(epoch) == texts for epoch in epochs)
    assert (epochs[0] == texts) == (seed is None) and (epochs[0] == epochs[1]) == (seed is None)
    assert [Turns(texts, 2, seed).of(step) for step in (7, 1)] == [turns.of(7), turns.of(1)]
    assert turns.used(2) == taken[:4] and sorted(turns.used(10)) == texts
    single = Turns(texts, 1, seed)
    used = single.used(9)
    assert [used[number] for number in single.numbers(9)] == [single.of(step)[0] for step in range(9)]


def test_a_share_is_drawn_by_the_seed_and_parts_no_sample_twice():
    learnt, held = drawn_parts(40, 0.25, 3, "image")
    assert len(held) == 10 and sorted([*learnt, *held]) == list(range(40)) and list(learnt) == sorted(learnt)
    again, other = drawn_parts(40, 0.25, 3, "image")[1], drawn_parts(40, 0.25, 4, "image")[1]
    assert list(held) == list(again) != list(other)
    with pytest.raises(ValueError, match=r"held_out=0\.001: of 40 images holds out 0; give --held-out 0\.025, or"):
        drawn_parts(40, 0.001, 3, "image")
