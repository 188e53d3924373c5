"""A ULX3S that labels shipped windows at power-up, in simulated RTL."""

import os
import re
from dataclasses import replace

import numpy as np
import pytest

from gradloom import boards
from gradloom.models.recurrent.stored import load_network
from gradloom.models.sequences import FOLDS, spar_model, spar_windows
from gradloom.preset import PRESETS
from gradloom.program.memory import BLOCK
from gradloom.sim.bench.tuner import SimulatedTuner, build_tuner, expected_answers
from gradloom.sim.reference import cell
from gradloom.sim.time.forecast import forecast
from gradloom.systems.images.expectation import ON_CHIP
from gradloom.systems.sequences.program.onchip import answers_plan, integer_biases, shipped_answers

DEEP = bool(os.environ.get("GRADLOOM_DEEP"))
MEMORY = boards.find("ulx3s").memory_bytes
CONFIG = PRESETS["lstm-ulx3s"].config
NETWORK = load_network(spar_model(0, 32))


#: More reads in flight than the preset's only wait at the memory.
MANY = pytest.param(16, marks=pytest.mark.skipif(not DEEP, reason="a minute: GRADLOOM_DEEP=1"))


@pytest.fixture(scope="module")
def plan():
    return shipped_answers(CONFIG, memory=MEMORY, pause=3000)


@pytest.mark.parametrize("outstanding", [CONFIG.outstanding, MANY])
def test_the_board_says_the_classes_of_the_reference(plan, tmp_path, outstanding):
    config = CONFIG.replace(outstanding=outstanding)
    program = build_tuner(config, plan, tmp_path, memory_bytes=MEMORY)
    tuner = SimulatedTuner(program, tmp_path)
    try:
        lines = list(tuner.told(1 << 20))
        assert tuner.repeated(1 << 20)[1] == lines
    finally:
        tuner.close()
    assert [line for line in lines if not line.startswith("cycles: ")] == expected_answers(plan, config)
    assert len(set(lines[1].split()[1:])) > 3
    (cycles,) = re.findall(r"cycles: (\d+)", lines[-2])
    assert int(cycles) == 82_828
    # The memory's bursts are asked for one at a time, which the forecast does not follow.
    told = sum(stage.blocks * forecast(plan.programs[stage.program][1], memory=ON_CHIP).total for stage in plan.stages)
    assert told < int(cycles) < 1.05 * told


def test_windows_are_of_people_the_network_has_never_seen(plan):
    x, labels = spar_windows(FOLDS[0])
    codes = NETWORK.input.codes(x)
    for own, label in zip(plan.codes, plan.labels):
        (where,) = np.nonzero((codes == own).all(axis=(1, 2)))
        assert label in labels[where]
    for number, label in enumerate(plan.labels):
        end = BLOCK * (2 + number)
        assert int.from_bytes(plan.image[end - 4 : end], "little") == label


def test_integer_biases_make_the_same_order():
    sums = cell.sums(NETWORK, np.random.default_rng(0).integers(-32, 32, (500, 32)))
    unit = NETWORK.head.scale * NETWORK.cell.hidden.scale
    np.testing.assert_allclose((sums + integer_biases(NETWORK)) * unit, sums * unit + NETWORK.head.bias, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"head": None}, "must have a dense layer behind its last state"),
        ({"pick": "mean"}, "must have a dense layer behind its last state"),
        ({"head": replace(NETWORK.head, bias=NETWORK.head.bias + 1e-5)}, "no multiples of one unit"),
        ({"head": replace(NETWORK.head, scale=NETWORK.head.scale * np.arange(1, 8))}, "no multiples of one unit"),
    ],
    ids=["none", "mean", "bias", "scale"],
)
def test_a_head_that_firmware_cannot_judge_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        integer_biases(replace(NETWORK, **change))


def test_sequences_that_do_not_fit_are_refused(plan):
    given = (NETWORK, plan.codes, plan.labels, CONFIG)
    with pytest.raises(ValueError, match="20 sequences need .* bytes of memory, there are 65536; give fewer"):
        answers_plan(*given, memory=1 << 16, pause=1)
    longer = np.concatenate([plan.codes[:1], plan.codes[:1]], axis=1)
    with pytest.raises(ValueError, match="sequences of 200 steps with their results need more than 4096 bytes"):
        answers_plan(NETWORK, longer, plan.labels[:1], CONFIG, memory=MEMORY, pause=1)
