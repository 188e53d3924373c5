"""Forward passes in simulated RTL of a small machine: results, counters and cycles are the reference's."""

import numpy as np
import pytest

from gradloom.compiler.lowering import lower
from gradloom.sim.run.counted import MismatchError
from gradloom.systems import forward
from gradloom.systems.forward import ForwardPass, result_of
from gradloom.systems.networks.program.prepared import Prepared, learning_of
from gradloom.systems.networks.task import answers
from gradloom.workload import silent

from ..compiler.nets import residual
from ..tiles import LEAST


@pytest.fixture
def made():
    """A network with adapters that have learnt, its passes in RTL, and samples."""
    learning = learning_of(residual(), "classes", "lora", targets="second,last", rank=2)
    random = np.random.default_rng(3)
    for name in learning.learners:
        learning.network.values[name] = random.standard_normal(learning.network.values[name].shape) / 4
    prepared = Prepared(learning, "classes")
    rules = prepared.rules(1.0)

    def passes(exact):
        def lowered(samples):
            return lower(LEAST, prepared.network, samples=samples, rules=rules)

        return ForwardPass(LEAST, exact, lowered, tell=silent)

    return prepared, passes, random.standard_normal((5, 7, 5, 3))


def test_results_are_those_of_the_reference(made):
    """Two programs: the last samples are fewer."""
    prepared, passes, x = made
    wanted = answers(result_of(prepared.integers()), prepared, x, 2)
    with passes(prepared.integers()) as run:
        found = answers(run, prepared, x, 2)
    np.testing.assert_array_equal(found, wanted)
    assert found.shape == (5, 1, 6) and run.figures["cycles"] == run.figures["forecast"] > 0
    # What has learnt takes part.
    plain = Prepared(learning_of(residual(), "classes", "lora", targets="second,last", rank=2), "classes")
    assert (answers(result_of(plain.integers()), plain, x, 2) != wanted).any()


def test_a_result_that_differs_is_told(made, monkeypatch):
    prepared, passes, x = made
    exact = prepared.integers()
    right = exact.result

    def other(inputs):
        found = right(inputs)
        found.exact = found.exact + 1
        return found

    monkeypatch.setattr(exact, "result", other)
    with passes(exact) as run, pytest.raises(MismatchError, match="of y"):
        answers(run, prepared, x[:2], 2)


def test_samples_that_need_more_memory_than_there_is_are_refused(made, monkeypatch):
    prepared, passes, x = made
    monkeypatch.setattr(forward, "MEMORY_BYTES", 4096)
    with passes(prepared.integers()) as run, pytest.raises(ValueError, match="batch=5: the forward pass needs .*fewer"):
        answers(run, prepared, x, 5)
