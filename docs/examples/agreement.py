"""Top-1 agreement of the tile machine's integers with the float network, on MLPerf Tiny's networks.

``python docs/examples/agreement.py [NAME ...] [--count 400]``

The benchmark's own data are not shipped. Pictures are MNIST's digits in drawn colours, light and noise; sounds are
drawn harmonics through moving formants. Nothing is chosen on them. *machine*: the integer reference of ``tile-kv260``.
The others are emulations: *rows*, a power of two a row of a tile; *ends*, codes of 16 bits in the first and the last
layer; *wide*, in all layers.
"""

import argparse
from pathlib import Path

import numpy as np

from gradloom.graph.integers import IntegerReading
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.onnx.reader import load_network
from gradloom.graph.operations import Convolution, Linear
from gradloom.graph.training import before_loss
from gradloom.models.datasets import mnist_test
from gradloom.models.sound import Sound
from gradloom.systems.networks.program.prepared import Prepared, learning_of
from gradloom.systems.networks.task import answers

GOLDEN = Path(__file__).parents[2] / "tests" / "golden" / "networks"
BATCH = 20
#: Hertz.
FORMANTS = ((250, 900), (800, 2400), (2000, 3500))


def pictures(count: int, side: int, seed: int = 0) -> np.ndarray:
    """Pictures ``[count, 3, side, side]`` from 0 to 1."""
    random = np.random.default_rng(seed)
    found = mnist_test()[0]
    x = found.reshape(len(found), 28, 28)[random.permutation(len(found))[:count]].astype(np.float64)
    at = np.clip((np.arange(side) + 0.5) * 28 / side - 0.5, 0, 27)
    low = np.minimum(at.astype(int), 26)
    part = at - low
    x = x[:, low] * (1 - part)[:, None] + x[:, low + 1] * part[:, None]
    x = (x[:, :, low] * (1 - part) + x[:, :, low + 1] * part)[:, None]
    x /= x.max()
    front, behind = random.uniform(0.1, 1, (count, 3, 1, 1)), random.uniform(0, 1, (count, 3, 1, 1))
    slope = np.linspace(-1, 1, side)
    down, along = random.uniform(-0.4, 0.4, (2, count, 1, 1, 1))
    made = (x * front + (1 - x) * behind) * (1 + down * slope[:, None] + along * slope)
    return np.clip(made + random.normal(0, 0.03, made.shape), 0, 1)


def sounds(count: int, seed: int = 0) -> np.ndarray:
    """Features ``[count, 1, 49, 10]`` of seconds of sound."""
    random, t, made = np.random.default_rng(seed), np.arange(16000) / 16000, []
    for _ in range(count):
        pitch = random.uniform(80, 300) * (1 + random.uniform(-0.3, 0.3) * t)
        phase, y = 2 * np.pi * np.cumsum(pitch) / 16000, np.zeros(16000)
        formants = [
            (random.uniform(*span, 2), random.uniform(60, 200)) for span in ((250, 900), (800, 2400), (2000, 3500))
        ]
        for k in range(1, 25):
            gain = sum(1 / (1 + ((k * pitch - (a + (b - a) * t)) / width) ** 2) for (a, b), width in formants)
            y += gain * np.sin(k * phase) / np.sqrt(k)
        centre, width = random.uniform(0.2, 0.8), random.uniform(0.05, 0.3)
        y *= np.exp(-(((t - centre) / width) ** 2))
        y *= random.uniform(0.05, 0.9) / np.abs(y).max()
        made.append(Sound().features(y + random.normal(0, 10.0 ** random.uniform(-4, -2), 16000)))
    return np.stack(made)[:, None]


#: Samples of each network.
DATA = {
    "resnet8": lambda count: 255 * pictures(count, 32),
    "vww_mobilenet": lambda count: pictures(count, 96),
    "kws_dscnn": sounds,
}


def compare(name: str, count: int) -> None:
    """Prints a line a format."""
    x, file = DATA[name](count), str(GOLDEN / f"mlperf_{name}.onnx")
    prepared = Prepared(learning_of(load_network(file), "classes", "none"), "classes")
    network = before_loss(load_network(file), "classes")
    layers = [each.layer for each in network.operations if isinstance(each, Convolution | Linear)]
    ends, every = frozenset((layers[0], layers[-1])), frozenset(layers)

    def of(reading: FloatReading) -> np.ndarray:
        return np.concatenate([reading.run(x[at : at + BATCH])[0] for at in range(0, len(x), BATCH)])

    want = of(FloatReading(network, dtype=np.float32)).reshape(len(x), -1)
    formats = {
        "machine": lambda: answers(prepared.integers(), prepared, x, BATCH),
        "rows": lambda: of(IntegerReading(network, by_rows=True)),
        "ends": lambda: of(IntegerReading(network, wide=ends)),
        "wide": lambda: of(IntegerReading(network, wide=every)),
    }
    for label, made in formats.items():
        got = made().reshape(len(x), -1)
        agree = (got.argmax(1) == want.argmax(1)).mean()
        error = np.sqrt(((got - want) ** 2).mean() / (want - want.mean(1, keepdims=True)).var())
        print(f"{name:14} {label:8} {100 * agree:6.2f} % agree, logits {100 * error:5.2f} % off", flush=True)


def main() -> None:
    """Compares the networks that are named."""
    parser = argparse.ArgumentParser(description="Agreement of the tile machine's integers with float networks.")
    parser.add_argument("names", nargs="*", default=list(DATA), help=", ".join(DATA))
    parser.add_argument("--count", type=int, default=400)
    asked = parser.parse_args()
    for name in asked.names:
        compare(name, asked.count)


if __name__ == "__main__":
    main()
