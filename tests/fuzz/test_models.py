"""A model's file is read as it is, or refused in one line that names what is not known."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradloom.models.files.language.checkpoint import open_checkpoint
from gradloom.models.files.language.gguf import GgufFile
from gradloom.models.files.unet import SD_V1_5, find_unet
from gradloom.systems.text.reference.llama import Llama

from .looks import looks
from .model_files import SHAPES, Shape, logits_of_folder, logits_of_gguf, write_folder, write_gguf

TOKENS = [1, 0, 5, 5, 2, 7]
KINDS = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"]
SHAPE = Shape(layers=1, heads=2, kv_heads=1, head_dim=16, inter=32, vocab=33, theta=1e4, eps=1e-5, tied=False, padded=0)
#: Stable Diffusion 1.5's.
UNET = {
    "_class_name": "UNet2DConditionModel",
    "block_out_channels": [320, 640, 1280, 1280],
    "cross_attention_dim": 768,
    "sample_size": 64,
}
#: Keys of config.json with values that change nothing.
KEEPS = [
    {"hidden_act": "swish"},
    {"rope_scaling": None},
    {"rope_scaling": {"rope_type": "default"}},
    {"rope_scaling": {"type": "default"}},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "rope_theta": None},
    {"rope_parameters": {"rope_theta": 123.0}, "rope_theta": 123.0},
    {"attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0},
    {"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "transformers_version": "4.42.3"},
    {"is_llama_config": True, "rope_interleaved": False, "transformers.js_config": {"dtype": "q4"}},
    {"bos_token_id": 1, "eos_token_id": [1, 2], "pad_token_id": None, "use_cache": False},
    {"pretraining_tp": 2, "initializer_range": 0.04, "_name_or_path": "a/b"},
    {"partial_rotary_factor": 1.0, "sliding_window": None, "use_sliding_window": False},
    {"a_new_key": None, "another": False, "a_third": [], "a_fourth": {}},
]
#: The same that change the model, with the key that a refusal names.
CHANGES = [
    ("hidden_act", {"hidden_act": "gelu"}),
    ("attention_bias", {"attention_bias": True}),
    ("mlp_bias", {"mlp_bias": True}),
    ("attention_dropout", {"attention_dropout": 0.1}),
    ("rope_scaling", {"rope_scaling": {"factor": 8.0, "rope_type": "llama3", "low_freq_factor": 1.0}}),
    ("rope_scaling", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
    ("rope_scaling", {"rope_scaling": {"rope_type": "default", "rope_theta": 9.0}}),
    ("rope_scaling.factor", {"rope_scaling": {"rope_type": "default", "factor": 2.0}}),
    ("rope_parameters", {"rope_parameters": {"type": "yarn", "factor": 4.0}}),
    ("rope_parameters.rope_theta", {"rope_parameters": {"rope_type": "default", "rope_theta": 3.0}}),
    ("rope_parameters.partial_rotary_factor", {"rope_parameters": {"partial_rotary_factor": 0.5}}),
    ("rope_parameters.full_attention", {"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}),
    ("partial_rotary_factor", {"partial_rotary_factor": 0.5}),
    ("rope_interleaved", {"rope_interleaved": True}),
    ("sliding_window", {"sliding_window": 4}),
    ("layer_types", {"layer_types": ["sliding_attention", "full_attention"]}),
    ("is_causal", {"is_causal": False}),
    ("attention_multiplier", {"attention_multiplier": 0.1}),
    ("logit_scale", {"logit_scale": 0.5}),
    ("logits_scaling", {"logits_scaling": 8.0}),
    ("residual_multiplier", {"residual_multiplier": 0.2}),
    ("embedding_multiplier", {"embedding_multiplier": 12.0}),
    ("final_logit_softcapping", {"final_logit_softcapping": 30.0}),
    ("num_local_experts", {"num_local_experts": 4}),
    ("quantization_config", {"quantization_config": {"quant_method": "gptq"}}),
    ("architectures", {"architectures": ["LlamaForSequenceClassification"]}),
    ("model_type", {"model_type": "cohere2"}),
    ('tie_word_embeddings="False"', {"tie_word_embeddings": "False"}),
    ("auto_map", {"auto_map": {"AutoModel": "own.Model"}}),
    ("per_layer_config", {"per_layer_config": {"0": {"head_dim": 8}}}),
    ("use_qk_norm", {"use_qk_norm": True}),
    ("a_new_key", {"a_new_key": 0}),
]
#: Fields of a GGUF file: key, type, value.
GGUF_KEEPS = [
    ("general.name", "STRING", "x"),
    ("general.file_type", "UINT32", 0),
    ("general.quantization_version", "UINT32", 2),
    ("general.base_model.0.name", "STRING", "y"),
    ("quantize.imatrix.chunks_count", "INT32", 128),
    ("tokenizer.ggml.model", "STRING", "llama"),
    ("tokenizer.chat_template", "STRING", "{{ x }}"),
    ("split.count", "UINT16", 1),
    ("llama.rope.scaling.type", "STRING", "none"),
    ("llama.rope.scaling.type", "STRING", "linear"),
    ("llama.rope.scaling.factor", "FLOAT32", 1.0),
    ("llama.rope.scale_linear", "FLOAT32", 1.0),
    ("llama.rope.scaling.original_context_length", "UINT32", 8),
    ("llama.attention.causal", "BOOL", True),
    ("llama.attention.scale", "FLOAT32", 0.0),
    ("llama.attention.clamp_kqv", "FLOAT32", 0.0),
    ("llama.attention.sliding_window", "UINT32", 0),
    ("llama.logit_scale", "FLOAT32", 1.0),
    ("llama.expert_count", "UINT32", 0),
    ("llama.use_parallel_residual", "BOOL", False),
    ("llama.tensor_data_layout", "STRING", "Meta AI original pth"),
]
GGUF_CHANGES = [
    ("llama.rope.scale_linear", "FLOAT32", 4.0),
    ("llama.rope.scaling.type", "STRING", "yarn"),
    ("llama.rope.scaling.factor", "FLOAT32", 2.0),
    ("llama.rope.scaling.attn_factor", "FLOAT32", 0.5),
    ("llama.rope.scaling.yarn_log_multiplier", "FLOAT32", 0.1),
    ("llama.rope.dimension_count", "UINT32", 8),
    ("llama.attention.value_length", "UINT32", 8),
    ("llama.attention.causal", "BOOL", False),
    ("llama.attention.scale", "FLOAT32", 0.0625),
    ("llama.attention.clamp_kqv", "FLOAT32", 8.0),
    ("llama.attention.max_alibi_bias", "FLOAT32", 8.0),
    ("llama.attention.sliding_window", "UINT32", 4),
    ("llama.logit_scale", "FLOAT32", 0.5),
    ("llama.residual_scale", "FLOAT32", 0.2),
    ("llama.embedding_scale", "FLOAT32", 12.0),
    ("llama.final_logit_softcapping", "FLOAT32", 30.0),
    ("llama.expert_count", "UINT32", 8),
    ("llama.use_parallel_residual", "BOOL", True),
    ("llama.tensor_data_layout", "STRING", "reference"),
    ("llama.a_new_key", "UINT32", 0),
    ("llanna.context_length", "UINT32", 8),
    ("general.type", "STRING", "adapter"),
    ("general.quantization_version", "UINT32", 1),
    ("split.count", "UINT16", 3),
]
#: Keys of a UNet's configuration.
UNET_KEEPS = [
    {"_class_name": "UNet2DConditionModel", "_diffusers_version": "0.6.0"},
    {"encoder_hid_dim": None, "mid_block_type": "UNetMidBlock2DCrossAttn", "dropout": 0.0},
    {"upcast_attention": True, "addition_time_embed_dim": 256, "projection_class_embeddings_input_dim": 2816},
    {"resnet_out_scale_factor": 1, "mid_block_scale_factor": 1.0, "use_linear_projection": False},
    {"sample_size": [64, 64], "flip_sin_to_cos": True, "freq_shift": 0},
    {"decay": 0.9999, "power": 0.7, "use_ema_warmup": False, "a_new_key": None},
]
UNET_CHANGES = [
    ("_class_name", "ControlNetModel"),
    ("_class_name", None),
    ("encoder_hid_dim", 1024),
    ("encoder_hid_dim_type", "text_proj"),
    ("mid_block_type", None),
    ("act_fn", "gelu"),
    ("dropout", 0.1),
    ("use_linear_projection", "False"),
    ("flip_sin_to_cos", "False"),
    ("only_cross_attention", 0),
    ("freq_shift", 0.5),
    ("sample_size", [64, 32]),
    ("sample_size", None),
    ("norm_num_groups", None),
    ("class_embed_type", "timestep"),
    ("addition_embed_type", "text_time"),
    ("time_cond_proj_dim", 256),
    ("num_attention_heads", 8),
    ("conditioning_embedding_out_channels", [16, 32]),
    ("a_new_key", 0),
]


def refused(message, key, path):
    assert "\n" not in message and str(path) in message
    assert re.search(rf"\W{re.escape(key)}\W", message), message


def check(path, witness):
    """Reads a model and compares its logits; a refusal is returned as its message."""
    try:
        checkpoint = open_checkpoint(path)
        found = Llama(checkpoint.model, checkpoint.tensor).logits(TOKENS)
    except ValueError as error:
        return str(error)
    expected = witness(path, TOKENS)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())
    return ""


def test_a_folder_is_read_as_it_is(tmp_path):
    @looks(20, 400)
    @given(SHAPES, st.lists(st.sampled_from(KEEPS)), st.sampled_from(["", "\ufeff"]), st.sampled_from(["f4", "f2"]))
    def one(shape, keeps, start, kind):
        extra = {key: value for each in keeps for key, value in each.items()}
        write_folder(tmp_path, shape, extra, start, kind)
        assert check(tmp_path, logits_of_folder) == ""

    one()


@pytest.mark.parametrize("key, change", CHANGES)
def test_a_key_that_changes_a_model_is_named(key, change, tmp_path):
    write_folder(tmp_path, SHAPE, change)
    refused(check(tmp_path, logits_of_folder), key, tmp_path)


def test_a_gguf_file_is_read_as_it_is(tmp_path):
    @looks(20, 400)
    @given(SHAPES, st.lists(st.sampled_from(GGUF_KEEPS), unique_by=lambda each: each[0]), st.sampled_from(KINDS))
    def one(shape, keeps, kind):
        write_gguf(tmp_path / "m.gguf", shape, keeps, kind)
        assert check(tmp_path / "m.gguf", logits_of_gguf) == ""

    one()


@pytest.mark.parametrize("field", GGUF_CHANGES, ids=lambda field: field[0])
def test_a_field_that_changes_a_model_is_named(field, tmp_path):
    write_gguf(tmp_path / "m.gguf", SHAPE, [field])
    refused(check(tmp_path / "m.gguf", logits_of_gguf), field[0], tmp_path / "m.gguf")


@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_a_damaged_file_reads_as_what_it_says_or_is_refused(kind, tmp_path):
    if kind == "folder":
        write_folder(tmp_path, SHAPE, {"architectures": ["LlamaForCausalLM"]})
        path, damaged, witness = tmp_path, tmp_path / "config.json", logits_of_folder
        end = damaged.stat().st_size
    else:
        path = damaged = tmp_path / "m.gguf"
        write_gguf(path, SHAPE, [("general.name", "STRING", "x")])
        witness = logits_of_gguf
        end = path.stat().st_size - sum(each.size for each in GgufFile(path).tensors.values())
    whole = damaged.read_bytes()

    @looks(20, 1000)
    @given(st.lists(st.tuples(st.integers(0, end - 1), st.integers(0, 255)), min_size=1, max_size=3), st.booleans())
    def one(changes, cut):
        made = bytearray(whole)
        for at, value in changes:
            made[at] = value
        damaged.write_bytes(made[: changes[0][0]] if cut else made)
        said = check(path, witness)
        assert not said or "\n" not in said and str(tmp_path) in said

    one()


def test_a_unet_is_read_as_it_is(tmp_path):
    @looks(10, 200)
    @given(st.lists(st.sampled_from(UNET_KEEPS)), st.sampled_from(["", "\ufeff"]))
    def one(keeps, start):
        raw = {key: value for each in [UNET, *keeps] for key, value in each.items()}
        (tmp_path / "config.json").write_text(start + json.dumps(raw), encoding="utf-8")
        assert replace(find_unet(tmp_path), name=SD_V1_5.name) == SD_V1_5

    one()


@pytest.mark.parametrize("key, value", UNET_CHANGES)
def test_a_key_that_changes_a_unet_is_named(key, value, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(UNET | {key: value}))
    with pytest.raises(ValueError) as error:
        find_unet(tmp_path)
    refused(str(error.value), key, path)
