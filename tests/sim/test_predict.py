"""Labels are those of the machine that learnt: its codes, its integers."""
import json

import numpy as np
import pytest

from gradloom.rtl.models.datasets import default_split
from gradloom.rtl.presets import PRESETS
from gradloom.sim.finetune import finetune, predict

PRESET = next(iter(PRESETS.values()))


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    data = default_split(degrees=90).limited(train=40, test=100)
    path = tmp_path_factory.mktemp("digits") / "digits.npz"
    np.savez(path, x_train=data.x_train, y_train=data.y_train, x_test=data.x_test, y_test=data.y_test)
    return path


@pytest.mark.parametrize("engine, cache, codes", [
    ("reference", "nf4", "nf4"), ("reference", "int8", "int8"), ("reference", "none", "nf4"),
    ("float", "none", "none")])
def test_an_adapter_says_which_codes_it_learnt_from(engine, cache, codes, digits, tmp_path):
    metrics = finetune(PRESET, output=tmp_path, data=digits, epochs=2, engine=engine, cache=cache)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["gradloom_codes"] == codes
    labels = predict(PRESET, data=digits, adapter=tmp_path, engine=engine, output=tmp_path / "labels.npz")
    assert labels["accuracy"] == metrics["accuracy_after"]

    before = np.load(tmp_path / "labels.npz")["logits"]
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    other = {"nf4": "int8"}.get(codes, "nf4")
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | {"gradloom_codes": other}))
    predict(PRESET, data=digits, adapter=tmp_path, engine=engine, output=tmp_path / "labels.npz")
    assert not np.array_equal(before, np.load(tmp_path / "labels.npz")["logits"])
