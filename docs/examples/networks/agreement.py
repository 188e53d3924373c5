"""Agreement of the tile machine's integers with the float network, on MLPerf Tiny's networks.

``python docs/examples/networks/agreement.py [NAME ...] [--count 4000] [--precise T ...]``

The benchmark's own data are not shipped. Pictures are MNIST's digits in drawn colours, light and noise; MobileNet sees
a person in none of them, so it has drawn parts of matplotlib's photograph of one; sounds are drawn harmonics through
moving formants; machines hum in drawn bands. *none*: a code for each value; *auto*: samples
choose layers of two codes, within :data:`BUDGETS`; *all*: in all layers, ``--precise "*"``. Samples of a seed choose
codes and layers; those of another one judge, which chose nothing.
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.cbook import get_sample_data
from PIL import Image

from gradloom.graph.mathematics import FloatReading
from gradloom.graph.onnx.load import load_network
from gradloom.models.datasets import mnist_test
from gradloom.models.sound import Sound
from gradloom.preset import find_preset
from gradloom.sim.time.forecast import forecast
from gradloom.systems.forward import result_of
from gradloom.systems.networks.program.precision import fitted
from gradloom.systems.networks.program.prepared import Prepared, learning_of
from gradloom.systems.networks.task import answers

GOLDEN = Path(__file__).parents[3] / "tests" / "golden" / "networks"
BATCH = 20
#: Samples that choose codes and layers; seeds of those, and of the samples that judge.
KNOWN, CHOOSES, JUDGES = 200, 1, 2026
#: Hertz.
FORMANTS = ((250, 900), (800, 2400), (2000, 3500))

#: Samples that share tiles, and cycles that each may take.
BUDGETS = {"resnet8": (4, 25_000), "vww_mobilenet": (8, 60_000), "kws_dscnn": (2, 20_000), "ad01": (64, 600)}


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


def photographs(count: int, side: int, seed: int = 0) -> np.ndarray:
    """Pictures ``[count, 3, side, side]`` from 0 to 1: parts of a portrait, of which some have no face."""
    random, made = np.random.default_rng(seed), []
    whole = Image.open(get_sample_data("grace_hopper.jpg", asfileobj=False)).convert("RGB")
    for _ in range(count):
        size = int(random.uniform(side, min(whole.size)))
        left, top = (int(random.uniform(0, most - size + 1)) for most in whole.size)
        part = whole.resize((side, side), Image.Resampling.BILINEAR, (left, top, left + size, top + size))
        x = np.asarray(part, np.float64)[:, :: random.choice((-1, 1))] / 255
        x = x * random.uniform(0.6, 1.3, 3) + random.uniform(-0.15, 0.15) + random.normal(0, 0.02, x.shape)
        made.append(np.clip(x, 0, 1).transpose(2, 0, 1))
    return np.stack(made)


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


def machines(count: int, seed: int = 0) -> np.ndarray:
    """Five columns ``[count, 640]`` of the log-mel features of humming machines."""
    random, band, made = np.random.default_rng(seed), np.arange(128), []
    for _ in range(count):
        spectrum = random.uniform(-60, -20) + random.uniform(-0.3, 0) * band
        for _ in range(random.integers(2, 10)):
            away = (band - random.uniform(0, 128)) / random.uniform(1, 6)
            spectrum = spectrum + random.uniform(3, 25) * np.exp(-(away**2))
        made.append((spectrum + random.normal(0, 2, (5, 128))).reshape(-1))
    return np.array(made)


#: Samples of each network.
DATA = {
    "resnet8": lambda count, seed: 255 * pictures(count, 32, seed),
    "vww_mobilenet": lambda count, seed: photographs(count, 96, seed),
    "kws_dscnn": sounds,
    "ad01": machines,
}


def compare(name: str, count: int, asked: list[str]) -> None:
    """Prints a line a format."""
    x, known, file = DATA[name](count, JUDGES), DATA[name](KNOWN, CHOOSES), str(GOLDEN / f"mlperf_{name}.onnx")
    loss, (batch, budget) = "values" if name == "ad01" else "classes", BUDGETS[name]
    plain, config = Prepared(learning_of(load_network(file), loss, "none"), loss), find_preset("tile-kv260").config
    float_one = FloatReading(plain.learning.network, dtype=np.float32)
    want = np.concatenate([float_one.run(x[at : at + BATCH])[0] for at in range(0, len(x), BATCH)])
    want = want.reshape(len(x), -1)
    for each in asked:
        precise = {"none": None, "auto": f"auto:{budget}", "all": "*"}.get(each, each)
        prepared, chosen = fitted(plain, precise, known, config, batch, lambda *_: None)
        cycles = -(-forecast(prepared.forward(config, batch).program).total // batch)
        got = answers(result_of(prepared.integers()), prepared, x, batch).reshape(len(x), -1)
        off = np.sqrt(((got - want) ** 2).mean() / (want - want.mean(1, keepdims=True)).var())
        if loss == "values":
            errors = [((each - x) ** 2).mean() for each in (want, got)]
            told = f"{100 * (errors[1] / errors[0] - 1):+6.2f} % error"
        else:
            found = np.bincount(want.argmax(1))
            told = f"{100 * (got.argmax(1) == want.argmax(1)).mean():6.2f} % agree, of a class {found.max()} at most"
        layers = "" if chosen is None else f"; {chosen['layers']}"
        print(f"{name:14} {each:8} {told}, results {100 * off:5.2f} % off, {cycles:,} cycles{layers}", flush=True)


def main() -> None:
    """Compares the networks that are named."""
    parser = argparse.ArgumentParser(description="Agreement of the tile machine's integers with float networks.")
    parser.add_argument("names", nargs="*", default=list(DATA), help=", ".join(DATA))
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--precise", nargs="*", default=["none", "auto", "all"], help="layers of two codes")
    asked = parser.parse_args()
    for name in asked.names:
        compare(name, asked.count, asked.precise)


if __name__ == "__main__":
    main()
