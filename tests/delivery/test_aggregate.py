"""Averages of clients against the mean of their changes, by float64 products."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import gradloom
from gradloom.models.adapters.config import rank_of
from gradloom.models.adapters.language.instant import load_instant, save_instant
from gradloom.models.adapters.lora import Adapter
from gradloom.models.adapters.peft import read_peft
from gradloom.models.adapters.peft_files import write_peft
from gradloom.models.language import BUILT_IN

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
        tensors, rank = {}, rank_of(CONFIG | (config or {}), "q_proj")
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
    result = gradloom.package.average(clients, tmp_path / "out", weights=(1, 1, 2))
    assert result["exact"] and result["largest_error"] == 0
    for found, *theirs in zip(changes(tmp_path / "out"), *map(changes, clients), strict=True):
        assert np.allclose(found, (theirs[0] + theirs[1] + 2 * theirs[2]) / 4, atol=1e-5)


def test_the_rank_of_all_together_is_exact_and_less_is_the_nearest(client, tmp_path):
    clients = [client(f"c{n}", n) for n in range(3)]
    wanted = [np.mean(each, axis=0) for each in zip(*map(changes, clients), strict=True)]
    whole = gradloom.package.average(clients, tmp_path / "whole", rank=6)
    assert whole["exact"] and read_peft(tmp_path / "whole")[0]["lora_alpha"] == 12
    for found, mean in zip(changes(tmp_path / "whole"), wanted, strict=True):
        assert np.allclose(found, mean, atol=1e-5)
    less = gradloom.package.average(clients, tmp_path / "less")
    assert not less["exact"]
    for name, found, mean in zip(less["errors"], changes(tmp_path / "less"), wanted, strict=True):
        values = np.linalg.svd(mean)[1]
        assert np.linalg.norm(found - mean) == pytest.approx(np.linalg.norm(values[2:]), rel=1e-4)
        assert less["errors"][name] == pytest.approx(np.linalg.norm(values[2:]) / np.linalg.norm(values), rel=1e-4)


def test_the_verb_says_which(client, tmp_path, run):
    clients = [client(f"c{n}", n, shared="A") for n in range(2)]
    code, out, _ = run("package", "average", *clients, "-o", tmp_path / "out")
    assert code == 0 and " ".join(out.split()).endswith("average of 2 clients, exact")
    clients = [client(f"d{n}", n) for n in range(2)]
    code, out, _ = run("package", "average", *clients, "-o", tmp_path / "out")
    assert code == 0 and "by singular values: at most " in " ".join(out.split())
    assert json.loads(run("package", "average", *clients, "-o", tmp_path / "out", "--json")[1])["clients"] == 2


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
    code, out, err = run("package", "average", *clients, "-o", tmp_path / "out", *more)
    assert code == 2 and not out and said in err and err.count("\n") == 1 and not (tmp_path / "out").exists()


def test_adapters_to_the_head_are_averaged_as_products(tmp_path):
    """A and B of each block, which are no linears of LoRA's, have a product too."""
    model = BUILT_IN["smollm2-135m"]
    parts = {}
    for n in range(2):
        random = np.random.default_rng(n)
        made = {0: Adapter(*(random.normal(0, 1, size).astype(np.float32) for size in ((2, 576), (576, 2))), 2.0)}
        save_instant(tmp_path / f"c{n}", model, made)
        parts[n] = made[0].b.astype(float) @ made[0].a
    gradloom.package.average([tmp_path / "c0", tmp_path / "c1"], tmp_path / "out", rank=4)
    found = load_instant(tmp_path / "out", model)[0]
    assert np.allclose(found.b.astype(float) @ found.a, (parts[0] + parts[1]) / 2, atol=1e-4)


@pytest.mark.parametrize("ends", [".default.weight", ".mine.weight"])
def test_names_with_an_adapter_s_name_are_averaged_as_products(client, tmp_path, ends):
    clients = [client(f"c{n}", n) for n in range(2)]
    gradloom.package.average(clients, tmp_path / "plain")
    for each in clients:
        file = each / "adapter_model.safetensors"
        save_file({name.replace(".weight", ends): array for name, array in load_file(file).items()}, file)
    gradloom.package.average(clients, tmp_path / "out")
    for one, other in zip(changes(tmp_path / "plain"), changes(tmp_path / "out"), strict=True):
        np.testing.assert_array_equal(one, other)


def test_ranks_of_patterns_are_kept(client, tmp_path):
    config = {"r": 5, "rank_pattern": {"q_proj": 2}}
    clients = [client(f"c{n}", n, config=config) for n in range(2)]
    gradloom.package.average(clients, tmp_path / "out")
    assert all(min(each.shape) == 2 for each in read_peft(tmp_path / "out")[1].values())
    with pytest.raises(ValueError, match="rank=4: must be left out"):
        gradloom.package.average(clients, tmp_path / "more", rank=4)
    other = client("c3", 3, config=config | {"alpha_pattern": {"q_proj": 1}})
    with pytest.raises(ValueError, match="has alpha_pattern="):
        gradloom.package.average([clients[0], other], tmp_path / "more")


def test_a_value_that_is_not_finite_is_refused(client, tmp_path):
    clients = [client(f"c{n}", n) for n in range(2)]
    file = clients[1] / "adapter_model.safetensors"
    tensors = load_file(file)
    tensors[f"{NAMES[1]}.lora_B.weight"][3, 0] = np.nan
    save_file(tensors, file)
    with pytest.raises(ValueError, match="c1/.*has 1 values that are NaN or infinite"):
        gradloom.package.average(clients, tmp_path / "out")


@pytest.mark.parametrize("shared", ["A", ""])
def test_a_large_change_is_cut_to_the_bound(client, tmp_path, shared):
    """From a start or from the base; of what is cut, the start stays."""
    clients = [client(f"c{n}", n, shared=shared) for n in range(2)]
    start = client("s", 9, shared=shared)
    whole = {} if shared else {"rank": 6}
    for begin in (None, start):
        parts = [np.zeros((16, 24))] * 2 if begin is None else changes(start)
        moved = [[change - part for change, part in zip(changes(each), parts)] for each in clients]
        norms = [np.sqrt(sum((part**2).sum() for part in each)) for each in moved]
        bound = float(norms[0] + norms[1]) / 2
        out = tmp_path / f"out{begin is None}"
        limit = whole if begin is not None else {key: 4 for key in whole}
        made = gradloom.package.average(clients, out, weights=(3, 1), clip=bound, start=begin, **limit)
        assert list(made["norms"].values()) == pytest.approx(norms, rel=1e-5) and made["exact"]
        kept = [min(1.0, bound / norm) for norm in norms]
        assert list(made["kept"].values()) == pytest.approx(kept, rel=1e-5) and 1.0 in kept and min(kept) < 1
        for found, part, *theirs in zip(changes(out), parts, *moved, strict=True):
            wanted = part + 0.75 * kept[0] * theirs[0] + 0.25 * kept[1] * theirs[1]
            np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_samples_are_read_of_each_client(client, tmp_path):
    clients = [client(f"c{n}", n, shared="A") for n in range(2)]
    for each, told in zip(clients, ({"samples": 30}, {"windows": 10})):
        (each / "metrics.json").write_text(json.dumps(told))
    made = gradloom.package.average(clients, tmp_path / "out", weights="samples")
    assert made["weights"] == [30, 10]
    for found, *theirs in zip(changes(tmp_path / "out"), *map(changes, clients), strict=True):
        np.testing.assert_allclose(found, 0.75 * theirs[0] + 0.25 * theirs[1], atol=1e-5)
    (clients[0] / "metrics.json").write_text("{}")
    for wrong, says in (
        ({"weights": "samples"}, "c0/metrics.json: has neither samples nor windows; give numbers as weights"),
        ({"weights": "windows"}, "weights=windows: must be numbers, or samples"),
        ({"clip": 0.0}, "clip=0: must be a number above 0"),
        ({"start": clients[0]}, "start: must be left out without clip"),
        ({"held_out": tmp_path / "none"}, "no such file or folder"),
        ({"held_out": clients[0]}, "nothing judges adapters of None"),
        ({"model": "m"}, "model=m: must be left out without held_out"),
    ):
        with pytest.raises(ValueError, match=says):
            gradloom.package.average(clients, tmp_path / "wrong", **wrong)
        assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize("preset", ["digits-ulx3s", "lstm-kv260"])
def test_the_average_is_judged_by_what_is_held_out(tmp_path, preset):
    """Of one client twice, it scores as the client's fine-tune has told."""
    from gradloom.models.datasets import digits_split
    from gradloom.models.sequences import spar_person

    digits = preset == "digits-ulx3s"
    data = digits_split(96, 48, degrees=90) if digits else spar_person(1)
    np.savez(tmp_path / "h.npz", x=data.x_test, y=data.y_test)
    usual = {"engine": "float", "epochs": 4}
    tuned = [gradloom.finetune(preset, output=tmp_path / f"c{n}", seed=0, **usual) for n in range(2)]
    clients = [each.folder for each in tuned]
    made = gradloom.package.average(clients, tmp_path / "out", held_out=tmp_path / "h.npz", weights="samples")
    assert made["exact"] and made["weights"][0] == tuned[0]["samples"]
    assert made["held_out"]["loss"] == pytest.approx(tuned[0]["held_out_after"], rel=1e-4)
    assert made["held_out"]["accuracy"] == tuned[0].accuracy_after
