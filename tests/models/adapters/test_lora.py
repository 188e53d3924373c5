"""Adapters of a language model: PEFT's are read, ours are as PEFT writes them, and others' are refused."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gradloom.models.adapters.lora import (
    Adapter,
    check_uniform,
    finite,
    fresh_lora,
    layer_of,
    load_lora,
    lowest_layer,
    save_lora,
    single,
)
from gradloom.models.files.tensors import write_safetensors
from gradloom.models.language import BUILT_IN, PROJECTIONS

from ..files.test_file_kinds import gguf

INIT = Path(__file__).parents[2] / "golden" / "qlora_smollm2" / "init"
SMOLLM2 = BUILT_IN["smollm2-135m"]


def test_pefts_own_adapter_is_read():
    adapters = load_lora(INIT, SMOLLM2, rank=8)
    assert len(adapters) == 60 and {each.scale for each in adapters.values()} == {2.0}
    v = adapters["model.layers.29.self_attn.v_proj"]
    assert v.a.shape == (8, 576) and v.b.shape == (192, 8) and v.rank == 8
    assert not v.b.any() and 0.9 * 576**-0.5 < np.abs(v.a).max() <= 576**-0.5


def test_what_is_written_is_what_peft_wrote(tmp_path):
    save_lora(tmp_path, SMOLLM2, load_lora(INIT, SMOLLM2), base="SmolLM2-135M-Instruct")
    ours, theirs = (load_file(folder / "adapter_model.safetensors") for folder in (tmp_path, INIT))
    assert set(ours) == set(theirs)
    for name, values in theirs.items():
        assert ours[name].dtype == np.float32
        np.testing.assert_array_equal(ours[name], values)
    config, wanted = (json.loads((folder / "adapter_config.json").read_text()) for folder in (tmp_path, INIT))
    assert set(config["target_modules"]) == set(wanted["target_modules"])
    assert {field: config[field] for field in config if field != "target_modules"} == {
        field: wanted[field] for field in config if field != "target_modules"
    }


@pytest.mark.parametrize("targets", [("q_proj",), ("down_proj", "k_proj", "o_proj")])
@pytest.mark.parametrize("layers", [None, range(1), range(1, 2)])
def test_a_fresh_adapter_survives(tiny, tmp_path, targets, layers):
    fresh = fresh_lora(tiny, rank=3, alpha=4.5, targets=targets, layers=layers, seed=7)
    assert len(fresh) == len(targets) * len(layers or range(2))
    save_lora(tmp_path, tiny, fresh)
    found = load_lora(tmp_path, tiny, rank=3)
    assert list(found) == [each.name for each in tiny.linears if each.name in fresh]
    for name, adapter in fresh.items():
        assert found[name].scale == adapter.scale == 1.5
        np.testing.assert_array_equal(found[name].a, adapter.a)
        np.testing.assert_array_equal(found[name].b, adapter.b)


@pytest.mark.parametrize("targets", [("q_proj", "v_proj", "down_proj"), ("gate_proj",), tuple(PROJECTIONS)])
def test_adapters_of_a_fused_linear_are_one_in_the_file_and_come_apart(tiny, tmp_path, targets):
    """Its product is theirs, and PEFT's one adapter becomes several of the same A."""
    fused, random = replace(tiny, fused=True), np.random.default_rng(3)
    made = {
        name: each.taking({"a": each.a, "b": random.normal(0, 1, each.b.shape).astype(np.float32)})
        for name, each in fresh_lora(fused, rank=2, targets=targets).items()
    }
    save_lora(tmp_path, fused, made)
    stored, layer = load_file(tmp_path / "adapter_model.safetensors"), "base_model.model.model.layers.1"
    assert {name.split(".")[-3] for name in stored} <= {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}
    found = load_lora(tmp_path, fused)
    assert list(found) == list(made)
    for name, each in made.items():
        assert found[name].scale == each.scale
        np.testing.assert_array_equal(found[name].a, each.a)
        np.testing.assert_array_equal(found[name].b, each.b)
    if "v_proj" in targets:
        a, b = (stored[f"{layer}.self_attn.qkv_proj.lora_{which}.weight"] for which in "AB")
        v = made["model.layers.1.self_attn.v_proj"]
        np.testing.assert_allclose((b @ a)[-fused.kv :], v.b @ v.a, rtol=1e-6)
        dense = {name: values + ("lora_B" in name) for name, values in stored.items()}
        save_file(dense, tmp_path / "adapter_model.safetensors")
        found = load_lora(tmp_path, fused)["model.layers.1.self_attn.k_proj"]
        np.testing.assert_array_equal(found.a, a)
        np.testing.assert_array_equal(found.b, (b + 1)[fused.attention : -fused.kv])


def test_seeds_differ(tiny):
    a, b, c = (fresh_lora(tiny, seed=seed)["model.layers.0.self_attn.q_proj"].a for seed in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()


@pytest.fixture
def saved(tiny, tmp_path):
    """A folder with an adapter of rank 2 on q_proj and v_proj, and a way to change it."""
    save_lora(tmp_path, tiny, fresh_lora(tiny, rank=2))

    def change(tensors=None, **fields):
        file = tmp_path / "adapter_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | fields))
        if tensors is not None:
            weights = tmp_path / "adapter_model.safetensors"
            save_file(tensors(load_file(weights)), weights)
        return tmp_path

    return change


def test_half_precision_adapters_are_read(tiny, saved):
    folder = saved()
    tensors = load_file(folder / "adapter_model.safetensors")
    save_file(
        {name: values.astype(np.float16) for name, values in tensors.items()}, folder / "adapter_model.safetensors"
    )
    name = "model.layers.1.self_attn.v_proj"
    wanted = tensors[f"base_model.model.{name}.lora_A.weight"]
    np.testing.assert_allclose(load_lora(folder, tiny)[name].a, wanted, rtol=1e-3)
    bits = {name: ((values.view(np.uint32) >> 16).astype(np.uint16), "bfloat16") for name, values in tensors.items()}
    write_safetensors(folder / "adapter_model.safetensors", bits)
    np.testing.assert_allclose(load_lora(folder, tiny)[name].a, wanted, rtol=1e-2)


def test_all_linear_means_all(tiny, tmp_path):
    save_lora(tmp_path, tiny, fresh_lora(tiny, targets=[each.projection for each in tiny.linears]))
    config = tmp_path / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"target_modules": "all-linear"}))
    assert len(load_lora(tmp_path, tiny)) == 14


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"peft_type": "IA3"}, 'peft_type="IA3"'),
        ({"use_dora": True}, "use_dora=true"),
        ({"use_rslora": "yes"}, 'use_rslora="yes": must be true or false'),
        ({"rank_pattern": {"q_proj": 4}}, r"has shape \[2, 64\]: expected \[4, 64\]"),
        ({"rank_pattern": {"(": 4}}, "rank_pattern=.* is no pattern"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save="),
        ({"bias": "all"}, 'bias="all"'),
        ({"r": 0}, "r=0: must be an integer of at least 1"),
        ({"lora_alpha": None}, "lora_alpha=null"),
        ({"r": 4}, r"has shape \[2, 64\]: expected \[4, 64\]"),
        ({"target_modules": "q.*"}, 'target_modules="q'),
        ({"target_modules": ["fc1"]}, r'target_modules=\["fc1"\]'),
        ({"target_modules": ["q_proj"]}, "no place for"),
        ({"target_modules": ["q_proj", "v_proj", "o_proj"]}, r"has no .*o_proj.lora_A.weight \(4 are missing\)"),
    ],
)
def test_another_kind_of_adapter_is_refused(tiny, saved, fields, message):
    with pytest.raises(ValueError, match=message):
        load_lora(saved(**fields), tiny)


def test_an_adapter_of_another_rank_or_base_is_refused(tiny, saved):
    with pytest.raises(ValueError, match="r=2: rank 8 is needed"):
        load_lora(saved(), tiny, rank=8)
    with pytest.raises(ValueError, match="has no base_model.model.model.layers.10"):
        load_lora(saved(), SMOLLM2)
    with pytest.raises(ValueError, match="no place for"):
        load_lora(INIT, tiny)


def test_a_damaged_adapter_is_refused(tiny, saved):
    def broken(tensors):
        tensors[next(iter(tensors))][0] = np.nan
        return tensors

    with pytest.raises(ValueError, match="NaN or infinite"):
        load_lora(saved(broken), tiny)
    folder = saved()
    (folder / "adapter_model.safetensors").write_bytes((folder / "adapter_model.safetensors").read_bytes()[:-5])
    with pytest.raises(ValueError, match="is it truncated"):
        load_lora(folder, tiny)
    (folder / "adapter_config.json").write_text("[]")
    with pytest.raises(ValueError, match="must be an object of JSON, not \\[\\]"):
        load_lora(folder, tiny)
    (folder / "adapter_config.json").unlink()
    with pytest.raises(ValueError, match="no such file"):
        load_lora(folder, tiny)


def test_what_pefts_plain_lora_cannot_hold_is_not_written(tiny, tmp_path):
    fresh = fresh_lora(tiny, rank=2)
    first = next(iter(fresh))
    other = Adapter(fresh[first].a, fresh[first].b, 1.0)
    for adapters, message in [
        ({}, "has none"),
        (fresh | {first: other}, "different ranks or scales"),
        ({first: other, "model.layers.1.self_attn.v_proj": other}, "in 2 layers are 4"),
        ({first: Adapter(fresh[first].a[:, 1:], fresh[first].b, 1.0)}, r"expected \[2, 64\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            save_lora(tmp_path / "out", tiny, adapters)
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="rank=0"):
        fresh_lora(tiny, rank=0)


def test_what_is_there_instead_of_an_adapter_is_named(tiny, saved):
    folder = saved()
    weights, config = folder / "adapter_model.safetensors", folder / "adapter_config.json"
    lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    for file, content, said in (
        (weights, lfs, "adapter_model.safetensors: .* it is a Git LFS pointer .*git lfs pull"),
        (weights, b"<!DOCTYPE html><html>", "adapter_model.safetensors: .* it is a page of HTML"),
        (config, lfs, "adapter_config.json: is a Git LFS pointer"),
        (config, b"", "adapter_config.json: is empty"),
    ):
        held = file.read_bytes()
        file.write_bytes(content)
        with pytest.raises(ValueError, match=said):
            load_lora(folder, tiny)
        file.write_bytes(held)
    assert load_lora(folder, tiny)
    weights.rename(folder / "lora.gguf")
    (folder / "lora.gguf").write_bytes(gguf(b"adapter"))
    for place in (folder, folder / "lora.gguf"):
        with pytest.raises(ValueError, match="is a GGUF file of a LoRA adapter"):
            load_lora(place, tiny)
    (folder / "lora.gguf").unlink()
    (folder / "adapter_model.bin").write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(ValueError, match="adapter_model.bin beside it is a pickled PyTorch file"):
        load_lora(folder, tiny)


@pytest.mark.parametrize(
    "old, new",
    [
        (".weight", ".default.weight"),
        ("base_model.model.", ""),
        ("base_model.model.model.", ""),
        ("base_model.model.model.", "base_model.model."),
        ("base_model.model.model.", "base_model.model.model.model."),
    ],
)
def test_names_of_other_tools_are_taken(tiny, saved, old, new):
    wanted = load_lora(saved(), tiny)
    found = load_lora(saved(lambda tensors: {name.replace(old, new): each for name, each in tensors.items()}), tiny)
    assert found.keys() == wanted.keys()
    for name, each in wanted.items():
        np.testing.assert_array_equal(found[name].a, each.a)


def test_the_lowest_layer_is_that_of_a_module(tiny):
    assert lowest_layer(["model.layers.12.a", "model.layers.3.b", "lm_head"]) == 3
    assert lowest_layer(["lm_head", "model.norm"]) == 0 and layer_of("model.layers.12.self_attn.q_proj") == 12


def test_a_fresh_adapter_has_peft_s_bounds_and_scale(tiny):
    for more, scale in (({}, 2.0), ({"alpha": 3}, 0.75), ({"rslora": True}, 4.0), ({"alpha": 3, "rslora": True}, 1.5)):
        (each,) = fresh_lora(tiny, rank=4, targets=("down_proj",), layers=[0], **more).values()
        assert each.scale == scale and each.a.shape == (4, 128) and each.b.shape == (64, 4) and not each.b.any()
        assert 0.95 * 128**-0.5 < np.abs(each.a).max() <= 128**-0.5
    (one,) = fresh_lora(tiny, rank=1, targets=("q_proj",), layers=[1]).values()
    assert one.rank == 1 and {*one.parts} == {"a", "b"}
    assert {each.rank for each in fresh_lora(tiny).values()} == {8} and len(fresh_lora(tiny)) == 4
    with pytest.raises(ValueError, match="^rank=0: must be at least 1$"):
        fresh_lora(tiny, rank=0)


def test_float32_has_a_bound(tiny):
    (name, each), *_ = fresh_lora(tiny, rank=2).items()
    most = float(np.finfo(np.float32).max)
    for value, fits in ((most, True), (-most, True), (most * 1.0001, False), (np.inf, False), (np.nan, False)):
        assert finite({name: each.taking({"a": each.a, "b": np.full((64, 2), value)})}) == fits
    assert single({name: each.taking({"a": each.a.astype(np.float64), "b": each.b})})[name].a.dtype == np.float32


def test_adapters_that_cannot_learn_together_are_refused(tiny):
    one, two = (fresh_lora(tiny, rank=rank, targets=("q_proj",)) for rank in (2, 4))
    first, second = one
    mixed = {first: one[first], second: two[second]}
    for given, says in (
        ({}, "adapters has none: at least 1 is needed"),
        (mixed, r"adapters has different ranks or scales \(2 with 2, 4 with 2\): a fine-tune has one; merge takes all"),
        (
            {first: one[first], "model.layers.1.self_attn.k_proj": one[second]},
            "adapters has 2 linears: q_proj, k_proj in 2 layers are 4, and a fine-tune needs the same in each layer",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{says}"):
            check_uniform(tiny, given)
    assert check_uniform(tiny, one) == (["q_proj"], [0, 1])
    assert check_uniform(tiny, {second: one[second]}) == (["q_proj"], [1])


def test_alpha_is_an_integer_where_it_is_one(tiny, tmp_path):
    for scale, alpha in ((1.5, 3), (1.25, 2.5)):
        held = {name: Adapter(each.a, each.b, scale) for name, each in fresh_lora(tiny, rank=2).items()}
        _, config = save_lora(tmp_path, tiny, held)
        found = json.loads(config.read_text())
        assert found["lora_alpha"] == alpha and type(found["lora_alpha"]) is type(alpha)
        assert found["layers_to_transform"] is None and found["base_model_name_or_path"] == "tiny"


def test_a_product_beyond_float32_is_refused(tiny, saved):
    folder = saved(lambda held: {name: values if "lora_A" in name else values + 3e38 for name, values in held.items()})
    with pytest.raises(ValueError, match=r"lora_B.weight: is beyond float32 times its scale 2; make lora_alpha"):
        load_lora(folder, tiny)
    with pytest.raises(ValueError, match="r=2: rank 3 is needed$"):
        load_lora(saved(lambda held: {name: 0 * values for name, values in held.items()}), tiny, rank=3)


def test_a_network_s_adapter_and_one_of_the_head_are_refused(tiny, saved):
    with pytest.raises(ValueError, match="target_modules=.*: names lm_head, which has no adapter here$"):
        load_lora(saved(target_modules=["q_proj", "v_proj", "lm_head"]), tiny)
    direct = {"gradloom_topology": "direct-to-output", "gradloom_codes": "nf4", "target_modules": ["q_proj"]}
    with pytest.raises(ValueError, match="gradloom_topology=.*: is of a network of images, not of tiny$"):
        load_lora(saved(**direct, layers_to_transform=None), tiny)
