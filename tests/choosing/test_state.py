"""What an interrupted choice leaves in its folder, and who takes it up."""

import math

import pytest

from gradloom.choosing.points import Point
from gradloom.choosing.state import FILE, ChoiceState

REQUEST, BUDGET = {"seq": 16, "targets": ("q", "v")}, {"seconds": 2.0}
POINT = Point(targets=("q", "v"), rank=4, seq=16, trunk=1, learning=2, tiles=16)


@pytest.fixture
def left(tmp_path):
    state = ChoiceState(tmp_path, REQUEST, BUDGET)
    assert not state.points and not state.losses and state.kept() == ""
    state.keep_points({POINT: {"cycles": 7}})
    state.keep_loss("one", 2.5)
    state.keep_loss("two", math.inf)
    return tmp_path


def test_the_same_request_goes_on(left):
    state = ChoiceState(left, REQUEST, BUDGET)
    assert state.points == {POINT: {"cycles": 7}} and state.losses == {"one": 2.5, "two": math.inf}
    assert state.kept().endswith("has 3 figures")


def test_losses_are_of_a_budget_and_costs_are_not(left):
    state = ChoiceState(left, REQUEST, {"seconds": 1.0})
    assert state.points == {POINT: {"cycles": 7}} and not state.losses


def test_what_is_of_another_request_or_cannot_be_read_is_refused(left):
    with pytest.raises(ValueError, match="unfinished choice of another request; give another -o, or remove"):
        ChoiceState(left, {**REQUEST, "seq": 32}, BUDGET)
    held = (left / FILE).read_text()
    for mangled in (held[:-1], held.replace('"budget"', '"budged"'), held.replace("2.5", '"much"'), "[]"):
        (left / FILE).write_text(mangled)
        with pytest.raises(ValueError, match="cannot be read"):
            ChoiceState(left, REQUEST, BUDGET)
