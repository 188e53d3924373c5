"""Each unit of each preset has a budget of levels, which small ones, alone, keep here; whole presets in `make evidence`."""
import json
from functools import cache

import pytest

from gradloom import boards
from gradloom.boards.budgets import beyond, budgets
from gradloom.rtl.cli_verbs import _budget
from gradloom.rtl.emit import emit
from gradloom.rtl.hierarchy import Emitter
from gradloom.rtl.presets import PRESETS
from gradloom.rtl.top import Accelerator
from gradloom.rtl.units import UNITS

#: What is synthesised here of each preset's modules. A path through two of them is the whole preset's to find.
SMALL = {
    "instantft-kv260": ("tap_encoder", "row_feeder", "_class_lane", "adapter_lanes", "hidden", "pass_control", "add"),
    "edge-qlora-genesys2": ("table_loader", "hidden_foot", "stager", "descent_adaptive1", "row_sums", "shared_queue"),
    "digits-ulx3s": ("pe_both0", "pe_both1", "tap_packer", "_class_lane", "dense_control", "add"),
}


@cache
def modules(component):
    """Modules of a component by name."""
    emitter = Emitter()
    emitter.top(component, "gradloom", prefix="gradloom_")
    return {module.name: module.component for module in emitter.modules}


@pytest.mark.parametrize("preset", SMALL)
def test_units_of_a_preset_have_budgets_and_small_ones_keep_them(preset, tmp_path):
    board, budget = boards.find(PRESETS[preset].board), budgets()[preset]
    found = modules(Accelerator(PRESETS[preset].config))
    assert set(found) <= set(budget)
    # The others are those of the project around it.
    assert set(found) == {name for name in budget if name.startswith("gradloom")}
    for name in (f"gradloom_{each}" for each in SMALL[preset]):
        emit(found[name], tmp_path / name, name=name, family=board.family)
        levels = boards.measure(board, tmp_path / name, unit=name)["units"][name]["levels"]
        assert 0 < levels <= budget[name], f"{name}: {levels} levels"
