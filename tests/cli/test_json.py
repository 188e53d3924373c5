"""What ``--json`` prints is JSON."""

import json

import numpy as np
import pytest

from gradloom.cli.output import print_json


def test_a_number_that_json_does_not_have_is_null(capsys):
    bad = float("nan"), float("inf")
    print_json({"a": bad[0], "b": [bad[1], 1.5, True, None, "nan"], "c": np.array([1, bad[0]]), "d": (np.float32(2),)})
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found == {"a": None, "b": [None, 1.5, True, None, "nan"], "c": [1.0, None], "d": [2.0]}
