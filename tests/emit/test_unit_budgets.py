"""Each unit of each preset has a budget of levels. Small ones keep it here, alone; `make evidence` has the presets."""

import json
from pathlib import Path

import pytest

from gradloom import boards
from gradloom.boards.budgets import beyond, budgets
from gradloom.boards.ulx3s.netlist import NAMELESS
from gradloom.cli.design.designs import _budget
from gradloom.preset import PRESETS
from gradloom.rtl.catalog import UNITS
from gradloom.rtl.emit.verilog import emit
from gradloom.rtl.hierarchy import Emitter
from gradloom.rtl.machines.accelerator import Accelerator
from gradloom.rtl.soc import tuner_sources

ROOT = Path(__file__).parents[2]

#: What is synthesised here of each preset's modules. A path through two of them is the whole preset's to find.
SMALL = {"instantft-kv260": ("dense_control",), "edge-qlora-genesys2": ("foot",), "digits-ulx3s": ("tap_packer",)}


def modules(component, name):
    """What is placed in a component that is module ``name``, by the names of its modules."""
    emitter = Emitter()
    emitter.top(component, name, prefix=f"{name}_")
    return {module.name: module.component for module in emitter.modules}


@pytest.mark.parametrize("preset", SMALL)
def test_units_of_a_preset_have_budgets_and_small_ones_keep_them(preset, tmp_path):
    board, budget = boards.find(PRESETS[preset].board), budgets()[preset]
    found = modules(Accelerator(PRESETS[preset].config), "gradloom")
    around = {path.stem for path in tuner_sources()} | {"top", NAMELESS} if PRESETS[preset].board == "ulx3s" else set()
    assert set(found) | around == set(budget)
    for name in (f"gradloom_{each}" for each in SMALL[preset]):
        emit(found[name], tmp_path / name, name=name, family=board.family)
        levels = boards.measure(board, tmp_path / name, unit=name)["units"][name]["levels"]
        assert 0 < levels <= budget[name], f"{name}: {levels} levels"


@pytest.mark.parametrize("name", [name for name in budgets() if name in UNITS])
def test_each_module_of_a_stand_alone_unit_has_a_budget(name):
    assert set(modules(UNITS[name].build(), name.replace("-", "_"))) == set(budgets()[name])


def test_every_preset_is_in_the_table():
    assert set(PRESETS) <= set(budgets()) <= set(PRESETS) | set(UNITS)


def test_no_unit_may_have_more_than_the_whole():
    bounds = {"kv260": 8, "genesys2": 8, "ulx3s": 10, "zcu104": 8, "instantft-kv260": 7}
    # The product's peaks are masked before their carry.
    bounds |= dict.fromkeys(("cdm-qta-kv260", "tile-kv260"), 12)
    for name, preset in PRESETS.items():
        assert max(budgets()[name].values()) <= bounds.get(name, bounds[preset.board])


def test_a_machine_with_two_programs_has_one_budget():
    assert PRESETS["instantft-llm-genesys2"].config == PRESETS["edge-qlora-genesys2"].config
    assert budgets()["instantft-llm-genesys2"] is budgets()["edge-qlora-genesys2"]


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """A folder with the report of a unit, whose one module is found to have some levels."""

    def make(levels, *, module="lora_gradient", **settings):
        parameters = UNITS["lora-gradient"].settings(settings)
        (tmp_path / "report.json").write_text(json.dumps({"unit": "lora-gradient", "parameters": parameters}))
        result = {"units": {module: {"levels": levels}}, "levels": levels, "share": {}}
        monkeypatch.setattr(boards, "measure", lambda board, directory, *, unit: result)
        return tmp_path

    return make


def test_a_unit_beyond_its_budget_fails_the_report(run, measured):
    most = budgets()["lora-gradient"]["lora_gradient"]
    assert run("report", measured(most), "--json")[0] == 0
    code, out, err = run("report", measured(most + 1), "--json")
    assert code == 3 and json.loads(out)["units"]["lora_gradient"]["budget"] == most
    assert err == f"lora_gradient: {most + 1} levels of logic between registers: {most} were allowed\n"


def test_a_unit_without_a_budget_fails_the_report(run, measured):
    code, _, err = run("report", measured(1, module="lora_new"), "--json")
    assert code == 3 and err.startswith("lora_new: 1 levels") and "no budget" in err


def test_other_parameters_or_boards_have_no_budget(run, measured):
    assert run("report", measured(99, depth=8), "--json")[0] == 0
    assert run("report", measured(99), "--board", "genesys2", "--json")[0] == 0
    assert _budget({"preset": "somebodys", "parameters": {}}) is None


def test_a_message_names_unit_value_and_bound():
    assert beyond({"a": {"levels": 3}, "b": {"levels": 2}}, {"a": 2, "b": 2}) == [
        "a: 3 levels of logic between registers: 2 were allowed"
    ]


def test_measured_levels_are_within_the_budgets():
    """Of every unit that has a budget, in the presets and units that docs/evidence/timing.md shows."""
    found = json.loads((ROOT / "docs" / "levels.json").read_text(encoding="utf-8"))
    for name, levels in found.items():
        assert set(levels) == set(budgets()[name])
        assert {unit: most for unit, most in budgets()[name].items() if levels[unit] > most} == {}
    assert {"instantft-kv260", "digits-ulx3s"} <= set(found)
