"""Accuracy of the preset's workload over seeds 0 to 4.

``python docs/examples/quality/seeds.py``: integers and floating point.

The bit-exact reference, whose words the RTL equals, and float64 mathematics start from the same adapters and visit
the same images in the same order. About three minutes on two cores.
"""

import numpy as np

from gradloom.models.datasets import default_split
from gradloom.models.onnx_import import load_pretrained
from gradloom.rtl.formats.images import ACTIVATION, PARAMETER
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.systems.images.integers import fill_cache, fine_tune, logits
from gradloom.systems.images.mathematics import finetune_float
from gradloom.systems.images.program.lowering import lower
from gradloom.systems.images.program.program import Settings
from gradloom.systems.images.program.schedule import initial_adapters


def main() -> None:
    network = load_pretrained()
    lowered = lower(network, ImageConfig(), 4)
    rows = []
    for seed in range(5):
        data = default_split(seed, degrees=90)
        start = initial_adapters(network.taps, network.classes, 4, seed)
        a, b = [PARAMETER.encode(m) for m, _ in start], [PARAMETER.encode(m) for _, m in start]
        done = fine_tune(
            lowered,
            Settings(samples=len(data.x_train), seed=seed),
            fill_cache(lowered, network.pixel_map.words(data.x_train, ACTIVATION)),
            data.y_train,
            a,
            b,
        )
        test = fill_cache(lowered, network.pixel_map.words(data.x_test, ACTIVATION))
        after = (logits(lowered, test, done.a, done.b).argmax(axis=1) == data.y_test).mean()
        before = (test.logits.argmax(axis=1) == data.y_test).mean()
        exact = finetune_float(network, data, seed=seed).accuracy_after
        rows.append((before, after, exact))
        print(
            f"seed {seed}: before {before:.2%}, integers {after:.2%}, float {exact:.2%}, "
            f"difference {100 * (after - exact):+.2f} points",
            flush=True,
        )
    before, after, exact = np.mean(rows, axis=0)
    print(f"mean:   before {before:.2%}, integers {after:.2%}, float {exact:.2%}")


if __name__ == "__main__":
    main()
