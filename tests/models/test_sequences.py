"""Shipped recordings and networks: sets are apart, codes exact."""

import numpy as np
import pytest

from gradloom.models.recurrent.stored import load_network
from gradloom.models.sequences import (
    CLASSES,
    FOLDS,
    PERSONS,
    SPAR_STEPS,
    fold_of,
    load_sequences,
    spar_model,
    spar_person,
    spar_windows,
)
from gradloom.sim.reference import cell

from .recurrent.models import unfused


def where(windows, recordings):
    """Positions of windows among all that begin one sample apart."""
    found = {each.tobytes(): number for number, each in enumerate(recordings)}
    return [found[each.tobytes()] for each in windows]


@pytest.mark.parametrize("person", [3, 4])
def test_what_is_learnt_and_what_is_judged_share_no_sample(person):
    held = spar_person(person)
    every, labels = spar_windows((person,), 1)
    learnt, judged = (where(x, every) for x in (held.x_train, held.x_test))
    assert len(learnt) == 140 and sorted(np.bincount(held.y_train)) == [20] * len(CLASSES)
    np.testing.assert_array_equal(labels[learnt], held.y_train)
    np.testing.assert_array_equal(labels[judged], held.y_test)
    # A window is the one before it, a sample later, but where a recording begins.
    begins = (every[1:, :-1] != every[:-1, 1:]).any(axis=(1, 2))
    recording = np.concatenate([[0], np.cumsum(begins)])
    assert recording[-1] == 13
    apart = np.abs(np.subtract.outer(learnt, judged))
    same = np.equal.outer(recording[learnt], recording[judged])
    assert apart[same].min() >= SPAR_STEPS


def test_recordings_are_whole():
    x, y = spar_windows(tuple(range(1, PERSONS + 1)), 1)
    assert x.shape == (108_159, SPAR_STEPS, 6) and (np.abs(x) <= 8).all()
    assert (x * 16 == np.rint(x * 16)).all()
    # Gravity is about 1 g, which is 2: differences were summed without a slip.
    assert 2.0 < np.median(np.linalg.norm(x[::97, :, :3], axis=2)) < 2.25
    assert sorted(person for people in FOLDS for person in people) == list(range(1, PERSONS + 1))


@pytest.mark.parametrize("fold", range(len(FOLDS)))
def test_shipped_networks_have_onnxruntimes_codes(fold):
    network = load_network(spar_model(fold))
    x, y = spar_windows(FOLDS[fold])
    trace = cell.run(network, network.input.codes(x))
    found = cell.logits(network, trace)
    assert 0.75 < (found.argmax(axis=1) == y).mean() < 0.97
    zero = np.zeros((64, network.cell.units), np.float32)
    told = unfused(spar_model(fold), {"x": x[:64], "h_init": zero, "c_init": zero})
    np.testing.assert_array_equal(np.rint(told["h_all"] / network.cell.hidden.scale).transpose(1, 0, 2), trace.h[:64])
    np.testing.assert_array_equal(np.rint(told["c_last"] / network.cell.state.scale), trace.state.c[:64])
    np.testing.assert_array_equal(told["logits"], found[:64])


def test_a_person_belongs_to_the_network_that_has_not_seen_them():
    assert [fold_of(person) for person in range(1, PERSONS + 1)] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    with pytest.raises(ValueError, match="person=11: must be from 1 to 10"):
        spar_person(11)


BAD = {
    "another channel count": ({"x_test": np.zeros((2, 9, 5))}, "x_test has 5 channels: the network takes 6"),
    "NaN": ({"x_train": np.full((2, 9, 6), np.nan)}, r"x_train\[0, 0, 0\] is nan"),
    "text": ({"x_train": np.full((2, 9, 6), "a")}, "x_train has dtype <U1"),
    "two axes": ({"x_train": np.zeros((2, 9))}, r"x_train has shape \[2, 9\]"),
    "nothing": ({"x_train": np.zeros((0, 9, 6)), "y_train": np.zeros(0, int)}, "none of them 0"),
    "a class too many": ({"y_test": np.array([0, 7])}, "y_test holds 0 to 7: classes must be from 0 to 6"),
    "labels for others": (
        {"y_train": np.array([0])},
        r"y_train has dtype int64 and shape \[1\]: expected integers, \[2\]",
    ),
    "another length": ({"x_test": np.zeros((2, 8, 6))}, "x_test has sequences of 8 steps: x_train has 9"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_users_sequences_are_checked(case, tmp_path):
    changed, said = BAD[case]
    good = {
        "x_train": np.zeros((2, 9, 6)),
        "x_test": np.zeros((2, 9, 6)),
        "y_train": np.arange(2),
        "y_test": np.arange(2),
    }
    np.savez(tmp_path / "good.npz", **good)
    assert load_sequences(tmp_path / "good.npz", classes=7, channels=6).x_train.dtype == np.float32
    np.savez(tmp_path / "bad.npz", **(good | changed))
    with pytest.raises(ValueError, match=said):
        load_sequences(tmp_path / "bad.npz", classes=7, channels=6)
