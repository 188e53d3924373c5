"""What other packages add by entry points is found, listed with its origin, and refused in one line if it is wrong."""

import json
import subprocess
import sys

import pytest

from gradloom import boards
from gradloom.boards.budgets import allowed, beyond, budget
from gradloom.cli.design.designs import _budget
from gradloom.preset import PRESETS, find_preset

PRESET = """
from dataclasses import dataclass
from typing import ClassVar
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.preset import Preset
from gradloom.options import TuneOptions, option
from gradloom.workload import Workload

@dataclass(frozen=True, kw_only=True)
class Theirs(TuneOptions):
    warmth: int = option("Of the yarn.", 3)

@dataclass(frozen=True, kw_only=True)
class Knitting(Workload):
    kind: ClassVar = "knitting"
    title: ClassVar = "yarn"
    label: ClassVar = "yarn"
    takes: ClassVar = {"finetune": Theirs}
    functions: ClassVar = {"finetune": "yarn:prepare"}
    codes: ClassVar = ()
    rank: int = 4

def prepare(job):
    raise ValueError(f"warmth={job.options.warmth}: is what was asked")

PRESET = Preset(name="theirs", board="kv260", summary="yarn", config=ImageConfig(), workload=Knitting())
"""
UNIT = """
import dataclasses
from gradloom.rtl.catalog import find_unit
from gradloom.sim.units.adapters import ADAPTERS

UNIT = dataclasses.replace(find_unit("nf4-decode"), name="knit", summary="yarn", adapter="needle:ADAPTER")
ADAPTER = ADAPTERS["nf4-decode"]
"""
BOARD = """
import dataclasses
from gradloom.boards import genesys2

BOARD = dataclasses.replace(genesys2.BOARD, name="loom9", summary="a loom")
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts a distribution on Python's path: entry points by group, and the text of its modules."""

    def make(name, entries, **modules):
        folder = tmp_path / name
        info = folder / f"{name}-1.2.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(
            "".join(
                f"[gradloom.{group}]\n" + "".join(f"{key} = {value}\n" for key, value in each.items())
                for group, each in entries.items()
            )
        )
        for module, text in modules.items():
            (folder / f"{module}.py").write_text(text)
            monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.syspath_prepend(folder)
        return folder

    return make


def test_a_preset_is_found_and_its_workload_has_options(run, install):
    install("knitter", {"presets": {"theirs": "yarn:PRESET"}}, yarn=PRESET)
    listed = {each["name"]: each["origin"] for each in json.loads(run("list", "presets", "--json")[1])}
    assert listed == dict.fromkeys(PRESETS, "gradloom") | {"theirs": "knitter 1.2"}
    assert run("finetune", "theirs", "--warmth", "7")[::2] == (2, "gradloom: warmth=7: is what was asked\n")
    assert "--warmth" in run("finetune", "theirs", "--help")[1]
    assert "--warmth" not in run("finetune", "lenet5", "--help")[1]
    # Presets of the house have the options that they had.
    code, _, err = run("finetune", "digits-ulx3s", "--warmth", "7")
    assert code == 2 and "--warmth: no such option of gradloom finetune" in err
    assert "theirs" in run("finetune", "nobodys")[2]


def test_a_unit_is_generated_and_run(run, install, tmp_path):
    install("knitter", {"units": {"knit": "needle:UNIT"}}, needle=UNIT)
    (row,) = (each for each in json.loads(run("list", "units", "--json")[1]) if each["name"] == "knit")
    assert row["origin"] == "knitter 1.2" and row["run"]
    assert run("generate", "knit", "-o", tmp_path / "out")[0] == 0 and (tmp_path / "out/rtl/knit.v").is_file()
    assert json.loads(run("run", "knit", "--describe", "--json")[1])["summary"] == "yarn"
    assert run("generate", "knot", "-o", tmp_path / "no")[2].endswith(", lstm, knit) and no shipped model\n")


def test_a_board_is_found(install):
    install("weaver", {"boards": {"loom9": "loom"}}, loom=BOARD)
    assert boards.find("loom9").summary == "a loom"
    assert [board.name for board in boards.all_boards()] == ["genesys2", "kr260", "kv260", "loom9", "ulx3s", "zcu104"]
    with pytest.raises(ValueError, match="board 'loom8': must be one of genesys2, kr260, kv260, ulx3s, zcu104, loom9"):
        boards.find("loom8")


def test_a_budget_may_have_one_bound_for_all_other_modules(install):
    install(
        "knitter",
        {"budgets": {"theirs": "levels:LEVELS"}, "presets": {"theirs": "yarn:PRESET"}},
        yarn=PRESET,
        levels="LEVELS = {'gradloom_needle': 2, '*': 5}",
    )
    found = budget("theirs")
    assert [allowed(found, name) for name in ("gradloom_needle", "gradloom_other")] == [2, 5]
    assert beyond({"gradloom_needle": {"levels": 3}, "gradloom_other": {"levels": 5}}, found) == [
        "gradloom_needle: 3 levels of logic between registers: 2 were allowed"
    ]
    summary = {"preset": "theirs", "parameters": vars(find_preset("theirs").config)}
    assert _budget(summary) == found and _budget(summary | {"parameters": {}}) is None


@pytest.mark.parametrize("verb", [("list", "presets"), ("generate",)], ids=" ".join)
def test_two_plugins_of_one_name_are_refused(run, install, tmp_path, verb):
    for name in ("knitter", "weaver"):
        install(name, {"presets": {"theirs": "yarn:PRESET"}}, yarn=PRESET)
    code, out, err = run(*verb, *(["theirs", "-o", tmp_path / "out"] if verb == ("generate",) else []))
    assert (code, out) == (2, "") and not (tmp_path / "out").exists()
    assert err == (
        "gradloom: preset theirs: weaver 1.2 and knitter 1.2 both have one; remove one of the two packages\n"
    )


def test_a_name_of_the_house_is_refused(run, install):
    install("knitter", {"presets": {"digits-ulx3s": "yarn:PRESET"}}, yarn=PRESET)
    assert run("finetune", "digits-ulx3s", "--engine", "float")[::2] == (
        2,
        "gradloom: preset digits-ulx3s: gradloom and knitter 1.2 both have one; remove one of the two packages\n",
    )


@pytest.mark.parametrize(
    "text, said",
    [
        ("import nothing_of_the_kind", "ModuleNotFoundError: No module named 'nothing_of_the_kind'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("", "AttributeError: module 'yarn' has no attribute 'PRESET'"),
        ("PRESET = 3", "is a int, must be a Preset"),
        (PRESET.replace('name="theirs"', 'name="ours"'), "calls itself ours; give the entry point the same name"),
    ],
    ids=["import", "error", "missing", "kind", "name"],
)
def test_a_plugin_that_does_not_load_is_one_line(run, install, text, said):
    install("knitter", {"presets": {"theirs": "yarn:PRESET"}}, yarn=text)
    for arguments in (("list", "presets"), ("finetune", "theirs"), ("finetune", "--help")):
        assert run(*arguments) == (2, "", f"gradloom: preset theirs: plug-in knitter 1.2, yarn:PRESET: {said}\n")
    # Nothing else needs it.
    assert find_preset("digits-ulx3s").name == "digits-ulx3s"


def test_help_imports_no_plugin(install):
    folder = install("knitter", {"presets": {"theirs": "yarn:PRESET"}}, yarn="raise SystemExit('loaded')")
    done = subprocess.run(
        [sys.executable, "-m", "gradloom", "--help"],
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "Usage" in done.stdout


def test_a_model_of_time_is_found(install):
    from gradloom.sim.time import forecast

    install("knitter", {"times": {"needle": "clock:Needle"}}, clock="class Needle: pass")
    assert forecast._KNOWN.find("needle").__name__ == "Needle"
    with pytest.raises(ValueError, match="model of the time of engine 'yarn': must be one of array"):
        forecast._KNOWN.find("yarn")
    assert list(forecast._KNOWN)[-1] == "needle"
