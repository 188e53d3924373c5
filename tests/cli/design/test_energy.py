"""The verb energy: what it refuses, in one line and before the long part."""

import pytest

import gradloom
from gradloom.cli.design.sweep import measure, plan_points
from gradloom.preset import find_preset
from gradloom.sim.activity import driver
from gradloom.sim.activity.idle import idle_activity

from ...deep import deep

REFUSED = {
    "unknown": (("energy", "nope"), "nope"),
    "parameter": (("energy", "digits-ulx3s", "--set", "rowz=3"), "rowz: no such parameter"),
    "value": (("energy", "digits-ulx3s", "--set", "rows=many"), "rows=many: must be an integer"),
    "samples": (("energy", "digits-ulx3s", "--samples", "0"), "samples=0: must be at least 1"),
    "suffix": (("energy", "digits-ulx3s", "--saif", "out.txt"), "saif=out.txt: must name a file that ends in .saif"),
    "folder": (("energy", "digits-ulx3s", "--saif", "folder.saif"), "saif=folder.saif: is a directory"),
    "both": (
        ("energy", "digits-ulx3s", "--design", "folder.saif", "--set", "rows=2"),
        "design=folder.saif: must be left",
    ),
    "no design": (("energy", "digits-ulx3s", "--design", "folder.saif"), "design=folder.saif: has no report.json"),
    "activity": (("build", "kv260", "folder.saif", "--saif", "none.saif"), "folder.saif: has no rtl/*.v"),
}


@pytest.mark.parametrize("line, said", REFUSED.values(), ids=REFUSED)
def test_a_bad_request_is_one_line(run, tmp_path, monkeypatch, line, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.saif").mkdir()
    code, out, err = run(*line)
    assert (code, out, err.count("\n")) == (2, "", 1) and said in err
    assert [path.name for path in tmp_path.rglob("*")] == ["folder.saif"]


def points(preset, **changes):
    options = {"rank": None, "mesh": None, "codes": None, "settings": (), "area": "count", "accuracy": False}
    options |= {"limit": None, "epochs": None, "seed": 0, "toggles": True}
    return plan_points([preset], **options | changes)


def test_a_sweep_counts_the_transitions_of_each_points_own_run(monkeypatch):
    asked = []

    def record(preset, saif, **options):
        asked.append((preset.config.rows, saif, options))
        return {"toggles": 1000 * len(asked), "toggles_a_cycle": 2.5}

    monkeypatch.setattr(driver, "record", record)
    found = [measure(point) for point in points("digits-ulx3s", rank="1,2", mesh="4x4,8x4", codes="nf4")]
    assert [each["toggles"] for each in found] == [1000, 2000, 3000, 4000]
    assert {each["toggles_a_cycle"] for each in found} == {2.5}
    assert asked == [(rows, None, {"rank": rank, "cache": "nf4"}) for rank in (1, 2) for rows in (4, 8)]
    (plain,) = points("digits-ulx3s", toggles=False)
    assert "toggles" not in measure(plain) and len(asked) == 4


@deep
def test_a_larger_array_has_more_transitions_for_the_same_work():
    small, large = (measure(point) for point in points("digits-ulx3s", mesh="4x4,8x4"))
    assert 0 < small["toggles"] < large["toggles"] and small["toggles_a_cycle"] < large["toggles_a_cycle"]
    assert small["toggles"] == gradloom.energy("digits-ulx3s")["toggles"]


@deep
def test_a_diffusion_models_step_moves_every_engine(tmp_path):
    found = gradloom.energy("cdm-qta-kv260", saif=tmp_path / "step.saif")
    moved = {each["part"]: each["toggles_a_cycle"] for each in found["engines"]}
    assert {"product", "element", "norm", "update", "shell"} <= set(moved) and min(moved.values()) > 1
    assert (tmp_path / "step.saif").stat().st_size


@deep
@pytest.mark.parametrize("preset, most", [("digits-ulx3s", 1.0), ("edge-qlora-genesys2", 7.0)])
def test_engines_that_have_nothing_to_do_are_still(preset, most):
    found = idle_activity(find_preset(preset))
    idle = [each for each in found["engines"] if each["engine"] != found["moves"].split(".")[0]]
    busy = next(each for each in found["engines"] if each not in idle)
    assert len(idle) >= 2 and busy["inside"] > 10
    assert all(each["inside"] < most for each in idle), idle
