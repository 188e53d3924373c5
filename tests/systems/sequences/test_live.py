"""A small machine answers each sample of a stream, and learns from the last ones when it is told to."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.models.recurrent.example import example_codes, example_network
from gradloom.models.recurrent.taps import scales_for
from gradloom.preset import find_preset
from gradloom.rtl.formats.images import ACTIVATION, PARAMETER
from gradloom.sim.reference import cell
from gradloom.sim.run.machine import MachineRunner
from gradloom.systems.sequences.live import Live
from gradloom.systems.sequences.taps import tap_sums

from .test_rtl import SIZES

PRESET = find_preset("lstm-kv260")
CONFIG = PRESET.config.replace(**SIZES)
WORKLOAD = replace(PRESET.workload, rank=2, epochs=2, batch=3)
NETWORK = example_network(6, 8, 3, kernel=4, stride=2, outputs=7, classes=4)
STEPS, HOP = 12, 5


def drawn(count, seed=3):
    """Samples of the network's input."""
    return example_codes(NETWORK, np.random.default_rng(seed), 1, count)[0] * NETWORK.input.scale


def live(machine, **changes):
    x = np.stack([drawn(STEPS, seed) for seed in range(6)])
    sums = tap_sums(NETWORK, cell.run(NETWORK, NETWORK.codes(x)), CONFIG.parallel)
    asked = {"steps": STEPS, "ring": 40, "hop": HOP, "rate": 50.0, "workload": WORKLOAD} | changes
    return Live(machine, NETWORK, CONFIG, scales_for(NETWORK, sums, CONFIG.parallel), **asked)


@pytest.fixture(scope="module")
def machine():
    with MachineRunner.simulated(CONFIG) as made:
        yield made


def test_answers_are_the_networks_own_until_something_is_learnt(machine):
    """In the machine, with every word and counter compared; then 30 samples of two classes are learnt from."""
    stream, x = live(machine), drawn(44)
    answers = [stream.sample(each, int(at >= 20)) for at, each in enumerate(x)]
    assert answers[: STEPS - 1] == [None] * (STEPS - 1) and len(stream.ring) == 40
    trace = cell.run(NETWORK, NETWORK.codes(np.stack([x[at - STEPS + 1 : at + 1] for at in range(STEPS - 1, 44)])))
    last = np.abs(trace.state.h) * 2.0 ** stream.taps.part("h")[1] / 2**ACTIVATION.frac
    # Each weight is half a code off at most, as are the bias and the sum.
    bounds = last.sum(axis=1) / 2 ** (PARAMETER.frac + 1) + 2.0**-ACTIVATION.frac
    for answer, own, bound in zip(answers[STEPS - 1 :], cell.logits(NETWORK, trace), bounds, strict=True):
        np.testing.assert_allclose(answer.logits, own, rtol=0, atol=bound)
        assert answer.cycles == stream.cycles and answer.label == answer.logits.argmax()
    # Of class 1 five sequences end at samples 24 to 44, of which the first has samples of class 0, too.
    learnt = stream.learn(30)
    assert learnt.sequences == 3 and len(learnt.losses) == 2 and learnt.cycles > stream.cycles
    again = stream.sample(x[0], 1)
    assert again.cycles == stream.cycles
    first = stream.adapters
    # The adapter goes on from there.
    # One of class 0 ends at sample 20.
    assert stream.learn(40).sequences == 4 and any((a != b).any() for a, b in zip(first[0], stream.adapters[0]))
    # Nothing is left in the cache of those before.
    assert stream.learn(30).sequences == 3
    other = live(machine)
    for each in [*x[-STEPS + 1 :], x[0]]:
        plain = other.sample(each)
    assert (again.logits != plain.logits).any() and again.logits[1] > plain.logits[1]


BAD = {
    "a ring of less than a sequence": ({"ring": 11}, "ring=11: must be at least 12"),
    "no hop": ({"hop": 0}, "hop=0: must be at least 1"),
    "few steps": ({"steps": 4}, "steps=4: its sequences have 4 steps, 2 of them at the cell: at least 4"),
    "a stream faster than the machine": (
        {"rate": 1e9},
        r"rate=1e\+09: must be above 0 and at most [\d,]+ samples a second: an answer takes [\d,]+ cycles at 200 MHz",
    ),
    "no rate": ({"rate": 0.0}, "rate=0: must be above 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_stream_that_cannot_be_is_refused(machine, case):
    changes, said = BAD[case]
    with pytest.raises(ValueError, match=said) as refused:
        live(machine, **changes)
    assert "\n" not in str(refused.value)


def test_bad_samples_and_commands_are_refused(machine):
    stream = live(machine)
    for x, label, said in (
        (np.zeros(2), None, "sample has 2 channels: the network takes 3"),
        (np.full(3, np.nan), None, r"sample\[0, 0, 0\] is nan: it must be finite"),
        (np.zeros(3), 4, "label=4: must be from 0 to 3"),
    ):
        with pytest.raises(ValueError, match=said):
            stream.sample(x, label)
    assert not stream.ring
    for each in drawn(20):
        stream.sample(each)
    for count, said in (
        (11, "count=11: must be from 12, 12 samples of a sequence, to 20, the samples in the ring"),
        (21, "count=21: must be from 12"),
        (20, "count=20: has no 12 samples behind one another of one class: give their labels to sample"),
    ):
        with pytest.raises(ValueError, match=said):
            stream.learn(count)
