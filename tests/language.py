"""A language model as a folder that people bring."""

import json

import numpy as np
from safetensors.numpy import save_file

__all__ = ["config_of", "drawn", "save_model"]


def config_of(model):
    """The model's ``config.json``, as Hugging Face's libraries write it."""
    return {
        "model_type": "llama",
        "hidden_size": model.hidden,
        "intermediate_size": model.inter,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "vocab_size": model.vocab,
        "max_position_embeddings": model.context,
        "rms_norm_eps": model.norm_eps,
        "tie_word_embeddings": model.tied,
        "rope_theta": model.rope_theta,
    }


def drawn(model, seed=5):
    """Random float32 tensors of the model by name; gains of norms are about 1."""
    random = np.random.default_rng(seed)
    return {
        name: random.normal(1 if len(shape) == 1 else 0, 0.1, shape).astype(np.float32)
        for name, shape in model.tensors.items()
    }


def save_model(folder, model, seed=5):
    """Writes the model to ``folder``, which it makes."""
    folder.mkdir(parents=True)
    save_file(drawn(model, seed), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config_of(model)))
