"""Families of language models are read as transformers reads them, and learn as PEFT has them learn."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from gradloom.models.adapters.language.merged import Merged, write_folder
from gradloom.models.adapters.language.vectors import Vector
from gradloom.models.adapters.lora import Adapter, load_lora
from gradloom.models.files.language.checkpoint import open_checkpoint
from gradloom.models.files.language.families import _HANDLED, _HARMLESS, FAMILIES, config_of, described
from gradloom.models.files.language.huggingface import WEIGHTS, HuggingFaceCheckpoint
from gradloom.models.files.tensors import open_safetensors
from gradloom.models.filled import Filled, filled_shapes
from gradloom.models.language import FUSED
from gradloom.systems.text.reference.llama import Llama

from ....golden.language.weights import weights
from ...test_filled import widened

GOLDEN = Path(__file__).parents[3] / "golden/language/families.json"
HELD = json.loads(GOLDEN.read_text(encoding="utf-8"))
CASES = [(kind, number) for kind, models in HELD["models"].items() for number in range(len(models))]
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 47, 0]


def written(folder, held, change=()):
    """A folder with a model of the golden file."""
    (folder / "config.json").write_text(json.dumps(held["config"] | dict(change)))
    save_file(weights({name: tuple(shape) for name, shape in held["shapes"].items()}), folder / "model.safetensors")
    return folder


def learnt(held, folder, model):
    """Its adapters, read as PEFT saves them, by the names of their linears."""
    shapes = {}
    for name in held["gradients"]:
        linear = name.removeprefix("base_model.model.").split(".lora_")[0]
        outputs, inputs = held["shapes"][f"{linear}.weight"]
        shapes[name] = (2, inputs) if "lora_A" in name else (outputs, 2)
    values = {name.replace(".default", ""): each for name, each in weights(shapes, seed=11).items()}
    targets = sorted({name.split(".lora_")[0].rpartition(".")[2] for name in values})
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 3, "target_modules": targets}
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(values, folder / "adapter_model.safetensors")
    return {
        name: Adapter(each.a.astype(np.float64), each.b.astype(np.float64), each.scale)
        for name, each in load_lora(folder, model).items()
    }


def joined(model, gradients):
    """Gradients by PEFT's modules: of a linear that holds several, whose A is one."""
    if not model.fused:
        return gradients
    made = {}
    for name, (a, b) in gradients.items():
        before, _, last = name.rpartition(".")
        fused = next((each for each, parts in FUSED.items() if last in parts), last)
        held = made.get(f"{before}.{fused}")
        made[f"{before}.{fused}"] = (a, b) if held is None else (held[0] + a, np.concatenate([held[1], b]))
    return made


@pytest.mark.parametrize(("kind", "number"), CASES)
def test_logits_loss_and_gradients_are_those_of_transformers_and_peft(kind, number, tmp_path):
    held = HELD["models"][kind][number]
    checkpoint = open_checkpoint(written(tmp_path, held))
    llama = Llama(checkpoint.model, checkpoint.tensor, dtype=np.float64)
    np.testing.assert_allclose(llama.logits(TOKENS)[-1], held["last"], atol=2e-5)
    adapters = learnt(held, tmp_path / "adapter", checkpoint.model)
    check(held, checkpoint.model, *llama.gradients(TOKENS, adapters))
    # Filled to whole tiles of a machine, it is the same model.
    whole = Filled(checkpoint)
    assert filled_shapes(checkpoint.model)
    llama = Llama(whole.model, whole.tensor, dtype=np.float64)
    np.testing.assert_allclose(llama.logits(TOKENS)[-1], held["last"], atol=2e-5)
    more = {name: widened(whole.model, name, each) for name, each in adapters.items()}
    check(held, checkpoint.model, *llama.gradients(TOKENS, more))


def check(held, model, loss, gradients):
    """They are as the golden file says."""
    assert loss == pytest.approx(held["loss"], rel=1e-5)
    found = joined(model, gradients)
    assert 2 * len(found) == len(held["gradients"])
    for name, pair in found.items():
        for which, found in zip("AB", pair):
            wanted = held["gradients"][f"base_model.model.{name}.lora_{which}.default.weight"]
            assert np.linalg.norm(found) == pytest.approx(wanted, rel=1e-4), (name, which)


@pytest.mark.parametrize("kind", HELD["keys"])
def test_every_key_of_a_family_is_known(kind):
    family = FAMILIES[kind]
    known = _HANDLED | _HARMLESS.keys() | {*family.handled} | family.harmless.keys()
    assert HELD["keys"][kind].keys() <= known


@pytest.mark.parametrize("kind", HELD["keys"])
def test_keys_that_a_file_leaves_out_have_the_defaults_of_transformers(kind):
    held = {key: value for key, value in HELD["keys"][kind].items() if key != "architectures"}
    # With caps there is no model.
    caps = FAMILIES[kind].defaults.keys() & {"attn_logit_softcapping", "final_logit_softcapping"}
    held |= dict.fromkeys(caps)
    whole = described(held, "whole")
    # Without them transformers takes other sizes, which a file has.
    needed = {
        "model_type",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
    }
    for key in held.keys() - needed - caps:
        assert described({each: value for each, value in held.items() if each != key}, "whole") == whole, key


@pytest.mark.parametrize(
    ("kind", "change", "told"),
    [
        ("llama", {"model_type": "gemma3"}, r"model_type=\"gemma3\": must be one of llama, mistral, qwen2"),
        ("llama", {"architectures": ["Qwen2ForCausalLM"]}, r"architectures=.*must be \[\"LlamaForCausalLM\"\]"),
        ("llama", {"rope_scaling": {"rope_type": "yarn"}}, r"rope_scaling=.*must be one of default, linear, llama3"),
        ("llama", {"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, r"low_freq_factor: is missing"),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 0}}, r"factor=0: must be a number above 0"),
        ("llama", {"residual_multiplier": 0.22}, r"residual_multiplier=0.22: must be 1.0"),
        ("llama", {"sliding_window": 8}, r"sliding_window=8: "),
        ("mistral", {"sliding_window": 0}, r"sliding_window=0: must be an integer above 0"),
        ("qwen2", {"use_sliding_window": True}, r"use_sliding_window=true: must be false"),
        ("granite", {"logits_scaling": 0.0}, r"logits_scaling=0.0: must be a number above 0"),
        ("phi3", {"partial_rotary_factor": 0.2}, r"partial_rotary_factor=0.2: turns 3 elements of a head"),
        ("phi3", {"rope_scaling": {"type": "longrope", "short_factor": [1.0]}}, r"short_factor=.*must be 6 numbers"),
        ("olmo2", {"clip_qkv": 8.0}, r"clip_qkv=8.0: must be null"),
        ("gemma3_text", {"use_bidirectional_attention": True}, r"use_bidirectional_attention=true: must be false"),
        ("gemma3_text", {"layer_types": ["full_attention", "chunked"]}, r"layer_types=.*must be full_attention or sl"),
        ("gemma3_text", {"hidden_activation": "gelu"}, r"hidden_activation=\"gelu\": must be \"gelu_pytorch_tanh\""),
        ("gemma2", {"attn_logit_softcapping": 50.0}, r"attn_logit_softcapping=50.0: must be null; .* gemma3_text"),
        ("smollm3", {"no_rope_layers": [1]}, r"no_rope_layers=\[1\]: must be 0 or 1 for each of the 2 layers"),
    ],
)
def test_a_part_that_is_not_built_is_refused_by_its_key(kind, change, told, tmp_path):
    with pytest.raises(ValueError, match=rf"config\.json: (rope_parameters\.)?{told}"):
        HuggingFaceCheckpoint(written(tmp_path, HELD["models"][kind][0], change))


def test_a_text_is_no_longer_than_the_window(tmp_path):
    held = HELD["models"]["mistral"][0]
    checkpoint = open_checkpoint(written(tmp_path, held))
    assert checkpoint.model.context == held["config"]["sliding_window"] == 12
    with pytest.raises(ValueError, match="a text has 1 to 12"):
        Llama(checkpoint.model, checkpoint.tensor).logits(range(13))


@pytest.mark.parametrize(("kind", "number"), CASES)
def test_a_model_is_written_as_its_family(kind, number, tmp_path):
    """With its file's names and factors, or without that file, where factors may be in the tensors."""
    held = HELD["models"][kind][number]
    source = open_checkpoint(written(tmp_path, held))
    for config in (source.config, {}):
        folder = tmp_path / f"merged{len(config)}"
        folder.mkdir()
        write_folder(folder, Merged(source.model, source.tensor, {}, config), lambda *_: None)
        assert json.loads((folder / "config.json").read_text())["model_type"] in (
            (kind,) if config else (kind, "llama")
        )
        found = open_checkpoint(folder)
        assert replace(found.model, name=source.model.name) == source.model
        if config:
            written_shapes = {name: list(tensor.shape) for name, tensor in open_safetensors(folder / WEIGHTS).items()}
            tied = {"lm_head.weight"} if source.form.tied else set()
            assert written_shapes == {name: shape for name, shape in held["shapes"].items() if name not in tied}
        for name in source.model.tensors:
            np.testing.assert_allclose(found.tensor(name), source.tensor(name), rtol=2e-7, atol=1e-7)


def test_parts_of_two_families_are_none(tmp_path):
    model = open_checkpoint(written(tmp_path, HELD["models"]["qwen2"][0])).model
    with pytest.raises(ValueError, match="no model_type has the parts of qwen2 and granite together"):
        config_of(replace(model, score=0.5))


def test_a_factor_behind_a_linear_multiplies_its_bias(tmp_path):
    source = open_checkpoint(written(tmp_path, HELD["models"]["qwen2"][0]))
    name = "model.layers.0.self_attn.k_proj"
    factors = np.linspace(1, 2, source.model.kv).astype(np.float32)
    merged = Merged(source.model, source.tensor, {name: Vector(factors)})
    plain = Merged(source.model, source.tensor, {})
    # Any input: rows of the weight and the bias are multiplied alike.
    for end in ("weight", "bias"):
        wanted = (plain.values(f"{name}.{end}").T * factors).T
        np.testing.assert_array_equal(merged.values(f"{name}.{end}"), wanted)
    assert plain.values(f"{name}.bias").any()


def test_a_merged_model_ends_texts_as_its_source_does(tmp_path):
    change = {"bos_token_id": 0, "eos_token_id": [1, 2], "pad_token_id": None}
    source = HuggingFaceCheckpoint(written(tmp_path, HELD["models"]["smollm3"][0], change))
    folder = tmp_path / "merged"
    folder.mkdir()
    write_folder(folder, Merged(source.model, source.tensor, {}, source.config), lambda *_: None)
    config = json.loads((folder / "config.json").read_text())
    assert change.items() <= config.items()
