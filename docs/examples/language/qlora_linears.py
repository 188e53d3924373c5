"""Errors of the integers in every linear layer of SmolLM2-135M.

``python docs/examples/language/qlora_linears.py``

The float model runs forward and backward on 64 tokens of a text. Each linear's own input and output gradient then go
through the integer reference and through float64 with the same NF4 weights. Adapters are those of the golden curve
where it has them, else random; B, which starts at zero, is drawn at 1e-3, the size of an AdamW step. Needs the weights
that ``make llm`` installs. ``--json`` prints figures; ``--layers N`` takes the first N layers only;
``--spare 2`` leaves two bits of every activation and gradient unused, as where the last step chooses the exponents.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np

from gradloom.models.adapters.lora import Adapter, fresh_lora, load_lora
from gradloom.models.files.language.checkpoint import find_weights, open_checkpoint
from gradloom.models.language import PROJECTIONS
from gradloom.systems.text.quantized import Quantized
from gradloom.systems.text.reference.llama import FloatLinears, Llama
from gradloom.systems.text.run.linear import LinearStart, choose_exponents, errors, mathematics, reference_step, values

GOLDEN = Path(__file__).parents[3] / "tests" / "golden" / "qlora_smollm2"
#: Of B. The step of an update that is computed along, and not looked at.
SIZE, RATE = 1e-3, 1e-4
RESULTS = {"y": "Y", "dx": "dX", "ga": "dA", "gb": "dB"}


class Measured(FloatLinears):
    """Float linears that note the integers' errors.

    They are errors of the tensors that pass through them backward.
    """

    def __init__(self, checkpoint, names, spare):
        super().__init__({name: checkpoint.tensor(f"{name}.weight") for name in names})
        self.checkpoint = checkpoint
        self.spare, self.errors, self.saturated = spare, {}, 0

    def backward(self, name, dy, x, adapter):
        """See :class:`Linears`."""
        held = self.checkpoint.linear(name)
        layer = LinearStart(
            codes=held.codes,
            scale_codes=held.scale_codes.reshape(held.codes.shape[0], -1),
            absmax2=held.absmax2,
            offset=held.offset,
            a=adapter.a,
            b=adapter.scale * adapter.b,
            x=x,
            dy=dy,
        )
        exact = mathematics(layer, RATE)
        exponents = choose_exponents(layer, exact, spare=self.spare)
        found = reference_step(layer, exponents, RATE)
        seen = errors(values(found, exponents), exact)
        self.errors[name] = {RESULTS[key]: seen[key] for key in RESULTS}
        self.saturated += found.saturated
        return super().backward(name, dy, x, adapter)


def adapters_of(model, layers):
    """Golden A where there is one, random A elsewhere, and a small B."""
    random = np.random.default_rng(0)
    golden = load_lora(GOLDEN / "init", model)
    fresh = fresh_lora(model, rank=8, targets=PROJECTIONS, layers=range(layers))
    return {
        name: Adapter(golden.get(name, each).a, random.normal(0, SIZE, each.b.shape).astype(np.float32), each.scale)
        for name, each in fresh.items()
    }


def main():
    """Measures and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--spare", type=int, default=0)
    options = parser.parse_args()
    checkpoint = Quantized(open_checkpoint(find_weights("smollm2-135m")))
    layers = checkpoint.model.layers if options.layers is None else options.layers
    measured = Measured(
        checkpoint, [each.name for each in checkpoint.model.linears[: layers * len(PROJECTIONS)]], options.spare
    )
    llama = Llama(checkpoint.model, checkpoint.tensor, layers=layers, linears=measured)
    tokens = json.loads((GOLDEN / "curve.json").read_text(encoding="utf-8"))["tokens"]
    llama.gradients(tokens, adapters_of(checkpoint.model, layers))
    kinds = defaultdict(lambda: defaultdict(list))
    for name, seen in measured.errors.items():
        for result, error in seen.items():
            kinds[name.rsplit(".", 1)[-1]][result].append(error)
            kinds["all"][result].append(error)
    table = {
        kind: {
            result: {"worst": max(found), "median": float(np.median(found))} for result, found in kinds[kind].items()
        }
        for kind in (*PROJECTIONS, "all")
    }
    if options.json:
        print(
            json.dumps(
                {
                    "linears": len(measured.errors),
                    "tokens": len(tokens),
                    "saturated": measured.saturated,
                    "kinds": table,
                    "errors": measured.errors,
                }
            )
        )
        return
    print(f"{len(measured.errors)} linears, {len(tokens)} tokens; relative RMS error in %: worst (median)")
    print(f"{'':10}" + "".join(f"{result:>18}" for result in RESULTS.values()))
    for kind, row in table.items():
        print(
            f"{kind:10}" + "".join(f"{100 * each['worst']:10.4f} ({100 * each['median']:.4f})" for each in row.values())
        )
    print(f"words clipped: {measured.saturated}")


if __name__ == "__main__":
    main()
