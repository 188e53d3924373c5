"""The guide's table of presets: what it names is there, and what a preset can do on its board is named."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

from gradloom import boards
from gradloom.preset import PRESETS

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guides/boards/on-the-board.md").read_text(encoding="utf-8")
ROWS = {
    name: cells
    for line in re.findall(r"## Every preset\n(.*?)\n## ", GUIDE, re.S)[0].splitlines()
    for name, *cells in [[each.strip() for each in line.strip("|").split("|")]]
    if line.startswith("| `")
}


def ways(preset):
    """What learns and what answers on a preset's board, as its options and its board's tools have it."""
    board, workload = boards.find(preset.board), preset.workload
    takes = {verb: workload.takes[verb].known() for verb in ("finetune", "infer", "card") if workload.can(verb)}
    host = hasattr(importlib.import_module(f"gradloom.boards.{board.name}"), "reached")
    over_ssh = host and "host" in inspect.signature(workload.function("infer")).parameters
    by_card = "answer" in takes.get("card", ())
    by_port = "port" in takes["infer"] and (by_card or board.listens > 0)
    learns = {
        "`finetune --host`": host and "finetune" in takes,
        "`finetune --port`": board.listens > 0 and "finetune" in takes,
        "`card write`, `card collect`": "card" in takes,
        "it answers alone": "finetune" not in takes,
    }
    answers = {
        "`infer --host`": over_ssh,
        "`card write --answer`, `infer --port`": by_card and by_port,
        "`infer --port`": by_port and not by_card,
        "here, in floating point": not over_ssh and not by_port,
    }
    return [[text for text, there in each.items() if there] for each in (learns, answers)]


def test_every_preset_has_a_row():
    assert set(ROWS) == {f"`{name}`" for name in PRESETS}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_does_on_its_board_what_the_guide_says(name):
    preset = PRESETS[name]
    job, answers, tests = ROWS[f"`{name}`"]
    assert ways(preset) == [[job], [answers]]
    assert callable(importlib.import_module(f"gradloom.boards.{preset.board}").flash)
    for path in re.findall(r"`([^`]+)`", tests):
        text = (ROOT / path).read_text(encoding="utf-8")
        system = inspect.getmodule(type(preset.workload)).__name__.split(".")[2]
        assert name in text or f"systems.{system}" in text, path
