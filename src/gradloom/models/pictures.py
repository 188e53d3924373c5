"""Pictures in folders, a folder a class."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gradloom.words import some

from .datasets import Dataset, load_images, load_npz

__all__ = ["load_dataset", "load_judged"]

#: Endings of pictures.
_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".pgm")
#: Modes of Pillow whose values are bytes of grey or colour, with or without transparency.
_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr")
_KINDS = {1: "L", 3: "RGB"}


def load_dataset(path: Path, shape: Sequence[int], classes: int) -> Dataset:
    """A user's images: an .npz file, or a folder of pictures.

    A folder has ``train/CLASS/PICTURE`` and ``test/CLASS/PICTURE``, PNG or JPEG. Classes are numbered in the order of
    their names. A picture becomes ``shape``, ``(channels, height, width)``: grey or colour, scaled by Pillow's bilinear
    filter; its transparency is left out. Any fault is a :class:`ValueError` in one line.
    """
    if not path.is_dir():
        return load_npz(path, classes=classes)
    names = {part: _classes(path / part, classes) for part in ("train", "test")}
    for part, other in (("train", "test"), ("test", "train")):
        for name in names[other]:
            if name not in names[part]:
                raise ValueError(
                    f"data={path}: class {name} is in {other} and not in {part}: both must have the same folders"
                )
    read = {part: _labelled([path / part / name for name in names[part]], shape) for part in names}
    (x_train, y_train), (x_test, y_test) = read["train"], read["test"]
    return Dataset(x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test, classes=classes)


def load_judged(path: Path, shape: Sequence[int], classes: int) -> tuple[np.ndarray, np.ndarray | None]:
    """``(images [n, c, h, w], labels or None)`` of a file or a folder.

    A folder has pictures without labels; or a folder a class; or ``test`` with these, as for a fine-tune.
    """
    if not path.is_dir():
        return load_images(path, classes=classes)
    folder = path / "test" if (path / "test").is_dir() else path
    if any(each.is_dir() for each in _inside(folder)):
        return _labelled([folder / name for name in _classes(folder, classes)], shape)
    return np.stack([_pixels(file, shape) for file in _pictures(folder)]), None


def _inside(folder: Path) -> list[Path]:
    """Files and folders but hidden ones, by name."""
    return sorted(each for each in folder.iterdir() if not each.name.startswith("."))


def _classes(folder: Path, count: int) -> list[str]:
    if not folder.is_dir():
        raise ValueError(f"data={folder.parent}: has no folder {folder.name}: must have train/CLASS and test/CLASS")
    inside = _inside(folder)
    for each in inside:
        if not each.is_dir():
            raise ValueError(f"data={each}: is a file among folders of classes: put it into one of them")
    if len(inside) != count:
        raise ValueError(f"data={folder}: has {some(len(inside), 'class folder')}, the network has {count} classes")
    return [each.name for each in inside]


def _pictures(folder: Path) -> list[Path]:
    files = _inside(folder)
    if not files:
        raise ValueError(f"data={folder}: has no pictures")
    for file in files:
        if file.suffix.lower() not in _ENDINGS:
            raise ValueError(f"data={file}: must end in {', '.join(_ENDINGS)}; take it out of the folder")
    return files


def _labelled(folders: Sequence[Path], shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of all classes in turn, so that each batch has several."""
    files = [[(file, label) for file in _pictures(folder)] for label, folder in enumerate(folders)]
    most = max(map(len, files))
    order = [each[n] for n in range(most) for each in files if n < len(each)]
    return np.stack([_pixels(file, shape) for file, _ in order]), np.array([label for _, label in order])


def _pixels(file: Path, shape: Sequence[int]) -> np.ndarray:
    """A picture as bytes ``[c, h, w]``."""
    from PIL import Image, ImageOps

    channels, height, width = shape
    if channels not in _KINDS:
        raise ValueError(f"data={file}: the network takes {channels} channels, a picture has 1 or 3: give an .npz")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Image.open(file) as picture:
                if picture.mode not in _MODES:
                    raise ValueError(f"has pixels of mode {picture.mode}, must have 8 bits a channel")
                turned = ImageOps.exif_transpose(picture).convert(_KINDS[channels])
        if turned.size != (width, height):
            turned = turned.resize((width, height), Image.Resampling.BILINEAR)
    except (OSError, ValueError, SyntaxError, Warning, Image.DecompressionBombError) as error:
        why = "is no picture that decodes" if isinstance(error, OSError | SyntaxError) else str(error)
        raise ValueError(f"data={file}: {why}") from None
    pixels = np.asarray(turned, np.uint8)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
