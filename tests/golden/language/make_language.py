"""Asks transformers and diffusers about small models, tokens and keys, and writes ``language.json``.

A maintainer's tool: nothing imports it. It needs transformers 5.24.0, diffusers 0.42.1 and torch 2.13.0::

    python make_language.py > language.json

``keys``: every key of a configuration with its default. ``logits``: of models with the weights of ``weights.py``.
``tokens``: a vocabulary of 256 bytes and merges, learnt from ``qlora_smollm2/text.txt`` beside this folder, and what
each family's own class makes of odd texts.
"""

import inspect
import json
import tempfile
from pathlib import Path

import torch
from diffusers import UNet2DConditionModel
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import GPT2Tokenizer, LlamaConfig, LlamaForCausalLM, Qwen2Tokenizer
from transformers.convert_slow_tokenizer import TikTokenConverter
from weights import weights

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 48,
    "max_position_embeddings": 32,
}
CONFIGS = [
    {},
    {"num_key_value_heads": 2, "tie_word_embeddings": True, "rms_norm_eps": 1e-5},
    {"num_key_value_heads": 1, "rope_theta": 500.0, "hidden_act": "swish"},
    {"head_dim": 32, "rope_parameters": {"rope_type": "default", "rope_theta": 777.0}},
    {"rope_theta": 123.0, "rope_scaling": {"type": "default"}, "rms_norm_eps": 0.01},
]
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 47, 0]
TEXTS = [
    "Don't, I'M sure: we'Ll see 1234567 of x1y22.",
    " leading  and   trailing spaces   ",
    "tabs\tand\r\nlines\n\n\n  indented\n",
    "e\u0301 is é; ﬁ ſ ſ's ４２ ½ ٣٤ 漢字かな 🙂🙃",
    "self.x[0]+=3.14e-10;//!!! ---",
    "\u00a0no\u2003breaks\u200bhere",
    "'s 'T're",
    "",
]


def logits(config):
    """What transformers makes of a folder with this ``config.json``."""
    with tempfile.TemporaryDirectory() as folder:
        raw = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]} | SMALL | config
        (Path(folder) / "config.json").write_text(json.dumps(raw))
        model = LlamaForCausalLM(LlamaConfig.from_pretrained(folder))
        shapes = {name: tuple(each.shape) for name, each in model.named_parameters()}
        save_file(weights(shapes), Path(folder) / "model.safetensors", metadata={"format": "pt"})
        model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        with torch.no_grad():
            found = model(torch.tensor([TOKENS])).logits[0]
    return {"config": raw, "tokens": TOKENS, "last": [round(float(each), 5) for each in found[-1]]}


def tokens():
    """A vocabulary, and the tokens of texts by family."""
    text = (Path(__file__).parents[1] / "qlora_smollm2" / "text.txt").read_text(encoding="utf-8")
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    more = " 1234567 123 45 x1y22 I'M we'Ll Don't == [0]+=1 \r\n\n   \t//!!!" * 9
    made.train_from_iterator([text, more], trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet))
    held = json.loads(made.to_str())["model"]
    # The last has no merges: it is found where a whole word is looked up.
    vocab, merges = held["vocab"] | {"Ġsure": 420}, [tuple(pair) for pair in held["merges"]]

    class Llama3(TikTokenConverter):
        def extract_vocab_merges_from_model(self, _):
            return vocab, merges

    families = {
        "gpt-2": GPT2Tokenizer(vocab=dict(vocab), merges=list(merges)).backend_tokenizer,
        "qwen2": Qwen2Tokenizer(vocab=dict(vocab), merges=list(merges)).backend_tokenizer,
        "llama-bpe": Llama3("").converted(),
    }
    return {
        "tokens": [token for token, _ in sorted(vocab.items(), key=lambda each: each[1])],
        "merges": [" ".join(pair) for pair in merges],
        "texts": TEXTS,
        "ids": {name: [each.encode(text).ids for text in TEXTS] for name, each in families.items()},
    }


def keys():
    """Keys with defaults."""
    unet = inspect.signature(UNet2DConditionModel.__init__).parameters.values()
    return {
        "LlamaConfig": LlamaConfig().to_dict(),
        "UNet2DConditionModel": {each.name: each.default for each in unet if each.name != "self"},
    }


if __name__ == "__main__":
    print(json.dumps({"keys": keys(), "logits": [logits(each) for each in CONFIGS], "tokens": tokens()}, indent=None))
