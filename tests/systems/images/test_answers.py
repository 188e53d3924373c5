"""Images that a machine answers: words, counters and cycles, and the labels of the logits."""

import numpy as np
import pytest

from gradloom.rtl.formats.images import PARAMETER
from gradloom.sim.run.counted import MismatchError
from gradloom.systems.images import answered
from gradloom.systems.images.answered import by_machine
from gradloom.systems.images.integers import fill_cache, logits
from gradloom.systems.images.program.lowering import lower
from gradloom.systems.images.task import check_shape
from gradloom.workload import silent

from .conftest import SMALL, small_network


def asked(convs=2, count=10, seed=0):
    """A network, images and an adapter."""
    random = np.random.default_rng(seed)
    lowered = lower(small_network(convs=convs), SMALL, 2)
    images = random.integers(0, 65536, (count, *lowered.network.input_shape))
    a, b = (
        [PARAMETER.encode(random.normal(0, 0.3, shape)) for shape in shapes]
        for shapes in ([(2, each) for each in lowered.network.taps], [(4, 2) for _ in lowered.network.taps])
    )
    return lowered, images, a, b


@pytest.mark.parametrize("convs", [0, 1, 2])
def test_labels_and_logits_are_those_of_the_reference(machine, convs, monkeypatch):
    """By two programs, of which the second has fewer images than the array has rows."""
    monkeypatch.setattr(answered, "_IMAGES", 7)
    lowered, images, a, b = asked(convs)
    made = by_machine(lowered, images, a, b, tell=silent, files=machine.files)
    cache = fill_cache(lowered, images)
    z = logits(lowered, cache, [m[:, tap.order] for m, tap in zip(a, lowered.taps)], b)
    assert (made.labels == z.argmax(axis=1)).all() and len(set(made.labels)) > 1
    z = z / 65536
    exact = z - np.log(np.exp(z - z.max(1, keepdims=True)).sum(1, keepdims=True)) - z.max(1, keepdims=True)
    np.testing.assert_allclose(made.logits, exact, atol=2e-3)
    assert made.figures["cycles"] == made.figures["forecast"] > 0


def test_images_of_another_shape_are_refused():
    network = small_network()
    check_shape("x", np.zeros((5, *network.input_shape)), network)
    for axis in (1, 2, 3):
        shape = [5, *network.input_shape]
        shape[axis] += 1
        with pytest.raises(ValueError, match=r"^x has images of .*: small takes \(2, 8, 8\), channels first$"):
            check_shape("x", np.zeros(shape), network)


def test_a_word_that_differs_is_told(machine, monkeypatch):
    lowered, images, a, b = asked(1, 3)
    right = answered.answered

    def other(*given):
        loss, correct, clipped = right(*given)
        loss[2, 3] += 1
        return loss, correct, clipped

    monkeypatch.setattr(answered, "answered", other)
    with pytest.raises(MismatchError, match="losses"):
        by_machine(lowered, images, a, b, tell=silent, files=machine.files)
