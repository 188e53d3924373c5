"""Classes of unequal sizes: factors of gradients, the rates of their microbatches, and what they do to a fine-tune."""

import numpy as np
import pytest

from gradloom.models.datasets import digits_split
from gradloom.preset import PRESETS
from gradloom.systems.driver import finetune
from gradloom.systems.images.program.program import Settings, learning_scale, plan_steps
from gradloom.systems.images.workload import ImageOptions


def test_balanced_weights_make_classes_equal_in_sum():
    labels = np.array([3, 0, 0, 5, 0, 3, 0, 0])
    factors = ImageOptions(class_weights="balanced").factors(labels, 6)
    np.testing.assert_allclose([factors[labels == label].sum() for label in (0, 3, 5)], 8 / 3)
    assert ImageOptions().factors(labels, 6) is None
    assert ImageOptions(class_weights="1,1,1,4,1,2").factors(labels, 6).tolist() == [4, 1, 1, 2, 1, 4, 1, 1]


def test_a_step_has_a_microbatch_of_each_weight():
    weights = np.array([1, 2, 1, 1, 3, 2, 1.0, 1])
    steps = plan_steps(Settings(samples=8, epochs=2, batch=4, rate=0.05, weights=weights), 2)
    assert sorted(np.concatenate([step.samples for step in steps if step.epoch == 1])) == list(range(8))
    assert sum(step.first for step in steps) == sum(step.last for step in steps) == 4
    for step in steps:
        (weight,) = set(weights[step.samples])
        assert len(step.samples) <= 2 and (step.scale, step.q) == learning_scale(0.05, 4, weight)


@pytest.mark.parametrize(
    "rate, weight, message",
    [
        (20.0, 40.0, r"lr=20\.0: times the class weight 40 and divided by the batch of 20 it must be below 32"),
        (1e-6, 0.25, r"lr=1e-06: times the class weight 0\.25 and divided by the batch of 20 it is less than 2\*\*-25"),
        (1e-7, 1.0, r"lr=1e-07: divided by the batch of 20 it is less than"),
    ],
)
def test_a_rate_that_the_machine_has_not_names_the_weight(rate, weight, message):
    with pytest.raises(ValueError, match=message):
        learning_scale(rate, 20, weight)


def test_a_rare_class_is_learnt_sooner(tmp_path):
    """All engines take the factors alike, and say plain losses."""
    split = digits_split(240, 80, degrees=90)
    rare = np.flatnonzero(split.y_train == 7)[2:]
    parts = {"x_train": np.delete(split.x_train, rare, 0), "y_train": np.delete(split.y_train, rare)}
    np.savez(tmp_path / "few.npz", **parts, x_test=split.x_test, y_test=split.y_test)
    usual = {"data": tmp_path / "few.npz", "epochs": 4, "lr": 0.01}
    found = {
        (engine, weights): finetune(
            PRESETS["digits-ulx3s"],
            ImageOptions(**usual, engine=engine, class_weights=weights),
            output=tmp_path / f"{engine}-{weights}",
        )
        for engine in ("float", "reference")
        for weights in ("none", "balanced")
    }
    for weights in ("none", "balanced"):
        losses = [found[engine, weights]["loss"] for engine in ("float", "reference")]
        np.testing.assert_allclose(losses[0], losses[1], rtol=0.1)
    assert found["float", "none"]["loss"][0] == pytest.approx(found["float", "balanced"]["loss"][0])
    for engine in ("float", "reference"):
        called = [sum(row[7] for row in found[engine, w]["confusion_after"]) for w in ("none", "balanced")]
        assert called[1] > called[0]


def test_a_class_that_one_part_lacks_is_said(tmp_path):
    split, told = digits_split(200, 80), []
    kept = split.y_train != 3
    learnt = {"x_train": split.x_train[kept], "y_train": split.y_train[kept]}
    judged = {"x_test": split.x_test[split.y_test != 5], "y_test": split.y_test[split.y_test != 5]}
    np.savez(tmp_path / "few.npz", **learnt, **judged)
    found = finetune(
        PRESETS["digits-ulx3s"],
        ImageOptions(data=tmp_path / "few.npz", epochs=1, engine="float"),
        output=tmp_path / "run",
        progress=lambda done, total, what: told.append(what),
    )
    assert (found["classes_not_learnt"], found["classes_not_judged"]) == ([3], [5])
    assert "classes not learnt: 3" in told and "classes not judged: 5" in told
