"""Adapters of a diffusion model by kohya's names, which ComfyUI has, too."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gradloom.models.adapters.diffusion_lora import load_diffusion_lora, save_diffusion_lora
from gradloom.models.adapters.lora import Adapter

ATTENTION = "mid_block.attentions.0.transformer_blocks.0.attn2"
LAYERS = {f"{ATTENTION}.{name}": (64, 32) for name in ("to_q", "to_k", "to_v", "to_out.0")}


@pytest.fixture
def adapters(tmp_path, monkeypatch):
    """Adapters, in diffusers' file in the folder ``tuned``; their scale 1 is multiplied into B."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(8)
    made = {
        layer: Adapter(*(random.normal(size=shape).astype(np.float32) for shape in ((8, inputs), (outputs, 8))), 1.0)
        for layer, (inputs, outputs) in LAYERS.items()
    }
    Path("tuned").mkdir()
    save_diffusion_lora("tuned", made)
    return made


@pytest.mark.parametrize("to", ["kohya", "comfyui"])
def test_names_are_kohyas_and_products_are_the_same(run, adapters, to):
    code, out, err = run("export", "tuned", "--to", to, "-o", "out.safetensors", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert (told["format"], told["adapters"], told["rank"]) == (to, 4, 8)
    held = load_file("out.safetensors")
    begin = "lora_unet_mid_block_attentions_0_transformer_blocks_0_attn2_"
    expected = {
        f"{begin}{name}.{end}"
        for name in ("to_q", "to_k", "to_v", "to_out_0")
        for end in ("lora_down.weight", "lora_up.weight", "alpha")
    }
    assert set(held) == expected and all(held[key].shape == () for key in held if key.endswith(".alpha"))
    for layer, each in adapters.items():
        name = begin + layer.removeprefix(f"{ATTENTION}.").replace(".", "_")
        down, up = held[f"{name}.lora_down.weight"], held[f"{name}.lora_up.weight"]
        np.testing.assert_allclose(held[f"{name}.alpha"] / len(down) * up @ down, each.b @ each.a, rtol=1e-5, atol=1e-5)
    assert {
        layer: each.scale for layer, each in load_diffusion_lora("out.safetensors", LAYERS).items()
    } == dict.fromkeys(LAYERS, 1.0)


def test_alpha_of_the_header_is_in_the_file(run, adapters):
    tensors = {f"{layer}.lora_A.weight": each.a for layer, each in adapters.items()}
    tensors |= {f"{layer}.lora_B.weight": each.b for layer, each in adapters.items()}
    told = {"r": 8, "lora_alpha": 32, "target_modules": list(LAYERS)}
    save_file(tensors, "other.safetensors", metadata={"lora_adapter_metadata": json.dumps(told)})
    assert run("export", "other.safetensors", "-o", "out.safetensors")[0] == 0
    assert {float(value) for key, value in load_file("out.safetensors").items() if key.endswith("alpha")} == {32.0}
    assert {each.scale for each in load_diffusion_lora("out.safetensors", LAYERS).values()} == {4.0}


@pytest.mark.parametrize(
    "words, message",
    [
        (("tuned", "-o", "x.gguf"), "to=gguf: must be kohya or comfyui, tuned holds a diffusion model's adapter"),
        (("tuned", "-o", "x", "--to", "kohya"), "output=x: must name a file that ends in .safetensors"),
        (("tuned", "-o", "x.safetensors", "--model", "m"), "model=m: must be left out"),
        (
            ("text.safetensors", "-o", "x.safetensors"),
            "model.layers.0.self_attn.q_proj.lora_A.weight: is of no layer of",
        ),
        (("kohya.safetensors", "-o", "x.safetensors"), "attn2_to_k.alpha: is kohya's name already"),
        (("conv.safetensors", "-o", "x.safetensors"), "has shape [4, 8, 3, 3]: must be a matrix"),
        (("none.safetensors", "-o", "x.safetensors"), "none.safetensors: has no adapter"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(run, adapters, words, message):
    save_file({"model.layers.0.self_attn.q_proj.lora_A.weight": np.ones((4, 8), "f")}, "text.safetensors")
    save_file({"unet.mid_block.resnets.0.conv1.lora.down.weight": np.ones((4, 8, 3, 3), "f")}, "conv.safetensors")
    save_file({}, "none.safetensors")
    assert run("export", "tuned", "-o", "kohya.safetensors")[0] == 0
    code, out, err = run("export", *words)
    assert (code, out, err.count("\n")) == (2, "", 1) and message in err
