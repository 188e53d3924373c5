"""What a fine-tune of a preset for images says where the model of time is not that of the RTL."""

import json
import re

PRESET = ("digits-ulx3s", "--engine", "rtl", "--limit", "8", "--epochs", "1")


def test_a_changed_constant_ends_a_fine_tune_in_rtl_without_results(run, tmp_path, off_by_one):
    code, out, err = run("finetune", *PRESET, "--json", "-o", tmp_path / "run")
    assert code == 0, err
    told = json.loads(out)
    assert told["cycles"] == told["forecast"] and told["equal_to_reference"]["commands"] > 100
    for constant in ("array.CHECK", "head.FIFO"):
        with off_by_one(constant):
            code, _, err = run("finetune", *PRESET, "-o", tmp_path / constant)
        assert code == 3 and re.search(r"^gradloom: RTL and forecast differ: [^\n]*\n?\Z", err, re.MULTILINE), constant
        assert not (tmp_path / constant).exists()
