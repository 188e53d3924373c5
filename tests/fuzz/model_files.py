"""Small language models as files, and an independent reading of them in float64.

The reference knows the fields that a LLaMA model has and no others: it reads with ``gguf`` and ``safetensors``.
"""

import json
from dataclasses import dataclass

import gguf
import numpy as np
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from ..golden.language.weights import weights

#: A tensor of a layer: Hugging Face's name, and llama.cpp's.
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


@dataclass(frozen=True)
class Shape:
    """A small model; ``padded``: rows of the embedding behind the vocabulary."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inter: int
    vocab: int
    theta: float
    eps: float
    tied: bool
    padded: int

    @property
    def hidden(self):
        return 64

    @property
    def shapes(self):
        """Shape of each tensor by Hugging Face's name."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        wide = {"q_proj": (q, 64), "k_proj": (kv, 64), "v_proj": (kv, 64), "o_proj": (64, q)}
        wide |= {"gate_proj": (self.inter, 64), "up_proj": (self.inter, 64), "down_proj": (64, self.inter)}
        rows = (self.vocab + self.padded, 64)
        found = {"model.embed_tokens.weight": rows, "model.norm.weight": (64,)}
        for i in range(self.layers):
            for name in LAYER:
                found[f"model.layers.{i}.{name}.weight"] = wide.get(name.split(".")[-1], (64,))
        return found if self.tied else found | {"lm_head.weight": rows}


SHAPES = st.builds(
    Shape,
    layers=st.integers(1, 2),
    heads=st.sampled_from([2, 4]),
    kv_heads=st.sampled_from([1, 2]),
    head_dim=st.sampled_from([16, 32]),
    inter=st.sampled_from([32, 96]),
    vocab=st.sampled_from([8, 33]),
    theta=st.sampled_from([100.0, 10000.0, 500000.0]),
    eps=st.sampled_from([1e-6, 1e-5, 0.5]),
    tied=st.booleans(),
    padded=st.sampled_from([0, 0, 3]),
)


def write_folder(folder, shape, extra, start="", kind=np.float32):
    """A Hugging Face folder; ``extra`` are further keys, which come first or last by their number."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inter,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.theta,
        "max_position_embeddings": 64,
        "tie_word_embeddings": shape.tied,
    }
    (folder / "config.json").write_text(start + json.dumps(config | extra), encoding="utf-8")
    save_file({name: each.astype(kind) for name, each in weights(shape.shapes).items()}, folder / "model.safetensors")


def write_gguf(path, shape, extra, kind="F32"):
    """A GGUF file as llama.cpp's converter writes it; ``extra``: (key, type, value)."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(shape.layers)
    writer.add_context_length(64)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.inter)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(shape.eps)
    writer.add_rope_freq_base(shape.theta)
    writer.add_vocab_size(shape.vocab)
    for key, type_, value in extra:
        writer.add_key_value(key, value, gguf.GGUFValueType[type_])
    for name, values in weights(shape.shapes).items():
        stored = "F32" if values.ndim == 1 else kind
        heads = {"q_proj": shape.heads, "k_proj": shape.kv_heads}.get(name.split(".")[-2])
        if heads:
            values = values.reshape(heads, 2, -1, 64).swapaxes(1, 2).reshape(values.shape)
        type_ = gguf.GGMLQuantizationType[stored]
        writer.add_tensor(short(name), gguf.quants.quantize(values, type_), raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def short(name):
    """llama.cpp's name of a tensor."""
    for long, each in {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}.items():
        name = name.replace(long, each) if name.startswith(long) else name
    for long, each in LAYER.items():
        name = name.replace(long, each)
    return name.replace("model.layers", "blk")


def logits_of_folder(folder, tokens):
    """Logits by the keys of ``config.json`` that LLaMA has."""
    raw = json.loads((folder / "config.json").read_text(encoding="utf-8-sig"))
    held = load_file(folder / "model.safetensors")
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    tied = raw.get("tie_word_embeddings")
    return _logits(
        lambda name: held["model.embed_tokens.weight" if tied and name == "lm_head.weight" else name],
        tokens,
        layers=raw["num_hidden_layers"],
        heads=raw["num_attention_heads"],
        kv_heads=raw.get("num_key_value_heads") or raw["num_attention_heads"],
        theta=rope.get("rope_theta") or raw.get("rope_theta") or 10000.0,
        eps=raw.get("rms_norm_eps", 1e-6),
        vocab=raw["vocab_size"],
        neighbours=False,
    )


def logits_of_gguf(path, tokens):
    """Logits by the fields of a GGUF file that llama.cpp's LLaMA has."""
    reader = gguf.GGUFReader(path)
    fields = {key: each.contents() for key, each in reader.fields.items()}
    held = {each.name: gguf.quants.dequantize(each.data, each.tensor_type) for each in reader.tensors}
    heads = fields["llama.attention.head_count"]

    def read(name):
        name = short(name)
        return held["token_embd.weight" if name == "output.weight" and name not in held else name]

    return _logits(
        read,
        tokens,
        layers=fields["llama.block_count"],
        heads=heads,
        kv_heads=fields.get("llama.attention.head_count_kv", heads),
        theta=fields.get("llama.rope.freq_base", 10000.0),
        eps=fields["llama.attention.layer_norm_rms_epsilon"],
        vocab=fields["llama.vocab_size"],
        neighbours=True,
    )


def _logits(read, tokens, *, layers, heads, kv_heads, theta, eps, vocab, neighbours):
    def tensor(name):
        return np.asarray(read(name), np.float64)

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * tensor(name)

    x = tensor("model.embed_tokens.weight")[tokens]
    count = len(tokens)
    for i in range(layers):
        at = f"model.layers.{i}."
        h = norm(x, f"{at}input_layernorm.weight")
        q, k, v = (
            (h @ tensor(f"{at}self_attn.{part}_proj.weight").T).reshape(count, number, -1).swapaxes(0, 1)
            for part, number in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        )
        wide = q.shape[-1]
        turns = np.exp(1j * np.outer(np.arange(count), theta ** (-np.arange(0, wide, 2) / wide)))

        def turned(values, turns=turns, half=wide // 2):
            first, second = (
                (values[..., ::2], values[..., 1::2]) if neighbours else (values[..., :half], values[..., half:])
            )
            made = (first + 1j * second) * turns
            return np.concatenate([made.real, made.imag], -1)

        q, k = turned(q), np.repeat(turned(k), heads // kv_heads, 0)
        scores = q @ k.swapaxes(1, 2) / np.sqrt(wide)
        scores = np.exp(scores - scores.max(-1, keepdims=True)) * np.tri(count)
        mixed = scores / scores.sum(-1, keepdims=True) @ np.repeat(v, heads // kv_heads, 0)
        x = x + mixed.swapaxes(0, 1).reshape(count, -1) @ tensor(f"{at}self_attn.o_proj.weight").T
        h = norm(x, f"{at}post_attention_layernorm.weight")
        gate, up = (h @ tensor(f"{at}mlp.{part}_proj.weight").T for part in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ tensor(f"{at}mlp.down_proj.weight").T
    return norm(x, "model.norm.weight") @ tensor("lm_head.weight")[:vocab].T
