"""Asks transformers and PEFT about a small model of each family, and writes ``families.json``.

A maintainer's tool: nothing imports it. It needs transformers 5.24.0, peft 0.21.2 and torch 2.13.0::

    python make_families.py > families.json

``keys``: every key of a family's configuration with its default. ``models``: with weights of ``weights.py``, logits of
the last token, the loss of the text, and norms of gradients of adapters of rank 2 beside q, v, o and down, by their
names. Adapters' weights are those of ``weights.py`` by PEFT's names.
"""

import json
import tempfile
from pathlib import Path

import peft
import torch
import transformers
from safetensors.numpy import save_file
from weights import weights

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 48,
    "max_position_embeddings": 32,
}
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 47, 0]
FAMILIES = {
    "llama": (
        "Llama",
        [{"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}}]
        + [
            {
                "tie_word_embeddings": True,
                "rope_parameters": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 16,
                    "rope_theta": 500.0,
                },
            }
        ]
        + [{"num_key_value_heads": 2, "head_dim": 128}],
    ),
    "mistral": ("Mistral", [{"num_key_value_heads": 2, "sliding_window": 12}]),
    "qwen2": ("Qwen2", [{"num_key_value_heads": 2}, {"num_key_value_heads": 1, "tie_word_embeddings": True}]),
    "qwen3": (
        "Qwen3",
        [{"num_key_value_heads": 2}, {"num_key_value_heads": 1, "head_dim": 32, "tie_word_embeddings": True}],
    ),
    "granite": (
        "Granite",
        [
            {
                "num_key_value_heads": 2,
                "embedding_multiplier": 12.0,
                "logits_scaling": 8.0,
                "residual_multiplier": 0.22,
                "attention_multiplier": 0.0625,
                "tie_word_embeddings": True,
            },
            {"num_key_value_heads": 2, "logits_scaling": 2.0},
        ],
    ),
    "smollm3": (
        "SmolLM3",
        [
            {
                "num_key_value_heads": 2,
                "no_rope_layer_interval": 2,
                "pad_token_id": 0,
                "bos_token_id": 1,
                "eos_token_id": 2,
            },
            {
                "num_key_value_heads": 2,
                "no_rope_layers": [0, 1],
                "pad_token_id": 0,
                "bos_token_id": 1,
                "eos_token_id": 2,
            },
        ],
    ),
    "phi3": (
        "Phi3",
        [
            {
                "num_key_value_heads": 2,
                "partial_rotary_factor": 0.75,
                "original_max_position_embeddings": 16,
                "rope_theta": 500.0,
                "rope_scaling": {
                    "type": "longrope",
                    "short_factor": [1.0, 1.1, 1.25, 1.5, 2.0, 3.0],
                    "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
                },
                "tie_word_embeddings": True,
                "pad_token_id": 0,
            },
            {"sliding_window": 12, "pad_token_id": 0},
        ],
    ),
    "olmo2": ("Olmo2", [{"num_key_value_heads": 2}, {"rope_theta": 500.0, "tie_word_embeddings": True}]),
    "gemma3_text": (
        "Gemma3",
        [
            {
                "num_key_value_heads": 2,
                "head_dim": 32,
                "query_pre_attn_scalar": 24,
                "sliding_window": 12,
                "layer_types": ["full_attention", "sliding_attention"],
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 20.0},
                },
            },
            {
                "num_key_value_heads": 1,
                "head_dim": 16,
                "sliding_window": 16,
                "sliding_window_pattern": 2,
                "rope_theta": 500.0,
                "rope_local_base_freq": 20.0,
                "tie_word_embeddings": False,
            },
        ],
    ),
    "gemma2": (
        "Gemma2",
        [
            {
                "num_key_value_heads": 2,
                "head_dim": 16,
                "query_pre_attn_scalar": 20,
                "sliding_window": 16,
                "attn_logit_softcapping": None,
                "final_logit_softcapping": None,
            }
        ],
    ),
}
#: What has an adapter, and in families that keep several linears in one tensor.
TARGETS = ["q_proj", "v_proj", "o_proj", "down_proj"]
FUSED = {"phi3": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]}


def answered(kind, name, more):
    """What transformers makes of a folder with this ``config.json``."""
    config, model_class = _configured(name), getattr(transformers, f"{name}ForCausalLM")
    with tempfile.TemporaryDirectory() as folder:
        raw = {"model_type": kind, "architectures": [model_class.__name__]} | SMALL | more
        (Path(folder) / "config.json").write_text(json.dumps(raw))
        model = model_class(config.from_pretrained(folder))
        shapes = {each: tuple(values.shape) for each, values in model.named_parameters()}
        save_file(weights(shapes), Path(folder) / "model.safetensors", metadata={"format": "pt"})
        model = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        with torch.no_grad():
            last = model(torch.tensor([TOKENS])).logits[0, -1]
        tuned = peft.get_peft_model(model, peft.LoraConfig(r=2, lora_alpha=3, target_modules=FUSED.get(kind, TARGETS)))
        learnt = {each: values for each, values in tuned.named_parameters() if values.requires_grad}
        start = weights({each: tuple(values.shape) for each, values in learnt.items()}, seed=11)
        with torch.no_grad():
            for each, values in learnt.items():
                values.copy_(torch.from_numpy(start[each]))
        loss = tuned(torch.tensor([TOKENS]), labels=torch.tensor([TOKENS])).loss
        loss.backward()
    return {
        "config": raw,
        "shapes": {each: list(shape) for each, shape in shapes.items()},
        "last": [round(float(each), 6) for each in last],
        "loss": float(loss),
        "gradients": {each: float(values.grad.norm()) for each, values in learnt.items()},
    }


def keys(name):
    """Keys of a configuration, with defaults."""
    return _configured(name)().to_dict()


def _configured(name):
    # Gemma 3's other configuration is of text and pictures.
    return getattr(transformers, "Gemma3TextConfig" if name == "Gemma3" else f"{name}Config")


if __name__ == "__main__":
    made = {kind: [answered(kind, name, each) for each in configs] for kind, (name, configs) in FAMILIES.items()}
    print(json.dumps({"keys": {kind: keys(name) for kind, (name, _) in FAMILIES.items()}, "models": made}))
