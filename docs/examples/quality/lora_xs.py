"""Held-out loss and size of LoRA-XS beside LoRA on SmolLM2-135M.

``python docs/examples/quality/lora_xs.py [--json] [--seeds N]``

Rank 8 on q and v of all 30 layers; 24 windows of 64 tokens, each learnt once, AdamW, one window an update. The seed
draws the windows, and LoRA's A. A method's rate is the best of five on ``texts/rates.txt``; losses are of 24 held-out
windows of ``texts/judged.txt``. Linears have the values of their NF4 codes, all else is float32. Sizes are of signed
packages. Needs the weights (``make llm``) and the extra ``delivery``.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from quality_text import CHOOSING, MODEL, TEXTS, WINDOWS, parts

from gradloom.cli.output import progress_bar
from gradloom.delivery.installed import read_content
from gradloom.delivery.keys import make_keys, read_signer
from gradloom.delivery.package import make_package
from gradloom.models.adapters.language.lora_xs import fresh_cores, save_cores
from gradloom.models.adapters.lora import LearntModule, fresh_lora, save_lora
from gradloom.models.files.language.checkpoint import find_weights, open_checkpoint
from gradloom.models.files.language.tokenizer import open_tokenizer
from gradloom.systems.text.quantized import Quantized
from gradloom.systems.text.reference.descent import build_quickest, fine_tune
from gradloom.systems.text.reference.optimizers import FloatAdamW

RATES = {"lora": (3e-4, 1e-3, 3e-3), "lora-xs": (1e-3, 3e-3, 1e-2, 3e-2)}
RANK = 8


def main() -> None:
    """Prints a row for each method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each method that are judged")
    asked = parser.parse_args()
    weights = find_weights(MODEL)
    checkpoint = Quantized(open_checkpoint(weights))
    model, encode = checkpoint.model, open_tokenizer(weights).encode
    texts = {name: parts(encode((TEXTS / f"{name}.txt").read_text(encoding="utf-8"))) for name in ("rates", "judged")}
    with progress_bar(asked.json) as tell:
        cores = fresh_cores(model, checkpoint.tensor, rank=RANK, tell=tell)
        llama, _ = build_quickest(checkpoint, progress=tell)

        def judged(part: str, adapters: Mapping[str, LearntModule]) -> float:
            return float(np.mean([llama.loss(window, adapters) for window in texts[part][1]]))

        def trained(method: str, part: str, rate: float, seed: int) -> dict[str, LearntModule]:
            learnt = texts[part][0]
            windows = [learnt[each] for each in np.random.default_rng(seed).permutation(len(learnt))[:WINDOWS]]
            made: dict[str, LearntModule] = dict(fresh_lora(model, rank=RANK, seed=seed))
            if method == "lora-xs":
                made = {name: each.taking({"r": each.r.copy()}) for name, each in cores.items()}
            fine_tune(llama, windows, made, FloatAdamW(lr=rate), len(windows), tell)
            return made

        rows = []
        for method, rates in RATES.items():
            tried = {rate: judged("rates", trained(method, "rates", rate, CHOOSING)) for rate in rates}
            rate = min(tried, key=lambda each: tried[each])
            found = [trained(method, "judged", rate, seed) for seed in range(asked.seeds)]
            values = sum(part.size for each in found[0].values() for part in each.parts.values())
            with tempfile.TemporaryDirectory() as folder:
                (save_cores if method == "lora-xs" else save_lora)(folder, model, found[0])  # type: ignore[arg-type]
                make_keys(Path(folder) / "key")
                content, signer = read_content(folder), read_signer(Path(folder) / "key")
                sizes = {
                    bits: len(make_package(content, signer, base=bytes(32), version=1, bits=bits)[0])
                    for bits in (32, 8, 4)
                }
            rows.append(
                {
                    "method": method,
                    "rate": rate,
                    "rates": tried,
                    "values": values,
                    "package": sizes,
                    "after": [judged("judged", each) for each in found],
                }
            )
        before = judged("judged", {})
    if asked.json:
        print(json.dumps({"before": before, "rows": rows}, indent=2))
        return
    print(f"before: {before:.4f}")
    for row in rows:
        after = ", ".join(f"{each:.4f}" for each in row["after"])
        sizes = ", ".join(f"{size:,} bytes in {bits} bits" for bits, size in row["package"].items())
        print(f"{row['method']:8} rate {row['rate']:g}: {after}; {row['values']:,} values, {sizes}")


if __name__ == "__main__":
    main()
