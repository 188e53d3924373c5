"""Counted things in messages."""

import numpy as np
import pytest

from gradloom.output import some


@pytest.mark.parametrize("count, words", [(0, "0 steps"), (1, "1 step"), (2, "2 steps"), (1234, "1,234 steps")])
def test_one_of_a_thing_has_no_s(count, words):
    assert some(count, "step") == words


def test_one_image_is_labelled(run, tmp_path):
    assert "1 image labelled" in run("infer", "digits-ulx3s", "--limit", "1")[1]
    np.savez(tmp_path / "d.npz", x=np.zeros((1, 8, 8), np.uint8))
    assert "1 image labelled" in run("infer", "digits-ulx3s", "--data", tmp_path / "d.npz")[1]
