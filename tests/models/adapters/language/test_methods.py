"""The methods' table says what PEFT's own files say."""

import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from gradloom.models.adapters.language.methods import IA3, LAYERNORM, LORA, METHODS, find_method
from gradloom.models.language import BUILT_IN
from gradloom.systems.text import workload as text

GOLDEN = Path(__file__).parents[3] / "golden"


@pytest.mark.parametrize(
    "name, method, layers",
    [("layernorm", LAYERNORM, (0, 1)), ("layernorm_last", LAYERNORM, (1,)), ("ia3", IA3, (0, 1))],
)
def test_tensors_and_config_are_pefts(tiny, name, method, layers):
    folder = GOLDEN / "peft_methods" / name / "init"
    theirs = load_file(folder / "adapter_model.safetensors")
    assert method.tensors(tiny, method.usual, layers) == {each: values.shape for each, values in theirs.items()}
    assert method.parameters(tiny, method.usual, layers) == sum(each.size for each in theirs.values())
    ours, config = method.config(tiny, method.usual, layers), json.loads((folder / "adapter_config.json").read_text())
    assert ours["peft_type"] == config["peft_type"] == method.peft_type
    for field in ("target_modules", "feedforward_modules"):
        assert set(ours.get(field, ())) == set(config.get(field, ()))
    assert set(ours) <= set(config)


def test_lora_has_pefts_tensors():
    model = BUILT_IN["smollm2-135m"]
    theirs = load_file(GOLDEN / "qlora_smollm2" / "init" / "adapter_model.safetensors")
    found = LORA.tensors(model, LORA.usual, range(model.layers), 8)
    assert found == {name: values.shape for name, values in theirs.items()}
    assert LORA.update_bytes(model, LORA.usual, range(model.layers), 8) == sum(each.nbytes for each in theirs.values())


def test_the_last_norm_learns_once_and_whatever_the_layers(tiny):
    assert LAYERNORM.modules(tiny, ("norm",), ()) == ["model.norm"]
    assert LAYERNORM.modules(tiny, LAYERNORM.usual, (1,)) == [
        "model.layers.1.input_layernorm",
        "model.layers.1.post_attention_layernorm",
        "model.norm",
    ]
    assert LAYERNORM.modules(tiny, ("post_attention_layernorm",), (0,)) == ["model.layers.0.post_attention_layernorm"]


@pytest.mark.parametrize(
    "method, text, wanted",
    [
        (LORA, None, ("q_proj", "v_proj")),
        (LORA, "v,q_proj", ("q_proj", "v_proj")),
        (LAYERNORM, "all", LAYERNORM.usual),
        (LAYERNORM, "norm", ("norm",)),
        (IA3, "down,k", ("k_proj", "down_proj")),
    ],
)
def test_targets_by_name(method, text, wanted):
    assert method.parse(text) == wanted


def test_what_is_not_there_is_refused():
    with pytest.raises(ValueError, match="targets=q: must be all, or some of k, v, down between commas for ia3"):
        IA3.parse("q")
    with pytest.raises(ValueError, match="method=bitfit: must be one of lora, lora-xs, layernorm, ia3"):
        find_method("bitfit")
    assert tuple(find_method(name).name for name in METHODS) == text.METHODS


def test_lora_xs_has_a_square_of_each_linear():
    model, method = BUILT_IN["smollm2-135m"], METHODS["lora-xs"]
    assert method.parameters(model, method.usual, range(model.layers), 8) == 2 * 30 * 64
    # A of both, and B of q and of v twice.
    assert method.frozen(model, method.usual, (0,), 8) == 8 * (576 + 2 * 576 + 576 + 2 * 192)


def test_a_config_calls_the_base_as_it_is_asked_to(tiny):
    for base, called in (("other", "other"), (None, "tiny"), ("", "tiny")):
        config = IA3.config(tiny, ("k_proj", "down_proj"), range(2), base=base)
        assert config["base_model_name_or_path"] == called
        assert config["feedforward_modules"] == ["down_proj"] and config["fan_in_fan_out"] is False
