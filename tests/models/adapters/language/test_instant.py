"""Adapters from blocks to the head, and which kind a folder has."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gradloom.models.adapters.language.gguf_lora import write_gguf_lora
from gradloom.models.adapters.language.instant import fresh_instant, holds_instant, key, load_instant, save_instant
from gradloom.models.adapters.language.learnt import check_learnt, load_learnt
from gradloom.models.adapters.language.lora_xs import CoreAdapter, fresh_cores, save_cores
from gradloom.models.adapters.language.methods import IA3
from gradloom.models.adapters.language.vectors import Vector, fresh_vectors, save_vectors
from gradloom.models.adapters.lora import Adapter, fresh_lora, save_lora


def test_a_fresh_one_is_drawn_as_peft_draws_a(tiny):
    made = fresh_instant(tiny, rank=3, seed=4)
    assert list(made) == [0, 1]
    for each in made.values():
        assert (each.a.shape, each.b.shape, each.scale) == ((3, 64), (64, 3), 2.0)
        assert not each.b.any() and 0.11 < np.abs(each.a).max() <= 64**-0.5
        assert each.a.min() < -0.11 and each.a.dtype == each.b.dtype == np.float32
    assert (fresh_instant(tiny, rank=3, seed=5)[0].a != made[0].a).any()
    assert list(fresh_instant(tiny, layers=1)) == [0] and fresh_instant(tiny)[0].rank == 8
    assert fresh_instant(tiny, rank=1)[1].rank == 1
    with pytest.raises(ValueError, match="^rank=0: must be at least 1$"):
        fresh_instant(tiny, rank=0)


def test_it_reads_as_it_was_written(tiny, tmp_path):
    random = np.random.default_rng(1)
    made = {
        n: Adapter(each.a, random.normal(size=each.b.shape).astype(np.float32), 1.5)
        for n, each in fresh_instant(tiny, rank=4).items()
    }
    weights, config = save_instant(tmp_path, tiny, made)
    assert set(load_file(weights)) == {"instantft.layers.0.A", "instantft.layers.0.B", key(1, "A"), key(1, "B")}
    assert json.loads(config.read_text()) == {
        "base_model_name_or_path": "tiny",
        "inference_mode": True,
        "layers": [0, 1],
        "lora_alpha": 6.0,
        "peft_type": "GRADLOOM_INSTANTFT",
        "r": 4,
        "task_type": "CAUSAL_LM",
    }
    for found in (load_instant(tmp_path, tiny), load_instant(tmp_path, tiny, rank=4)):
        assert list(found) == [0, 1]
        for layer, each in made.items():
            assert found[layer].scale == 1.5
            np.testing.assert_array_equal(found[layer].a, each.a)
            np.testing.assert_array_equal(found[layer].b, each.b)
    with pytest.raises(ValueError, match="r=4: rank 3 is needed$"):
        load_instant(tmp_path, tiny, rank=3)
    assert holds_instant(tmp_path)


def test_adapters_of_several_ranks_or_sizes_are_not_written(tiny, tmp_path):
    one, two = fresh_instant(tiny, rank=2).values()
    for given, says in (
        ({}, "adapters has 0 different ranks or scales: 1 is needed"),
        ({0: one, 1: Adapter(two.a, two.b, 3.0)}, "adapters has 2 different ranks or scales: 1 is needed"),
        ({0: Adapter(one.a[:, :-1], one.b, 2.0)}, r"instantft.layers.0.A has shape \[2, 63\]: expected \[2, 64\]"),
        ({0: Adapter(one.a, one.b[:-1], 2.0)}, r"instantft.layers.0.B has shape \[63, 2\]: expected \[64, 2\]"),
    ):
        with pytest.raises(ValueError, match=f"^{says}$"):
            save_instant(tmp_path / "new", tiny, given)
        assert not (tmp_path / "new").exists()


FIRST = "must be the first of 2, in order"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"layers": [1]}, rf"layers=\[1\]: {FIRST}"),
        ({"layers": [1, 0]}, rf"layers=\[1, 0\]: {FIRST}"),
        ({"layers": [0, 1, 2]}, rf"layers=\[0, 1, 2\]: {FIRST}"),
        ({"layers": []}, rf"layers=\[\]: {FIRST}"),
        ({"layers": 2}, f"layers=2: {FIRST}"),
        ({"r": 4}, "has shape"),
        ({"layers": [0]}, "has 4 tensors, 2 are expected; instantft.layers.1.A is not in both"),
        ({"r": "x"}, 'r="x": must be an integer'),
        ({"peft_type": "LORA"}, 'peft_type="LORA": must be "GRADLOOM_INSTANTFT"'),
    ],
)
def test_a_damaged_adapter_is_refused(tiny, tmp_path, change, named):
    save_instant(tmp_path, tiny, fresh_instant(tiny, rank=8))
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | change))
    with pytest.raises(ValueError, match=named):
        load_instant(tmp_path, tiny)


def test_a_folder_of_another_kind_is_none(tiny, tmp_path):
    assert not holds_instant(tmp_path) and not holds_instant(tmp_path / "none")
    save_lora(tmp_path, tiny, fresh_lora(tiny))
    assert not holds_instant(tmp_path)


def test_what_learns_is_read_from_where_it_is(tiny, tensors, tmp_path):
    lora = fresh_lora(tiny, rank=2)
    save_lora(tmp_path / "lora", tiny, lora)
    with (tmp_path / "a.gguf").open("wb") as file:
        write_gguf_lora(file, tiny, lora)
    vectors = fresh_vectors(tiny, IA3, tensors.__getitem__, targets=("down_proj", "k_proj"), layers=(1,))
    save_vectors(tmp_path / "ia3", tiny, IA3, vectors)
    cores = fresh_cores(tiny, tensors.__getitem__, rank=2, targets=("q_proj",))
    save_cores(tmp_path / "xs", tiny, cores)
    save_instant(tmp_path / "instant", tiny, fresh_instant(tiny))
    for name, kind, found in (("lora", Adapter, lora), ("a.gguf", Adapter, lora), ("ia3", Vector, vectors)) + (
        ("xs", CoreAdapter, cores),
    ):
        read = load_learnt(tmp_path / name, tiny, tensors.__getitem__)
        assert set(read) == set(found) and {type(each) for each in read.values()} == {kind}
    for name in ("lora", "ia3", "xs", "instant"):
        check_learnt(tmp_path / name, tiny)
        weights = tmp_path / name / "adapter_model.safetensors"
        held = load_file(weights)
        save_file({key: values[..., :-1].copy() for key, values in held.items()}, weights)
        with pytest.raises(ValueError, match="has shape"):
            check_learnt(tmp_path / name, tiny)
    with pytest.raises(ValueError, match="adapter_config.json: no such file"):
        check_learnt(tmp_path / "none", tiny)
