"""Choosing what learns in a network: its costs are those of what runs."""

import shlex

import pytest
from safetensors.numpy import load_file

import gradloom

from ..systems.networks.small import write_data, write_network


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    return write_network(folder / "small.onnx"), write_data(folder / "d.npz", count=60)


@pytest.fixture(scope="module")
def chosen(files, tmp_path_factory):
    return gradloom.choose(files[0], board="kv260", data=files[1], output=tmp_path_factory.mktemp("choice") / "out")


def test_costs_are_those_of_what_runs(chosen, files, tmp_path):
    """Cycles of the forecast, and bytes of what is shipped; of the one that is chosen and of the longest."""
    assert chosen["candidates"] == 9 and len(chosen["finalists"]) == 5
    assert chosen["samples"] == {"learnt": 32, "judged": 8}
    words = shlex.split(chosen["command"])
    given = dict(zip([each.removeprefix("--") for each in words[3::2]], words[4::2]))
    first = chosen["finalists"][0]
    assert words[:3] == ["gradloom", "finetune", files[0]] and given.get("method", "lora") == first["method"]
    for row in (first, max(chosen["finalists"], key=lambda row: row["seconds"])):
        options = {name: row[name] for name in ("method", "targets", "rank", "epochs") if row[name] is not None}
        made = gradloom.finetune(files[0], board="kv260", data=files[1], output=tmp_path / row["method"], **options)
        assert made["forecast"]["total"] == row["cycles"]
        tensors = load_file(tmp_path / row["method"] / "adapter_model.safetensors")
        assert sum(each.size * 4 for each in tensors.values()) == row["update_bytes"]


def test_the_chosen_one_is_the_cheapest_of_those_that_learn_best(chosen):
    first, *others = chosen["finalists"]
    falls = [chosen["held_out_before"] - row["held_out"] for row in chosen["finalists"]]
    assert falls[0] > 0 and falls[0] >= 0.97 * max(falls)
    assert all(row["seconds"] >= first["seconds"] for row, fall in zip(others, falls[1:]) if fall >= 0.97 * max(falls))


def test_budgets_decide_epochs_and_what_is_left(chosen, files, tmp_path):
    full = next(row for row in chosen["offers"] if row["method"] == "full")
    head = next(row for row in chosen["offers"] if row["method"] == "head")
    made = gradloom.choose(
        files[0], board="kv260", data=files[1], time=f"{1e6 * full['seconds'] - 1:.0f}us", update="1kB", output=tmp_path
    )
    less = next(row for row in made["offers"] if row["method"] == "full")
    assert less["epochs"] == full["epochs"] - 1 and less["cycles"] < full["cycles"] and not less["within"]
    assert all(row["update_bytes"] <= 1000 for row in made["offers"] if row["within"])
    with pytest.raises(ValueError, match=r"update=1 B: no candidate of 9 meets it; the nearest .* takes update"):
        gradloom.choose(files[0], board="kv260", data=files[1], update="1B", output=tmp_path / "other")
    assert head["seconds"] < full["seconds"]
