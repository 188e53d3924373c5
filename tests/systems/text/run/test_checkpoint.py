"""A checkpoint goes on with the request that it was begun with, and with no other."""

import numpy as np
import pytest

from gradloom.systems.text.run.checkpoint import ResumePoint

REQUEST = {"lr": 0.1, "targets": ["q", "v"]}


@pytest.fixture
def kept(tmp_path):
    ResumePoint(tmp_path, REQUEST, every=2).keep(4, {"step": 4, "words": np.arange(3)})
    return tmp_path


def test_the_same_request_goes_on(kept):
    found = ResumePoint(kept, {**REQUEST, "targets": ("q", "v")}, every=0).load()
    assert found["step"] == 4 and found["words"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "request_, said",
    [
        ({**REQUEST, "lr": 0.2}, "lr=0.2: must be 0.1"),
        ({**REQUEST, "rank": 4}, "rank=4: must be"),
        ({"lr": 0.1}, "targets="),
    ],
)
def test_a_field_that_differs_or_is_not_in_both_is_named(kept, request_, said):
    with pytest.raises(ValueError, match=said):
        ResumePoint(kept, request_, every=0).load()


def test_steps_between_are_not_kept(tmp_path):
    ResumePoint(tmp_path, REQUEST, every=2).keep(3, {"step": 3})
    with pytest.raises(ValueError, match="has no checkpoint.npz; leave --resume out to begin"):
        ResumePoint(tmp_path, REQUEST, every=2).load()
