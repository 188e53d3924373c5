"""An average of adapters is judged where the system of the clients' preset judges adapters, else it is refused."""

import json

import pytest

from gradloom.cli.field.package import _judged
from gradloom.preset import PRESETS


@pytest.mark.parametrize("name", ["tile-kv260", "lstm-zcu104", "mine", None])
def test_what_no_system_judges_is_named(name, tmp_path):
    (tmp_path / "metrics.json").write_text(json.dumps({"preset": name, "workload": "own"}))
    with pytest.raises(ValueError, match=f"^held_out={tmp_path}: must be left out, nothing judges adapters of own$"):
        _judged(tmp_path, tmp_path, tmp_path, None)


def test_what_a_system_judges_goes_to_it(tmp_path):
    (tmp_path / "metrics.json").write_text(json.dumps({"preset": "digits-ulx3s"}))
    assert PRESETS["digits-ulx3s"].workload.can("judge")
    with pytest.raises((OSError, ValueError)) as refused:
        _judged(tmp_path, tmp_path, tmp_path / "none.npz", None)
    assert "nothing judges" not in str(refused.value)
