"""A language model as a folder that people bring."""

import json

import numpy as np
from safetensors.numpy import save_file

__all__ = ["add_sizes", "config_of", "drawn", "save_model"]


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


def add_sizes(writer, model, context):
    """The same sizes in the header of a GGUF file, but for those of heads and of the vocabulary."""
    writer.add_block_count(model.layers)
    writer.add_context_length(context)
    writer.add_embedding_length(model.hidden)
    writer.add_feed_forward_length(model.inter)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_layer_norm_rms_eps(model.norm_eps)
    writer.add_rope_freq_base(model.rope_theta)


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
