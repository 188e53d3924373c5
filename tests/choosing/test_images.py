"""Choosing a fine-tune on images: its costs are those of what runs."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import gradloom
from gradloom.choosing import images
from gradloom.models.datasets import default_split
from gradloom.systems.asked import asked_for
from gradloom.systems.images.requests import ImageChoice


@pytest.fixture(scope="module")
def turned(tmp_path_factory):
    """60 digits turned by 90 degrees, with 20 to judge by."""
    digits = default_split(0, degrees=90)
    path = tmp_path_factory.mktemp("images") / "turned.npz"
    np.savez(
        path,
        x_train=digits.x_train[:60],
        y_train=digits.y_train[:60],
        x_test=digits.x_test[:20],
        y_test=digits.y_test[:20],
    )
    return path


@pytest.fixture(scope="module")
def chosen(turned, tmp_path_factory):
    folder = tmp_path_factory.mktemp("choice") / "out"
    return gradloom.choose("lenet5", data=turned, time="1200us", output=folder), folder


def test_costs_are_those_of_what_runs(chosen, turned, tmp_path):
    """Each finalist's cycles, and the bytes of its adapter."""
    result, _ = chosen
    assert len(result["finalists"]) == 5 and result["candidates"] == 12
    for row in (result["finalists"][0], result["finalists"][-1]):
        metrics = gradloom.finetune(
            "instantft-kv260",
            data=turned,
            rank=row["rank"],
            cache=row["cache"],
            epochs=row["epochs"],
            engine="reference",
            output=tmp_path / str(row["rank"]),
        )
        assert metrics["forecast"]["total"] == row["cycles"]
        tensors = load_file(tmp_path / str(row["rank"]) / "adapter_model.safetensors")
        assert sum(each.nbytes for each in tensors.values()) == row["update_bytes"]


def test_a_budget_of_time_decides_the_epochs(chosen, turned):
    """As many as it is enough for: with a cycle less there is an epoch less."""
    result, _ = chosen
    assert all(row["seconds"] <= 1200e-6 for row in result["offers"] if row["within"])
    row = next(row for row in result["offers"] if row["within"] and 1 < row["epochs"] < 10)
    for cycles, epochs in ((row["cycles"], row["epochs"]), (row["cycles"] - 1, row["epochs"] - 1)):
        wanted = ImageChoice(data=turned, time=f"{cycles * 5e-3 + 2e-3:.3f}us")
        asked = images.ImageChooser(asked_for("lenet5", verb="choose"), wanted)
        assert asked.priced(row["rank"], row["cache"]).epochs == epochs


def test_the_chosen_one_learns_and_is_the_cheapest_of_the_best(chosen):
    result, folder = chosen
    first, *others = result["finalists"]
    fall = result["held_out_before"] - first["held_out"]
    assert fall > 0
    best = max(result["held_out_before"] - row["held_out"] for row in result["finalists"])
    assert fall >= 0.97 * best
    for row in others:
        if result["held_out_before"] - row["held_out"] >= 0.97 * best:
            assert row["seconds"] >= first["seconds"]
    assert result["command"].startswith("gradloom finetune lenet5 --board kv260 --data ")
    assert f"--rank {first['rank']}" in result["command"]
    assert json.loads((folder / "choose.json").read_text()) == result
    assert sorted(each.name for each in folder.iterdir()) == [".gradloom", "choose.json", "pareto.png"]


def test_images_to_judge_by_are_not_looked_at(chosen, turned, tmp_path):
    """Other images in x_test, the same choice; other labels of those held out, another loss."""
    result, _ = chosen
    with np.load(turned) as held:
        arrays = {name: held[name] for name in held.files}
    np.savez(tmp_path / "other.npz", **arrays | {"x_test": 255 - arrays["x_test"]})
    again = gradloom.choose("lenet5", data=tmp_path / "other.npz", time="1200us", output=tmp_path / "a")
    assert again["finalists"] == result["finalists"]
    part = np.sort(np.random.default_rng(0).permutation(60)[:12])
    labels = arrays["y_train"].copy()
    labels[part] = (labels[part] + 1) % 10
    np.savez(tmp_path / "labels.npz", **arrays | {"y_train": labels})
    wrong = gradloom.choose("lenet5", data=tmp_path / "labels.npz", time="1200us", output=tmp_path / "b")
    assert wrong["finalists"][0]["held_out"] > result["finalists"][0]["held_out"]


@pytest.mark.parametrize(
    "options, said",
    [
        ({"steps": 3}, "steps=3: must be left out, choose of instantft-kv260 takes time, memory"),
        ({"time": "10"}, "time=10"),
        ({"memory": "5kB"}, "memory=5000 B: no candidate of 12 meets it; the nearest (rank 1, "),
        ({"board": "genesys2"}, "board=genesys2: no preset chooses for lenet5 on it; must be one of kv260, ulx3s"),
    ],
)
def test_refusals(turned, tmp_path, options, said):
    with pytest.raises(ValueError) as error:
        gradloom.choose("lenet5", data=turned, output=tmp_path / "out", **options)
    assert said in str(error.value)
    assert not (tmp_path / "out").exists()


def test_too_few_images_to_hold_a_part_out(tmp_path):
    few, labels = np.zeros((9, 28, 28), np.uint8), np.zeros(9, np.int64)
    np.savez(tmp_path / "few.npz", x_train=few, y_train=labels, x_test=few, y_test=labels)
    with pytest.raises(ValueError, match="9 images in x_train, must be at least 10 to hold a part out"):
        gradloom.choose("lenet5", data=tmp_path / "few.npz", output=tmp_path / "out")


def test_no_such_model(turned, tmp_path):
    with pytest.raises(ValueError, match="model=none.onnx: is no file, none of the presets"):
        gradloom.choose("none.onnx", data=turned, output=tmp_path / "out")
