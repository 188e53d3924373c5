"""Adapters by others' naming rules: each loads with the values that it was made of, or is refused by a key's name."""

import json
import math
import re

import numpy as np
import pytest
from safetensors.numpy import save_file

from gradloom.models.adapters.diffusion_lora import load_diffusion_lora
from gradloom.models.adapters.language.gguf_lora import load_linears

from ..conftest import TINY

RANK = 4
BLOCK = "down_blocks.0.attentions.0.transformer_blocks.0"
LAYERS = {f"{BLOCK}.attn2.{name}": (64, 32) for name in ("to_q", "to_k", "to_v", "to_out.0")}
LINEARS = {each.name: (each.inputs, each.outputs) for each in TINY.linears if each.projection in ("q_proj", "v_proj")}


def drawn(sizes, ranks=None):
    """A and B by name."""
    random = np.random.default_rng(6)
    return {
        name: (
            random.normal(size=((ranks or {}).get(name, RANK), inputs)).astype(np.float32),
            random.normal(size=(outputs, (ranks or {}).get(name, RANK))).astype(np.float32),
        )
        for name, (inputs, outputs) in sizes.items()
    }


def keys(sizes, down, up, *, ranks=None, alpha=None):
    """Tensors by names that rules make, with ``alpha`` by a third one."""
    made = {}
    for name, (a, b) in drawn(sizes, ranks).items():
        made |= {down(name): a, up(name): b}
        if alpha is not None:
            made[alpha[0](name)] = np.array(alpha[1], np.float32)
    return made


def ends(prefix, down, up):
    return lambda name: f"{prefix}{name}.{down}", lambda name: f"{prefix}{name}.{up}"


def kohya(name):
    return "lora_unet_" + name.replace(".", "_")


def processor(prefix):
    """diffusers' first naming."""

    def rule(which):
        return lambda name: prefix + re.sub(r"\.(to_\w+)(\.0)?$", rf".processor.\1_lora.{which}.weight", name)

    return rule("down"), rule("up")


KOHYA = (lambda name: f"{kohya(name)}.lora_down.weight", lambda name: f"{kohya(name)}.lora_up.weight")
KOHYA_ALPHA = lambda name: f"{kohya(name)}.alpha"  # noqa: E731
A, B = "lora_A.weight", "lora_B.weight"
DOWN, UP = "lora.down.weight", "lora.up.weight"
HEADER = {"r": RANK, "lora_alpha": 8, "target_modules": ["to_q", "to_k", "to_v", "to_out.0"]}


def header(prefix="", **change):
    return {"lora_adapter_metadata": json.dumps({prefix + key: value for key, value in (HEADER | change).items()})}


#: Of diffusion: tensors, header, and the scale, or what the refusal says.
PICTURES = {
    "diffusers": (keys(LAYERS, *ends("unet.", DOWN, UP)), None, 1.0),
    "diffusers without unet": (keys(LAYERS, *ends("", DOWN, UP)), None, 1.0),
    "diffusers by PEFT": (keys(LAYERS, *ends("unet.", A, B)), None, 1.0),
    "PEFT": (keys(LAYERS, *ends("base_model.model.", A, B)), None, 1.0),
    "PEFT of a pipeline": (keys(LAYERS, *ends("base_model.model.unet.", A, B)), None, 1.0),
    "adapter default": (keys(LAYERS, *ends("", "lora_A.default.weight", "lora_B.default.weight")), None, 1.0),
    "adapter default_0": (
        keys(LAYERS, *ends("unet.", "lora_A.default_0.weight", "lora_B.default_0.weight")),
        None,
        1.0,
    ),
    "adapter pixel": (keys(LAYERS, *ends("unet.", "lora_A.pixel-art.weight", "lora_B.pixel-art.weight")), None, 1.0),
    "first naming": (keys(LAYERS, *processor("unet.")), None, 1.0),
    "first naming without unet": (keys(LAYERS, *processor("")), None, 1.0),
    "kohya": (keys(LAYERS, *KOHYA, alpha=(KOHYA_ALPHA, 2.0)), None, 0.5),
    "kohya with alpha as the rank": (keys(LAYERS, *KOHYA, alpha=(KOHYA_ALPHA, 4.0)), None, 1.0),
    "kohya without alpha": (keys(LAYERS, *KOHYA), None, 1.0),
    "kohya by points": (keys(LAYERS, *ends("unet.", "lora_down.weight", "lora_up.weight")), None, 1.0),
    "header": (keys(LAYERS, *ends("unet.", A, B)), header("unet."), 2.0),
    "header without unet": (keys(LAYERS, *ends("", A, B)), header(), 2.0),
    "header of rsLoRA": (keys(LAYERS, *ends("unet.", A, B)), header("unet.", use_rslora=True), 4.0),
    "header of patterns": (
        keys(LAYERS, *ends("unet.", A, B), ranks=dict.fromkeys(LAYERS, 8)),
        header("unet.", rank_pattern=dict.fromkeys(["to_q", "to_k", "to_v", "to_out.0"], 8)),
        1.0,
    ),
    "header of DoRA": (keys(LAYERS, *ends("unet.", A, B)), header("unet.", use_dora=True), "use_dora=true"),
    "kohya's text encoder": (
        keys(LAYERS, *KOHYA) | {"lora_te_text_model_encoder_layers_0_mlp_fc1.lora_down.weight": np.ones((4, 8), "f")},
        None,
        "lora_te_text_model_encoder_layers_0_mlp_fc1.lora_down.weight: is of the text encoder",
    ),
    "diffusers' text encoder": (
        keys(LAYERS, *ends("unet.", DOWN, UP))
        | {"text_encoder.text_model.encoder.layers.0.self_attn.q_proj.lora_A.weight": np.ones((4, 8), "f")},
        None,
        "text_encoder.text_model.encoder.layers.0.self_attn.q_proj.lora_A.weight: is of the text encoder",
    ),
    "kohya's DoRA": (
        keys(LAYERS, *KOHYA) | {f"{kohya(f'{BLOCK}.attn2.to_q')}.dora_scale": np.ones((32, 1), "f")},
        None,
        "attn2_to_q.dora_scale: is no key",
    ),
    "LyCORIS": (
        {f"{kohya(f'{BLOCK}.attn2.to_q')}.hada_w1_a": np.ones((32, 4), "f")},
        None,
        "attn2_to_q.hada_w1_a: is no key",
    ),
    "names of the first files of Stable Diffusion": (
        keys(LAYERS, *KOHYA)
        | {"lora_unet_input_blocks_1_1_transformer_blocks_0_attn2_to_q.lora_down.weight": np.ones((4, 64), "f")},
        None,
        "lora_unet_input_blocks_1_1_transformer_blocks_0_attn2_to_q.lora_down.weight: no adapter of layer",
    ),
    "alpha that diffusers would not read": (
        keys(LAYERS, *ends("unet.", DOWN, UP), alpha=(lambda name: f"unet.{name}.alpha", 2.0)),
        None,
        "its alpha makes a scale of 0.5",
    ),
    "two adapters": (
        keys(LAYERS, *ends("unet.", "lora_A.one.weight", "lora_B.one.weight"))
        | keys(LAYERS, *ends("unet.", "lora_A.two.weight", "lora_B.two.weight")),
        None,
        "has it by two names",
    ),
}


def config(**change):
    return {"peft_type": "LORA", "r": RANK, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]} | change


PEFT, PLAIN = "base_model.model.", ends("base_model.model.", A, B)
FIRST = "model.layers.0.self_attn.q_proj"
#: Of language: tensors, config, and the scale by module, or what the refusal says.
TEXTS = {
    "PEFT": (keys(LINEARS, *PLAIN), config(), 2.0),
    "without PEFT's begin": (keys(LINEARS, *ends("", A, B)), config(), 2.0),
    "adapter default": (keys(LINEARS, *ends(PEFT, "lora_A.default.weight", "lora_B.default.weight")), config(), 2.0),
    "adapter rhymes": (keys(LINEARS, *ends("", "lora_A.rhymes.weight", "lora_B.rhymes.weight")), config(), 2.0),
    "model without its head": (
        {re.sub(r"^base_model\.model\.model\.", PEFT, name): each for name, each in keys(LINEARS, *PLAIN).items()},
        config(),
        2.0,
    ),
    "rsLoRA": (keys(LINEARS, *PLAIN), config(use_rslora=True), 8 / math.sqrt(RANK)),
    "rank pattern": (
        keys(LINEARS, *PLAIN, ranks={FIRST: 2}),
        config(rank_pattern={FIRST: 2}),
        lambda name: 4.0 if name == FIRST else 2.0,
    ),
    "alpha pattern": (
        keys(LINEARS, *PLAIN),
        config(alpha_pattern={"layers.1.*": 1}),
        lambda name: 0.25 if ".1." in name else 2.0,
    ),
    "patterns with rsLoRA": (
        keys(LINEARS, *PLAIN, ranks={FIRST: 16}),
        config(rank_pattern={"layers.0.self_attn.q_proj": 16}, alpha_pattern={"v_proj": 2}, use_rslora=True),
        lambda name: 2.0 if name == FIRST else 1.0 if "v_proj" in name else 4.0,
    ),
    "DoRA": (keys(LINEARS, *PLAIN), config(use_dora=True), "use_dora=true"),
    "DoRA's vector": (
        keys(LINEARS, *PLAIN) | {f"{PEFT}{FIRST}.lora_magnitude_vector": np.ones(64, "f")},
        config(),
        f"has unknown {PEFT}{FIRST}.lora_magnitude_vector",
    ),
    "learnt tokens": (
        keys(LINEARS, *PLAIN) | {f"{PEFT}model.embed_tokens.weight": np.ones((96, 64), "f")},
        config(),
        f"has unknown {PEFT}model.embed_tokens.weight",
    ),
    "learnt tokens by the config": (
        keys(LINEARS, *PLAIN),
        config(modules_to_save=["embed_tokens"]),
        "modules_to_save=",
    ),
    "biases": (keys(LINEARS, *PLAIN), config(bias="lora_only"), 'bias="lora_only"'),
    "PiSSA": (keys(LINEARS, *PLAIN), config(init_lora_weights="pissa"), 'init_lora_weights="pissa"'),
    "another kind": (keys(LINEARS, *PLAIN), config(peft_type="LOHA"), 'peft_type="LOHA"'),
    "a pattern of another rank": (
        keys(LINEARS, *PLAIN),
        config(rank_pattern={"q_proj": 2}),
        f"{FIRST}.lora_A.weight has",
    ),
    "more layers": (
        keys(LINEARS | {"model.layers.2.self_attn.q_proj": (64, 64)}, *PLAIN),
        config(),
        "model.layers.2.self_attn.q_proj.lora_A.weight (2 that",
    ),
    "two adapters": (
        keys(LINEARS, *ends("", "lora_A.one.weight", "lora_B.one.weight"))
        | keys({"model.layers.0.mlp.up_proj": (64, 128)}, *ends("", "lora_A.two.weight", "lora_B.two.weight")),
        config(target_modules=["q_proj", "v_proj", "up_proj"]),
        "has tensors of the adapters one, two",
    ),
}


def test_there_are_forty():
    assert len(PICTURES) + len(TEXTS) >= 40


def judged(load, sizes, tensors, outcome):
    """Loads it and compares every value, or finds the refusal in one line."""
    if isinstance(outcome, str):
        with pytest.raises(ValueError) as refused:
            load()
        assert outcome in str(refused.value) and "\n" not in str(refused.value)
        return
    found, held = load(), list(tensors.values())
    assert set(found) == set(sizes)
    for name, each in found.items():
        scale = outcome(name) if callable(outcome) else outcome
        assert each.scale == pytest.approx(scale, rel=1e-6), name
        assert each.a.shape[1] == sizes[name][0] and each.b.shape[0] == sizes[name][1]
        at = next(index for index, array in enumerate(held) if np.array_equal(array, each.a))
        assert np.array_equal(held[at + 1], each.b), name


@pytest.mark.parametrize("case", PICTURES)
def test_an_adapter_of_pictures_loads_or_is_refused_by_its_key(tmp_path, case):
    tensors, metadata, outcome = PICTURES[case]
    path = tmp_path / "a.safetensors"
    save_file(tensors, path, metadata=metadata)
    judged(lambda: load_diffusion_lora(path, LAYERS), LAYERS, tensors, outcome)


@pytest.mark.parametrize("case", TEXTS)
def test_an_adapter_of_texts_loads_or_is_refused_by_its_key(tmp_path, case):
    tensors, told, outcome = TEXTS[case]
    save_file(tensors, tmp_path / "adapter_model.safetensors", metadata={"format": "pt"})
    (tmp_path / "adapter_config.json").write_text(json.dumps(told))
    judged(lambda: load_linears(tmp_path, TINY), LINEARS, tensors, outcome)
