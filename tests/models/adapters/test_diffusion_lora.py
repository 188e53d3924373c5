"""Adapters of diffusion models: every way to name them, the scale that a file tells, and what is refused."""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gradloom.models.adapters.diffusion_lora import (
    FILE,
    adapted_layers,
    layers_in,
    load_diffusion_lora,
    save_diffusion_lora,
    save_kohya_lora,
)
from gradloom.models.adapters.lora import Adapter

#: Inputs and outputs of two layers.
LAYERS = {"down_blocks.0.attn.to_q": (6, 4), "mid_block.attn.to_out.0": (3, 5)}
Q, OUT = LAYERS
A, B = "lora.down.weight", "lora.up.weight"


def values(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


#: Rank 2 for both.
PARTS = {Q: (values(2, 6), values(4, 2, seed=2)), OUT: (values(2, 3, seed=3), values(5, 2, seed=4))}


def tensors(start="unet.", a=A, b=B, layers=PARTS):
    return {f"{start}{layer}.{end}": part for layer, pair in layers.items() for end, part in zip((a, b), pair)}


def kohya(alpha=None):
    held = {}
    for layer, (a, b) in PARTS.items():
        name = "lora_unet_" + layer.replace(".", "_")
        held |= {f"{name}.lora_down.weight": a, f"{name}.lora_up.weight": b}
        held |= {} if alpha is None else {f"{name}.alpha": np.float32(alpha)}
    return held


def old():
    """diffusers' first names."""
    made = {}
    for layer, (a, b) in PARTS.items():
        before, _, last = layer.removesuffix(".0").rpartition(".")
        name = f"unet.{before}.processor.{last}_lora"
        made |= {f"{name}.down.weight": a, f"{name}.up.weight": b}
    return made


def written(path, held, **header):
    save_file({name: np.asarray(each) for name, each in held.items()}, path, metadata=header or None)
    return path


PEFT = {"a": "lora_A.weight", "b": "lora_B.weight"}
CONFIG = {"r": 2, "lora_alpha": 3, "target_modules": ["to_q", "to_out.0"]}


def header(start="", **more):
    config = {f"{start}{key}": value for key, value in (CONFIG | more).items() if value is not None}
    return {"lora_adapter_metadata": json.dumps(config)}


@pytest.mark.parametrize(
    ("held", "told", "scale"),
    [
        (tensors(), {}, 1.0),
        (tensors(""), {}, 1.0),
        (tensors("base_model.model.", **PEFT), {}, 1.0),
        (tensors("base_model.model.unet.", a="lora_A.default.weight", b="lora_B.default.weight"), {}, 1.0),
        (tensors(a="lora_down.weight", b="lora_up.weight"), {}, 1.0),
        (old(), {}, 1.0),
        (kohya(), {}, 1.0),
        (kohya(), {"ss_network_alpha": "2"}, 1.0),
        (kohya(), {"ss_network_alpha": "2.0"}, 1.0),
        (kohya(3), {"ss_network_alpha": "7"}, 1.5),
        (tensors() | {f"unet.{Q}.alpha": np.float32(2)}, {}, 1.0),
        (tensors(), header("unet."), 1.5),
        (tensors("base_model.model.", **PEFT), header(), 1.5),
        (tensors(), header("unet.", use_rslora=True, lora_alpha=2), 2**0.5),
        (tensors(), header("unet.", target_modules=None), 1.5),
        (tensors() | {f"unet.{Q}.alpha": np.float32(3)}, header("unet."), 1.5),
        (
            tensors(),
            {"lora_adapter_metadata": json.dumps({"text_encoder.r": 4, "unet.r": 2, "unet.lora_alpha": 3})},
            1.5,
        ),
    ],
)
def test_every_way_to_name_them_is_read(tmp_path, held, told, scale):
    path = written(tmp_path / FILE, held, **told)
    for source in (path, tmp_path):
        found = load_diffusion_lora(source, LAYERS)
        assert list(found) == list(LAYERS)
        for layer, (a, b) in PARTS.items():
            assert found[layer].scale == pytest.approx(scale, rel=1e-12)
            np.testing.assert_array_equal(found[layer].a, a)
            np.testing.assert_array_equal(found[layer].b, b)
        assert adapted_layers(source, LAYERS) == {*LAYERS}


def test_alpha_that_is_given_is_taken(tmp_path):
    path = written(tmp_path / FILE, tensors() | {f"unet.{Q}.alpha": np.float32(7)}, ss_network_alpha="9")
    found = load_diffusion_lora(path, LAYERS, alphas={Q: 4.0, OUT: 1e9})
    assert [each.scale for each in found.values()] == [2.0, 5e8]
    for alpha in (0.0, -1.0, 1.01e9, np.nan):
        with pytest.raises(ValueError, match=rf"{re.escape(Q)}: alpha=.*: must be above 0 and at most 1e\+09$"):
            load_diffusion_lora(path, LAYERS, alphas={Q: alpha, OUT: 1.0})


WITHOUT = {key: value for key, value in tensors().items() if not key.endswith(f"to_q.{B}")}
CASES = {
    "text encoder": (
        tensors() | {"text_encoder.a.lora.down.weight": values(2, 2)},
        {},
        "text_encoder.a.lora.down.weight",
    ),
    "no key": (
        tensors() | {"unet.x.weight": values(2)},
        {},
        "unet.x.weight: is no key of an adapter; must be unet.LAYER",
    ),
    "another layer": (tensors() | tensors(layers={"x": PARTS[Q]}), {}, f"unet.x.{A}: no adapter of layer x is asked"),
    "twice": (tensors() | tensors(""), {}, f"unet.{Q}.{A}: layer {Q} has it by two names; leave one"),
    "half": (WITHOUT, {}, f"layer {Q} has no adapter, or half of one; 1 such layers"),
    "none": ({f"unet.{Q}.alpha": np.float32(1)}, {}, f"layer {Q} has no adapter, or half of one; 2 such layers"),
    "NaN": (
        tensors() | {f"unet.{Q}.{A}": np.full((2, 6), np.nan, np.float32)},
        {},
        f"unet.{Q}.{A}: has a value that is",
    ),
    "rank 3": (
        tensors(layers={Q: (values(3, 6), values(4, 3)), OUT: PARTS[OUT]}),
        {},
        f"{Q}: rank=3: must be one of 1, 2, 4, 8, 16, 32",
    ),
    "rank 0": (tensors() | {f"unet.{Q}.{A}": np.float32(1)}, {}, f"{Q}: rank=0: must be one of 1, 2"),
    "inputs": (
        tensors() | {f"unet.{Q}.{A}": values(2, 5)},
        {},
        f"{Q}: shapes (2, 5) and (4, 2), must be (2, 6) and (4, 2)",
    ),
    "outputs": (
        tensors() | {f"unet.{Q}.{B}": values(4, 1)},
        {},
        f"{Q}: shapes (2, 6) and (4, 1), must be (2, 6) and (4, 2)",
    ),
    "two alphas": (tensors() | {f"unet.{Q}.alpha": values(2)}, {}, f"{Q}: alpha has 2 values, must have one"),
    "alpha of others": (
        tensors() | {f"unet.{Q}.alpha": np.float32(3)},
        {},
        f"{Q}: its alpha makes a scale of 1.5, but diffusers reads alpha only of names that begin with lora_unet_; "
        "give alpha, which is 2 for what",
    ),
    "header's alpha": (
        tensors(),
        {"ss_network_alpha": "4"},
        f"{Q}: has no alpha, but the header ss_network_alpha=4; give",
    ),
    "alpha 0": (kohya(0), {}, f"{Q}: alpha=0: must be above 0 and at most 1e+09"),
    "no JSON": (
        tensors(),
        {"lora_adapter_metadata": "{"},
        "lora_adapter_metadata: is not JSON; remove it from the file's",
    ),
    "no object": (
        tensors(),
        {"lora_adapter_metadata": "[1]"},
        "lora_adapter_metadata: must be an object of JSON, not [1]",
    ),
    "another type": (
        tensors(),
        header("unet.", peft_type="IA3"),
        'lora_adapter_metadata: peft_type="IA3": must be "LORA"',
    ),
    "DoRA": (tensors(), header("unet.", use_dora=True), "lora_adapter_metadata: use_dora=true: must be false"),
    "another rank": (
        tensors(),
        header("unet.", r=4),
        f"{Q}: has rank 2, lora_adapter_metadata says 4; they must agree",
    ),
    "not named": (
        tensors(),
        header("unet.", target_modules=["to_q"]),
        f"lora_adapter_metadata: target_modules names no {OUT}, which has an adapter",
    ),
    "two scales": (
        tensors() | {f"unet.{Q}.alpha": np.float32(2)},
        header("unet."),
        f"{Q}: its alpha makes a scale of 1, lora_adapter_metadata 1.5; give alpha",
    ),
    "too large": (
        tensors() | {f"unet.{Q}.{B}": np.full((4, 2), 3e38, np.float32)},
        header("unet."),
        f"{Q}: B times its scale 1.5 is beyond float32; make alpha smaller",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_understood_is_one_line(tmp_path, case):
    held, told, says = CASES[case]
    path = written(tmp_path / "a.safetensors", held, **told)
    with pytest.raises(ValueError) as refused:
        load_diffusion_lora(path, LAYERS)
    said = str(refused.value)
    assert said.startswith(f"{path}: {says}") and "\n" not in said


def test_layers_of_a_file_have_their_sizes(tmp_path):
    path = written(tmp_path / FILE, tensors() | {f"unet.{Q}.alpha": np.float32(2)})
    assert layers_in(path) == layers_in(tmp_path) == LAYERS
    path = written(tmp_path / "up.safetensors", tensors(layers={"up_blocks.1.x": PARTS[Q]}))
    assert layers_in(path) == {"up_blocks.1.x": (6, 4)}
    for held, says in (
        (kohya(), ".*: is kohya's name already, which does not say the layer's own; name a run's folder"),
        (
            tensors(layers={"time.x": PARTS[Q]}),
            ".*: is of no layer of a UNet, whose names begin with down_blocks., mid_",
        ),
        ({f"unet.{Q}.{A}": values(2, 2, 2)}, r".*: has shape \[2, 2, 2\]: must be a matrix"),
    ):
        path = written(tmp_path / "b.safetensors", held)
        with pytest.raises(ValueError, match=f"b.safetensors: {says}"):
            layers_in(path)


def test_files_are_written_for_diffusers_and_for_kohyas(tmp_path):
    adapters = {layer: Adapter(a, b, 1.5) for layer, (a, b) in PARTS.items()}
    path = save_diffusion_lora(tmp_path, adapters.items())
    assert path == tmp_path / FILE and set(load_file(path)) == set(tensors())
    found = load_diffusion_lora(tmp_path, LAYERS)
    save_kohya_lora(tmp_path / "k.safetensors", adapters)
    held = load_file(tmp_path / "k.safetensors")
    assert set(held) == set(kohya(3)) and {float(each) for name, each in held.items() if name.endswith("alpha")} == {
        3.0
    }
    again = load_diffusion_lora(tmp_path / "k.safetensors", LAYERS)
    for layer, (a, b) in PARTS.items():
        assert (found[layer].scale, again[layer].scale) == (1.0, 1.5)
        np.testing.assert_array_equal(found[layer].b, np.float32(1.5) * b)
        np.testing.assert_array_equal(again[layer].b, b)
        np.testing.assert_array_equal(again[layer].a, a)
    with pytest.raises(ValueError, match="^layers: two names differ in points and _ only"):
        save_kohya_lora(tmp_path / "x.safetensors", {"a.b": adapters[Q], "a_b": adapters[Q]})
