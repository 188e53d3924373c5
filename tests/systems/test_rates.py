"""Rates of each step are transformers'."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from gradloom.systems.rates import CONSTANT, Schedule

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "qlora_chat" / "curve.json").read_text(encoding="utf-8"))


def rates(schedule, steps):
    return [schedule.factor(number) for number in range(1, steps + 1)]


def test_a_cosine_with_a_warm_up_is_that_of_transformers():
    found = rates(Schedule.of("cosine", 20, 0.1), 20)
    np.testing.assert_allclose(np.array(found) * GOLDEN["lr"], GOLDEN["rates"], rtol=1e-12)
    assert found == rates(Schedule(shape="cosine", steps=20, warmup=2), 20)


def test_other_schedules_are_their_formulas():
    assert rates(Schedule.of("linear", 10, 4), 10) == [0, 0.25, 0.5, 0.75, *(1 - k / 6 for k in range(6))]
    assert rates(Schedule.of("constant", 5, 0.3), 5) == [0, 0.5, 1, 1, 1]
    assert rates(CONSTANT, 3) == [1, 1, 1] and not CONSTANT.varies
    assert rates(Schedule.of("cosine", 4, 0), 4) == [0.5 * (1 + math.cos(math.pi * k / 4)) for k in range(4)]
    assert Schedule.of("linear", 4, 4).factor(4) == 0.75 and Schedule.of("constant", 4, 1).varies


@pytest.mark.parametrize(
    "shape, steps, warmup, message",
    [
        ("step", 3, 0, "schedule=step: must be one of constant, linear, cosine"),
        ("linear", 3, 4, "warmup=4: must be from 0 to the 3 steps, or a share below 1"),
        ("linear", 3, 1.5, "warmup=1.5: must be a share below 1, or a number of steps"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(shape, steps, warmup, message):
    with pytest.raises(ValueError, match=message):
        Schedule.of(shape, steps, warmup)
