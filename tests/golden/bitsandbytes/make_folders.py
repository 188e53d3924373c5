"""Saves a small model in NF4 by transformers and bitsandbytes, with and without double quantisation.

A maintainer's tool: nothing imports it. It needs torch 2.13.0, transformers 5.24.0 and bitsandbytes 0.50.2::

    python make_folders.py

``double`` and ``plain`` are folders as ``save_pretrained`` writes them, with ``dequant.npz``: what bitsandbytes makes
of each linear.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import bitsandbytes.functional as bnb
import numpy as np
import torch
from transformers import BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).parent
CONFIG = LlamaConfig(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    vocab_size=16,
    max_position_embeddings=32,
)

torch.manual_seed(0)
with TemporaryDirectory() as base:
    LlamaForCausalLM(CONFIG).save_pretrained(base)
    for name, double in (("double", True), ("plain", False)):
        quantization = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=double,
            bnb_4bit_compute_dtype=torch.float32,
        )
        model = LlamaForCausalLM.from_pretrained(base, quantization_config=quantization, device_map="cpu")
        model.save_pretrained(HERE / name)
        (HERE / name / "generation_config.json").unlink(missing_ok=True)
        held = {
            key: bnb.dequantize_4bit(module.weight.data, module.weight.quant_state).float().numpy()
            for key, module in model.named_modules()
            if type(module).__name__ == "Linear4bit"
        }
        np.savez_compressed(HERE / name / "dequant.npz", **held)
