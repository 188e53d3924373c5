"""Regenerates ``logits.npz``: logits of llama.cpp with ``--lora``.

Needs: numpy, llama-cpp-python 0.3.36, and a folder with ``model.gguf`` (tensors in float32) and ``adapter.gguf`` that
``python -m tests.models.adapters.language.test_gguf_lora FOLDER`` has written. Usage: make_logits.py FOLDER OUT.npz
"""

import sys
from pathlib import Path

import numpy as np
from llama_cpp import Llama

TOKENS = (3, 14, 15, 9, 2, 6, 5, 35, 89, 79, 32, 38)

folder, made = Path(sys.argv[1]), {"tokens": np.array(TOKENS)}
for name, more in (("base", {}), ("adapted", {"lora_path": str(folder / "adapter.gguf")})):
    # Keys and values in float32, one thread: nothing is rounded but float32 sums.
    model = Llama(
        str(folder / "model.gguf"), n_ctx=32, logits_all=True, n_threads=1, type_k=0, type_v=0, verbose=False, **more
    )
    model.eval(TOKENS)
    made[name] = np.array(model.scores[: len(TOKENS)], np.float32)
np.savez_compressed(sys.argv[2], **made)
