"""What ``--json`` prints is JSON."""

import json

import numpy as np
import pytest

from gradloom.cli.output import print_json
from gradloom.json_file import json_text


def test_a_number_that_json_does_not_have_is_null(capsys):
    bad = float("nan"), float("inf")
    print_json({"a": bad[0], "b": [bad[1], 1.5, True, None, "nan"], "c": np.array([1, bad[0]]), "d": (np.float32(2),)})
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found == {"a": None, "b": [None, 1.5, True, None, "nan"], "c": [1.0, None], "d": [2.0]}


def test_a_number_that_a_file_of_results_cannot_hold_is_null(run, tmp_path, monkeypatch):
    assert json_text([float("-inf"), np.float32("nan"), 1]) == "[\n  null,\n  null,\n  1\n]\n"
    monkeypatch.setattr("gradloom.systems.driver.units", lambda metrics: {"nan": float("nan")})
    words = ("finetune", "digits-ulx3s", "--engine", "float", "--epochs", "1", "-o", tmp_path / "run")
    assert run(*words)[0] == 0
    found = json.loads((tmp_path / "run" / "metrics.json").read_text(), parse_constant=pytest.fail)
    assert found["units"]["nan"] is None
