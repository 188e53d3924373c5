"""A fine-tune by model, board and method."""

import json
import shutil
from pathlib import Path

import pytest

from gradloom.models.onnx_import import shipped_networks
from gradloom.preset import PRESETS
from gradloom.systems.asked import asked_for

LENET5 = str(shipped_networks()["lenet5"])


@pytest.mark.parametrize(
    "model, board, method, preset, named",
    [
        ("lenet5", None, None, "instantft-kv260", None),
        ("digits", None, None, "digits-ulx3s", None),
        ("digits", "kv260", None, "instantft-kv260", str(shipped_networks()["digits"])),
        (LENET5, "kv260", None, "instantft-kv260", LENET5),
        (LENET5, "ulx3s", "instantft", "digits-ulx3s", LENET5),
        ("smollm2-135m", None, None, "edge-qlora-genesys2", None),
        ("smollm2-135m", "genesys2", "lora-xs", "edge-qlora-genesys2", None),
        ("smollm2-135m", "genesys2", "instantft", "instantft-llm-genesys2", None),
        ("smollm2-135m", "kv260", None, "edge-qlora-kv260", None),
        ("smollm2-135m", "kv260", "instantft", "instantft-llm-kv260", None),
        ("tinyllama-1.1b", None, None, "edge-qlora-genesys2", "tinyllama-1.1b"),
        ("spar-lstm", None, None, "lstm-kv260", None),
        ("digits-unet", "kv260", None, "cdm-qta-kv260", None),
        ("cdm-qta-kv260", "kv260", None, "cdm-qta-kv260", None),
    ],
)
def test_a_model_finds_its_preset(model, board, method, preset, named):
    asked = asked_for(model, board=board, method=method)
    assert (asked.preset.name, asked.model) == (preset, named)
    assert (asked.why is None) == (model in PRESETS)
    assert asked.why is None or preset in asked.why and asked.preset.board in asked.why


def test_files_and_folders_are_what_they_hold(tmp_path):
    assert asked_for(str(next(Path(LENET5).parent.glob("spar_lstm64*.onnx")))).preset.name == "lstm-kv260"
    for files, preset in (
        (["config.json", "model.safetensors"], "edge-qlora-genesys2"),
        (["network.json"], "lstm-kv260"),
    ):
        folder = tmp_path / preset
        folder.mkdir()
        for name in files:
            (folder / name).write_text("{}")
        asked = asked_for(str(folder))
        assert (asked.preset.name, asked.model) == (preset, str(folder))
    (tmp_path / "m.gguf").touch()
    assert asked_for(str(tmp_path / "m.gguf")).preset.name == "edge-qlora-genesys2"


@pytest.mark.parametrize(
    "arguments, says",
    [
        (("nosuch",), "model=nosuch: is no file, none of the presets instantft-kv260, "),
        (("README.md",), "model=README.md: is a file of a kind that is not known, which no preset fine-tunes"),
        (("docs",), "model=docs: is a folder, which no preset fine-tunes; must be one of: an ONNX file"),
        ((LENET5,), "board: must be given, kv260, ulx3s have presets for"),
        (("lenet5", "--board", "zcu104"), "board=zcu104: no preset fine-tunes lenet5 on it; must be one of kv260"),
        (("instantft-kv260", "--board", "ulx3s"), "board=ulx3s: must be left out or kv260"),
        (("lenet5", "--method", "lora"), "method=lora: must be left out, instantft-kv260 fine-tunes images"),
        (("D",), "model=D: is an adapter's folder: name the model that it is for, and --adapter D"),
    ],
    ids=lambda each: " ".join(Path(part).name for part in each) if isinstance(each, tuple) else "",
)
def test_refusals(run, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(Path(__file__).parents[3])
    if arguments == ("D",):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "D").mkdir()
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            (tmp_path / "D" / name).write_text("{}")
    code, out, err = run("finetune", *arguments, "-o", tmp_path / "run")
    assert (code, err.count("\n")) == (2, 1)
    assert out == "" and err.startswith(f"gradloom: {says}"), err
    assert not (tmp_path / "run").exists()


def test_a_model_of_ones_own_is_what_is_fine_tuned(run, tmp_path):
    mine = tmp_path / "mine.onnx"
    shutil.copy(LENET5, mine)
    few = ("--epochs", "1", "--limit", "20", "--engine", "reference")
    code, _, err = run("finetune", mine, "--board", "kv260", "--method", "instantft", *few, "-o", tmp_path / "a")
    # The first line says which preset was found, and why.
    assert code == 0 and err.startswith(f"{mine}: preset instantft-kv260 fine-tunes images by InstantFT on kv260\n")
    assert run("finetune", "instantft-kv260", *few, "-o", tmp_path / "b")[0] == 0
    ours, theirs = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in "ab")
    assert (ours["preset"], ours["loss"]) == (theirs["preset"], theirs["loss"])
    assert (ours["request"]["model"], theirs["request"]["model"]) == ("mine.onnx", None)
