"""Eight AdamW steps on SmolLM2-135M, compared with PEFT.

``python docs/examples/language/qlora_curve.py``

Needs the weights that ``make llm`` installs. ``--json`` prints figures; ``--adapter DIR`` keeps the result for PEFT;
``--bits 3`` and ``2`` take narrower codes than PEFT did; ``--engine reference`` computes the whole step, optimiser
included, in the machine's integers, and with ``--store int8`` or ``nf4`` keeps adapters and moments in such codes from
step to step.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from gradloom.models.adapters.lora import load_lora, save_lora
from gradloom.models.adapters.peft_files import key
from gradloom.models.files.language.checkpoint import find_weights, open_checkpoint
from gradloom.program.descent import AdamW as MachineAdamW
from gradloom.systems.text.program.packed import STORES
from gradloom.systems.text.quantized import Quantized
from gradloom.systems.text.reference.descent import build, fine_tune
from gradloom.systems.text.reference.optimizers import FloatAdamW
from gradloom.systems.text.run.frozen import Frozen
from gradloom.systems.text.run.trainer import Trainer

GOLDEN = Path(__file__).parents[3] / "tests" / "golden" / "qlora_smollm2"


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--adapter", type=Path)
    parser.add_argument("--bits", type=int, default=4, choices=(4, 3, 2))
    parser.add_argument("--engine", default="float", choices=("float", "reference"))
    parser.add_argument("--store", default="words", choices=tuple(STORES))
    options = parser.parse_args()
    if options.store != "words" and options.engine != "reference":
        parser.error("--store is of --engine reference")
    golden = json.loads((GOLDEN / "curve.json").read_text(encoding="utf-8"))
    checkpoint = Quantized(open_checkpoint(find_weights("smollm2-135m")), bits=options.bits)
    adapters = load_lora(GOLDEN / "init", checkpoint.model, rank=golden["r"])
    steps, norms = len(golden["loss"]), {}
    if options.engine == "float":
        llama = build(checkpoint)
        _, gradients = llama.gradients(golden["tokens"], adapters)
        norms = {
            key(name, which): float(np.linalg.norm(g))
            for name, pair in gradients.items()
            for which, g in zip("AB", pair)
        }
        losses = fine_tune(llama, [golden["tokens"]], adapters, FloatAdamW(lr=golden["lr"]), steps)
    else:
        frozen = Frozen.of(checkpoint)
        trainer = Trainer(
            frozen, adapters, range(checkpoint.model.layers), MachineAdamW(lr=golden["lr"]), wide=STORES[options.store]
        )
        losses = [trainer.step(golden["tokens"]).loss for _ in range(steps)]
        adapters = trainer.adapters
    if options.adapter is not None:
        save_lora(options.adapter, checkpoint.model, adapters, base="SmolLM2-135M-Instruct")
    if options.json:
        print(json.dumps({"loss": losses, "grad_norm_step0": norms}))
        return
    print("step  loss      PEFT      difference")
    for step, (loss, peft) in enumerate(zip(losses, golden["loss"])):
        print(f"{step:4}  {loss:.6f}  {peft:.6f}  {100 * (loss / peft - 1):+.5f} %")


if __name__ == "__main__":
    main()
