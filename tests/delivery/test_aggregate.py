"""Averages of clients against the mean of their changes, by float64 products."""

import json

import numpy as np
import pytest

import gradloom
from gradloom.rtl.models.peft import read_peft, write_peft

NAMES = [f"base_model.model.model.layers.{layer}.self_attn.q_proj" for layer in (0, 1)]
CONFIG = {
    "peft_type": "LORA",
    "base_model_name_or_path": "small",
    "r": 2,
    "lora_alpha": 4,
    "target_modules": ["q_proj"],
}


@pytest.fixture
def client(tmp_path):
    """Writes an adapter; `a` or `b` may be shared."""

    def make(name, seed, *, shared="", config=None, size=24):
        tensors, rank = {}, (config or {}).get("r", 2)
        for each in NAMES:
            for which, shape in (("A", (rank, size)), ("B", (16, rank))):
                random = np.random.default_rng((7, which == "A") if which == shared else (seed, which == "A"))
                tensors[f"{each}.lora_{which}.weight"] = random.normal(0, 1, shape).astype(np.float32)
        write_peft(tmp_path / name, tensors, CONFIG | (config or {}))
        return tmp_path / name

    return make


def changes(folder):
    config, tensors = read_peft(folder)
    scale = config["lora_alpha"] / config["r"]
    return [
        scale * tensors[f"{name}.lora_B.weight"].astype(float) @ tensors[f"{name}.lora_A.weight"].astype(float)
        for name in NAMES
    ]


@pytest.mark.parametrize("shared", ["A", "B"])
def test_clients_that_share_a_matrix_have_an_exact_average(client, tmp_path, shared):
    clients = [client(f"c{n}", n, shared=shared) for n in range(3)]
    result = gradloom.aggregate(clients, tmp_path / "out", weights=(1, 1, 2))
    assert result["exact"] and result["largest_error"] == 0
    for found, *theirs in zip(changes(tmp_path / "out"), *map(changes, clients), strict=True):
        assert np.allclose(found, (theirs[0] + theirs[1] + 2 * theirs[2]) / 4, atol=1e-5)


def test_the_rank_of_all_together_is_exact_and_less_is_the_nearest(client, tmp_path):
    clients = [client(f"c{n}", n) for n in range(3)]
    wanted = [np.mean(each, axis=0) for each in zip(*map(changes, clients), strict=True)]
    whole = gradloom.aggregate(clients, tmp_path / "whole", rank=6)
    assert whole["exact"] and read_peft(tmp_path / "whole")[0]["lora_alpha"] == 12
    for found, mean in zip(changes(tmp_path / "whole"), wanted, strict=True):
        assert np.allclose(found, mean, atol=1e-5)
    less = gradloom.aggregate(clients, tmp_path / "less")
    assert not less["exact"]
    for name, found, mean in zip(less["errors"], changes(tmp_path / "less"), wanted, strict=True):
        values = np.linalg.svd(mean)[1]
        assert np.linalg.norm(found - mean) == pytest.approx(np.linalg.norm(values[2:]), rel=1e-4)
        assert less["errors"][name] == pytest.approx(np.linalg.norm(values[2:]) / np.linalg.norm(values), rel=1e-4)


def test_the_verb_says_which(client, tmp_path, run):
    clients = [client(f"c{n}", n, shared="A") for n in range(2)]
    code, out, _ = run("aggregate", *clients, "-o", tmp_path / "out")
    assert code == 0 and " ".join(out.split()).endswith("average of 2 clients, exact")
    clients = [client(f"d{n}", n) for n in range(2)]
    code, out, _ = run("aggregate", *clients, "-o", tmp_path / "out")
    assert code == 0 and "by singular values: at most " in " ".join(out.split())
    assert json.loads(run("aggregate", *clients, "-o", tmp_path / "out", "--json")[1])["clients"] == 2


@pytest.mark.parametrize(
    "other, more, said",
    [
        ({"config": {"base_model_name_or_path": "large"}}, [], "has base_model_name_or_path=large, "),
        ({"config": {"r": 4}}, [], "has r=4, "),
        ({"size": 32}, [], "differs in shape from that of "),
        ({}, ["--rank", "5"], "rank=5: must be from 1 to 4, the rank of all clients together"),
        ({}, ["--weights", "1,2,3"], "weights=1,2,3: must be 2 numbers above 0"),
        ({}, ["--weights", "1,x"], "weights=1,x: must be numbers with commas"),
        (None, [], "at least 2 are needed, not 1"),
    ],
)
def test_clients_that_do_not_fit_are_one_line(client, tmp_path, run, other, more, said):
    clients = [client("a", 1)] + ([] if other is None else [client("b", 2, **other)])
    code, out, err = run("aggregate", *clients, "-o", tmp_path / "out", *more)
    assert code == 2 and not out and said in err and err.count("\n") == 1 and not (tmp_path / "out").exists()
