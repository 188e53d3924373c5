"""Sizes of signed updates of SmolLM2-135M's adapters, and their errors.

``python docs/examples/hardware/update_sizes.py [--json]``

The shape is that of rank 8 on q and v of 30 layers. Values are gaussian, in the sizes of a short fine-tune: errors are
shares of what is coded, of the adapter in full or of its change, as root mean squares. Needs the extra ``delivery``.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from gradloom.delivery.content import Content
from gradloom.delivery.keys import make_keys, read_signer
from gradloom.delivery.package import make_package

HIDDEN, KEYS, LAYERS, RANK = 576, 192, 30, 8


def adapter(seed: int) -> Content:
    """A of ±1/√inputs' deviation, B of a short fine-tune's."""
    random, tensors = np.random.default_rng(seed), {}
    for layer in range(LAYERS):
        for projection, outputs in (("q_proj", HIDDEN), ("v_proj", KEYS)):
            name = f"base_model.model.model.layers.{layer}.self_attn.{projection}.lora_"
            tensors[f"{name}A.weight"] = random.normal(0, 0.024, (RANK, HIDDEN)).astype(np.float32)
            tensors[f"{name}B.weight"] = random.normal(0, 3e-3, (outputs, RANK)).astype(np.float32)
    return Content({"peft_type": "LORA", "r": RANK, "lora_alpha": 16}, tensors)


def share(wanted: Content, got: Content, of: Content | None) -> float:
    """RMS of the error as a share of what is coded, in per cent."""
    error = sum(float(((wanted.tensors[name] - got.tensors[name]) ** 2).sum()) for name in wanted.tensors)
    coded = {name: array if of is None else array - of.tensors[name] for name, array in wanted.tensors.items()}
    return 100 * (error / sum(float((each**2).sum()) for each in coded.values())) ** 0.5


def main() -> None:
    """Prints a row for each kind and number of bits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    with tempfile.TemporaryDirectory() as folder:
        make_keys(Path(folder) / "key")
        signer = read_signer(Path(folder) / "key")
    first, change = adapter(0), adapter(1)
    second = first.map(lambda name, array: array + np.float32(0.1) * change.tensors[name])
    sizes, errors = {}, {}
    for kind, parent, several in (("full", None, (32, 8, 4)), ("delta", first, (8, 4, 3, 2))):
        for bits in several:
            package, result = make_package(second, signer, base=bytes(32), version=2, bits=bits, parent=parent)
            sizes[f"{kind} {bits}"] = len(package)
            errors[f"{kind} {bits}"] = round(share(second, result, parent), 2)
    if as_json:
        print(json.dumps({"bytes": sizes, "error": errors}, indent=2))
        return
    for name, size in sizes.items():
        print(f"{name:8} {size:>9,} bytes  {errors[name]:6.2f} % error")


if __name__ == "__main__":
    main()
