"""What products wait for: no more than the tiles ahead need."""

import pytest

from gradloom.program.descent import AdamW
from gradloom.program.lifetimes import extent
from gradloom.rtl.machines.language import GRADIENT, LINEAR
from gradloom.rtl.shell.engines import LOAD, STORE
from gradloom.systems.text.program.layout import Layout
from gradloom.systems.text.program.step import lower
from gradloom.systems.text.run.step import place_frozen
from gradloom.systems.text.run.training import largest

from ..conftest import CONFIG

BEAT, OPERANDS = CONFIG.data_bits // 8, LINEAR.load("operands")


@pytest.fixture
def steps(training):
    step = training(rule=AdamW(lr=1e-2))
    layout = Layout()
    place_frozen(step, layout)
    return lower(step.operations, step.fracs(largest(step.exact()), headroom=1), layout, CONFIG).instructions


def operands_of(steps):
    """Of each product that brings some: its command, and the loads of its operands, which follow each other."""
    loads = iter([n for n, step in enumerate(steps) if step.engine == LOAD and step.operands["dest"] == OPERANDS])
    for place, step in enumerate(steps):
        if step.engine == LINEAR and step.operands["early"]:
            left, own = step.operands["inner"] * step.operands["tokens"] * CONFIG.row_beats, []
            while left:
                own.append(next(loads))
                left -= steps[own[-1]].operands["beats"]
            yield place, own


def test_a_product_begins_before_its_last_operands_are_made(steps):
    """Some do, and then each load of operands stands behind the store that makes its words."""
    began = 0
    for place, loads in operands_of(steps):
        for load in loads:
            start, end = extent(steps[load], BEAT)
            made = [
                n
                for n, step in enumerate(steps)
                if step.engine == STORE and extent(step, BEAT)[0] < end and extent(step, BEAT)[1] > start
            ]
            assert not made or min(made) < load
            began += any(place < n < load for n in made)
    assert began > 3


def test_a_product_does_not_wait_for_gradients(steps):
    """One begins between both of the last linear, whose operands are there before them."""
    kinds = [step.engine for step in steps if step.engine in (LINEAR, GRADIENT)]
    first = kinds.index(GRADIENT)
    assert LINEAR in kinds[first : kinds.index(GRADIENT, first + 1)]
