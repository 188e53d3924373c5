"""Sequences on the board: answers and a fine-tune of lstm-kv260 are those of simulated RTL."""

import json

import numpy as np
import pytest

import gradloom
from gradloom import boards
from gradloom.jobs import on_board
from gradloom.models.sequences import fold_of, spar_model, spar_person
from gradloom.preset import find_preset
from gradloom.systems.asked import asked_for
from gradloom.systems.driver import finetune
from gradloom.systems.sequences.requests import SequenceAnswers

from ..deep import deep

PRESET = find_preset("lstm-kv260")


@pytest.fixture
def board(make_board):
    return make_board(PRESET.config, PRESET.name)


@deep
@pytest.mark.parametrize("name", ["lstm-kv260", "lstm-zcu104"])
def test_answers_and_states_are_those_of_simulated_rtl(make_board, name, tmp_path):
    data, preset = spar_person(1), find_preset(name)
    make_board(preset.config, name)
    there = boards.find(preset.board)
    np.savez(tmp_path / "data.npz", x=data.x_test[:3], y=data.y_test[:3])
    asked = {"model": spar_model(fold_of(1)), "data": tmp_path / "data.npz"}
    found = on_board.infer_on(
        boards.reached(there, host="ubuntu@board", name="gradloom"),
        asked_for(name, verb="infer"),
        SequenceAnswers(**asked, output=tmp_path / "found.npz"),
    )
    wanted = gradloom.infer(
        str(asked["model"]), board=there.name, data=asked["data"], engine="rtl", output=tmp_path / "wanted.npz"
    )
    # The memory's latencies are not known of a board, so that there is no forecast.
    assert found.pop("forecast") is None and wanted.pop("forecast") == found["cycles"]
    assert found == wanted
    arrays = [np.load(tmp_path / name) for name in ("found.npz", "wanted.npz")]
    assert arrays[0].files == arrays[1].files and all((arrays[0][n] == arrays[1][n]).all() for n in arrays[0])


@deep
def test_a_fine_tune_is_that_of_simulated_rtl(board, tmp_path):
    options = PRESET.workload.options(PRESET.name, {"limit": 6, "epochs": 2, "batch": 3})
    on_board.finetune_on(board.reach, PRESET, options, output=tmp_path / "found")
    finetune(PRESET, options, output=tmp_path / "wanted")
    for name in ("adapter_model.safetensors", "adapter_config.json", "loss.png"):
        assert (tmp_path / "found" / name).read_bytes() == (tmp_path / "wanted" / name).read_bytes()
    found, wanted = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("found", "wanted"))
    assert found["loss"] == wanted["loss"] and found["cycles"] == wanted["cycles"]


def test_a_machine_that_answers_nothing_by_itself_is_refused(monkeypatch):
    """Of a plug-in, whose answers take no machine. No board is asked."""
    asked = asked_for("lstm-kv260")
    monkeypatch.setattr(type(asked.preset.workload), "function", lambda self, name: lambda asked, options, tell: None)
    reach = boards.reached(boards.find("kv260"), host="ubuntu@kria", name="gradloom")
    with pytest.raises(
        ValueError, match="^host=ubuntu@kria: must be left out, lstm-kv260 answers by its reference alone$"
    ):
        on_board.infer_on(reach, asked, SequenceAnswers())
