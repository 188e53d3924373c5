"""Cycles of an answer as simulated RTL counts them, and accuracy by the widths of codes."""

import gradloom
from gradloom.preset import PRESETS
from gradloom.systems.sequences.widths import of_widths

#: A window of the shipped recordings, docs/evidence/results.md.
CYCLES, STEPS = 3090, 100


def test_a_plan_is_of_one_sequence_whose_states_stay():
    assert gradloom.plan("lstm-kv260")["answer"]["cycles"] == CYCLES
    assert gradloom.plan("lstm-kv260", steps=STEPS // 2)["answer"]["cycles"] < CYCLES


def test_widths_of_an_lstms_codes_are_swept():
    """The shipped weights, quantised again; cycles do not depend on widths, the bits of the state do."""
    asked = {"model": "", "data": "", "accuracy_of": 40}
    fine, coarse = (of_widths(PRESETS["lstm-zcu104"], asked | {"codes": codes}) for codes in ("W8A6C8", "W2A2C3G2"))
    assert fine["cycles"] == coarse["cycles"] == CYCLES
    assert fine["units"] == coarse["units"] == STEPS // 2
    # At 200 MHz, in whole microseconds.
    assert fine["milliseconds"] == 0.015
    assert fine["accuracy"] > coarse["accuracy"] + 0.1
    every = of_widths(PRESETS["lstm-zcu104"], asked | {"codes": "W8A6C8", "accuracy_of": ""})
    assert every == {name: value for name, value in fine.items() if name != "accuracy"}
