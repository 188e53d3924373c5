"""Held-out loss of SmolLM2-135M after signed updates of few bits.

``python docs/examples/quality/update_losses.py [--json] [--learnt N] [--judged N]``

A fine-tune of rank 8 on q and v of all 30 layers is signed in full in 8 bits and installed. It then learns from further
windows; this change is signed in 8, 4, 3 and 2 bits against what is installed. The held-out loss is that of the frozen
model, of what is installed, of the trained adapter in float32, and of each package's content.

Windows have 64 tokens, AdamW has finetune's rate, each window is learnt once. Learnt and held-out windows are of
``texts/judged.txt``, as ``quality_text.py`` parts it. Linears have the values of their NF4 codes, all else is float32.
Needs the weights (``make llm``) and the extra ``delivery``.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
from quality_text import MODEL, TEXTS, parts

from gradloom.cli.output import progress_bar
from gradloom.delivery.content import Content
from gradloom.delivery.installed import read_content
from gradloom.delivery.keys import make_keys, read_signer
from gradloom.delivery.package import make_package
from gradloom.models.adapters.lora import Adapter, fresh_lora, load_lora, save_lora
from gradloom.models.adapters.peft_files import write_peft
from gradloom.models.files.language.checkpoint import find_weights, open_checkpoint
from gradloom.models.files.language.tokenizer import open_tokenizer
from gradloom.systems.text.quantized import Quantized
from gradloom.systems.text.reference.descent import build_quickest, fine_tune
from gradloom.systems.text.reference.optimizers import FloatAdamW

#: Bits of an update.
BITS = (8, 4, 3, 2)


def main() -> None:
    """Prints a row for each state of the adapter."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--learnt", type=int, default=24, help="windows of each of the two fine-tunes")
    parser.add_argument("--judged", type=int, default=24, help="held-out windows")
    asked = parser.parse_args()
    weights = find_weights(MODEL)
    checkpoint = Quantized(open_checkpoint(weights))
    model, rows = checkpoint.model, []
    learnt, held = parts(open_tokenizer(weights).encode((TEXTS / "judged.txt").read_text(encoding="utf-8")))
    order = np.random.default_rng(0).permutation(len(learnt))
    texts = [learnt[each] for each in order[: 2 * asked.learnt]]
    with tempfile.TemporaryDirectory() as name, progress_bar(asked.json) as tell:
        folder = Path(name)
        make_keys(folder / "key")
        signer = read_signer(folder / "key")
        llama, _ = build_quickest(checkpoint, progress=tell)

        def of(content: Content) -> dict[str, Adapter]:
            """The adapter that a receiver reads."""
            write_peft(folder / "read", content.tensors, content.config)
            return load_lora(folder / "read", model)

        def judged(what: str, adapters: dict[str, Adapter], size: int | None = None) -> None:
            losses = []
            for number, window in enumerate(held[: asked.judged]):
                if tell:
                    tell(number, asked.judged, f"judging: {what}")
                losses.append(llama.loss(window, adapters))
            rows.append({"adapter": what, "bytes": size, "loss": float(np.mean(losses))})

        def trained(adapters: dict[str, Adapter], windows: list[list[int]]) -> Content:
            fine_tune(llama, windows, adapters, FloatAdamW(lr=1e-3), len(windows), tell)
            save_lora(folder / "run", model, adapters)
            return read_content(folder / "run")

        judged("none", {})
        first = trained(fresh_lora(model, rank=8), texts[: asked.learnt])
        package, parent = make_package(first, signer, base=bytes(32), version=1, bits=8)
        judged("installed, full, 8 bits", of(parent), len(package))
        second = trained(of(parent), texts[asked.learnt :])
        judged("trained further, float32", of(second))
        for bits in BITS:
            package, made = make_package(second, signer, base=bytes(32), version=2, bits=bits, parent=parent)
            judged(f"change in {bits} bits", of(made), len(package))
    wanted = rows[2]["loss"]
    for row in rows:
        row["beyond trained, %"] = round(100 * (row["loss"] / wanted - 1), 3)
    if asked.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        size = "" if row["bytes"] is None else f"{row['bytes']:,}"
        print(f"{row['adapter']:26} {size:>9} {row['loss']:9.4f} {row['beyond trained, %']:+8.3f} %")


if __name__ == "__main__":
    main()
