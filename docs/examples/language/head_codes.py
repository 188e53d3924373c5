"""Quality of a head in NF4 beside one in float16.

``python docs/examples/language/head_codes.py [TEXT ...] [--windows N] [--json]``

Windows of 64 tokens of each text, SmolLM2-135M in float32 with the NF4 values of its linears: the mean loss of a token,
its perplexity, and how many of the likeliest tokens are those of float16. *nearest* has the nearest code of each
weight, *nf* the codes of ``systems/text/coded_head.py``, whose constants were chosen on ``rates.txt``. It needs
``make llm``.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.models.files.language.checkpoint import find_weights, open_checkpoint
from gradloom.models.files.language.tokenizer import open_tokenizer
from gradloom.models.pack import quantize_linear
from gradloom.systems.text.coded_head import coded_head
from gradloom.systems.text.quantized import Quantized
from gradloom.systems.text.reference.llama import Llama

TEXTS = Path(__file__).parents[1] / "quality" / "texts"
TOKENS = 64


def main() -> None:
    """Prints a line a text."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", nargs="*", type=Path, default=[TEXTS / "judged.txt"])
    parser.add_argument("--windows", type=int, default=32, help="windows of a text at most, evenly spread")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    checkpoint = open_checkpoint(find_weights("smollm2-135m"))
    tokenizer = open_tokenizer(checkpoint.path, model_size=checkpoint.model.vocab)
    llama = Llama(checkpoint.model, Quantized(checkpoint).tensor)
    nearest, coded = quantize_linear(llama.head), coded_head(llama)
    heads = {"float16": llama.head, "nearest": nearest.weight(), "nf": coded.weight()}
    said = {}
    for text in asked.texts:
        windows = np.asarray(tokenizer.encode(text.read_text(encoding="utf-8")))
        windows = windows[: len(windows) // TOKENS * TOKENS].reshape(-1, TOKENS)
        windows = windows[np.unique(np.linspace(0, len(windows) - 1, asked.windows).astype(int))]
        said[text.name] = compared(llama, heads, windows)
    print(json.dumps(said, indent=2) if asked.json else "\n".join(f"{name}: {each}" for name, each in said.items()))


def compared(llama: Llama, heads: dict[str, np.ndarray], windows: np.ndarray) -> dict[str, Any]:
    """Losses by head, and the share of equal likeliest tokens."""
    losses: dict[str, list[float]] = {name: [] for name in heads}
    likeliest: dict[str, list[int]] = {name: [] for name in heads}
    for window in windows:
        rows = llama.last_normed(window)[:-1]
        for name, head in heads.items():
            logits = (rows @ head.T).astype(np.float64)
            high = logits.max(axis=1)
            total = high + np.log(np.exp(logits - high[:, None]).sum(axis=1))
            losses[name] += (total - logits[np.arange(TOKENS - 1), window[1:]]).tolist()
            likeliest[name] += logits.argmax(axis=1).tolist()
    means = {name: float(np.mean(each)) for name, each in losses.items()}
    return {
        "tokens": len(likeliest["nf"]),
        "loss": {name: round(each, 4) for name, each in means.items()},
        "perplexity": {name: round(float(np.exp(each)), 2) for name, each in means.items()},
        "equal_percent": {
            name: round(100 * float(np.mean(np.equal(each, likeliest["float16"]))), 1)
            for name, each in likeliest.items()
        },
    }


if __name__ == "__main__":
    main()
