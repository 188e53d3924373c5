"""MLPerf Tiny's four networks, with the benchmark's weights, learn drawn data on the tile machine.

``python docs/examples/networks/tiny.py [NAME ...] [--method lora] [--json]``

Each row is ``gradloom finetune NETWORK --board kv260 --data D.npz --method lora`` by ``--engine reference`` and by
``--engine float``: adapters beside the last two layers, 64 samples, ten epochs, 64 others to judge by. The
benchmark's own data are not shipped. Pictures are those of ``agreement.py``: which digit, or whether it is above 4.
Sounds are harmonics in noise: which of twelve pitches. Machines hum; those that judge hum at another pitch, half of
them, and are anomalies.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from agreement import GOLDEN, pictures

import gradloom
from gradloom.cli.output import progress_bar, table
from gradloom.models.datasets import mnist_test
from gradloom.models.sound import Sound

COUNT, RATE, EPOCHS = 64, 1e-2, 10
#: Samples a second; decibels of a natural logarithm.
_HERTZ, _DECIBELS = 16000, 10 / np.log(10)


def digits() -> np.ndarray:
    """What :func:`agreement.pictures` shows."""
    y = mnist_test()[1]
    return y[np.random.default_rng(0).permutation(len(y))[: 2 * COUNT]]


def hum(pitch: float, seconds: float, random: np.random.Generator) -> np.ndarray:
    """Harmonics in noise."""
    t = np.arange(int(seconds * _HERTZ)) / _HERTZ
    made = sum(np.sin(2 * np.pi * (k * pitch * t + random.random())) / k for k in range(1, 9))
    return 0.2 * made * random.uniform(0.3, 1) + random.normal(0, 0.02, len(t))


def tones() -> tuple[np.ndarray, np.ndarray]:
    """Seconds of twelve pitches."""
    random = np.random.default_rng(1)
    y = random.integers(0, 12, 2 * COUNT)
    return np.stack([Sound().features(hum(90 * 1.15**each, 1, random)) for each in y])[:, None], y


def machines() -> tuple[np.ndarray, np.ndarray]:
    """Spectra of five frames; the last quarter hums at another pitch."""
    random, sound = np.random.default_rng(2), Sound(kind="logmel", window=64, hop=32, mels=128, high=8000)
    odd = np.arange(2 * COUNT) >= 3 * COUNT // 2
    found = [sound.features(hum(240 if each else 180, 0.2, random))[:5] for each in odd]
    return _DECIBELS * np.stack(found).reshape(len(odd), -1), odd.astype(np.int64)


#: Samples and targets of each network, and its loss.
DATA = {
    "resnet8": lambda: (255 * pictures(2 * COUNT, 32), digits(), "classes"),
    "vww_mobilenet": lambda: (pictures(2 * COUNT, 96), (digits() > 4).astype(np.int64), "classes"),
    "kws_dscnn": lambda: (*tones(), "classes"),
    "ad01": lambda: (*machines(), "values"),
}


def row(name: str, method: str, folder: Path) -> dict:
    """Figures of a network."""
    x, y, loss = DATA[name]()
    arrays = {"x_train": x[:COUNT], "x_test": x[COUNT:], "y_test": y[COUNT:]}
    if loss == "classes":
        arrays["y_train"] = y[:COUNT]
    np.savez(folder / "d.npz", **arrays)
    given = {"data": folder / "d.npz", "method": method, "loss": loss, "lr": RATE, "epochs": EPOCHS}
    made = {"network": name}
    for engine in ("reference", "float"):
        model = GOLDEN / f"mlperf_{name}.onnx"
        told = gradloom.finetune(str(model), board="kv260", engine=engine, output=folder / "run", **given)
        for what in ("loss", "accuracy", "auc"):
            if f"{what}_after" in told:
                made[f"{what}, {engine}"] = f"{told[f'{what}_before']:.3f} to {told[f'{what}_after']:.3f}"
        if engine == "reference":
            made |= {"cycles": told["forecast"]["total"], "clipped": told["saturated"]}
    return made


def main() -> None:
    """Prints a table a network."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(DATA), help=", ".join(DATA))
    parser.add_argument("--method", default="lora")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, progress_bar(asked.json) as progress:
        for name in asked.names:
            if progress:
                progress(0, 0, name)
            told = row(name, asked.method, Path(folder))
            table([told], tuple(told), asked.json)


if __name__ == "__main__":
    main()
