"""Pictures in folders, a folder a class."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .class_folders import PARTS, classes_in, files_in, in_turn, inside, parts_of
from .datasets import Dataset, dataset_of, load_images
from .files.archive import read_labelled

__all__ = ["load_dataset", "load_judged", "load_parts"]

#: Endings of pictures.
_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".pgm")
#: Modes of Pillow whose values are bytes of grey or colour, with or without transparency.
_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr")
_KINDS = {1: "L", 3: "RGB"}


def load_parts(path: Path, shape: Sequence[int], classes: int, parts: Sequence[str] = PARTS) -> dict[str, np.ndarray]:
    """``x_train``, ``y_train`` and the same of other ``parts`` of a user's images: an .npz file, or a folder.

    A folder has ``train/CLASS/PICTURE`` and ``test/CLASS/PICTURE``, PNG or JPEG. Classes are numbered in the order of
    their names. A picture becomes ``shape``, ``(channels, height, width)``: grey or colour, scaled by Pillow's bilinear
    filter; its transparency is left out. Any fault is a :class:`ValueError` in one line.
    """
    if not path.is_dir():
        return read_labelled(path, parts)
    found = {}
    for part, folders in parts_of(path, classes, parts).items():
        found[f"x_{part}"], found[f"y_{part}"] = _labelled(folders, shape)
    return found


def load_dataset(path: Path, shape: Sequence[int], classes: int) -> Dataset:
    """All parts of a user's images, see :func:`load_parts`."""
    return dataset_of(path, load_parts(path, shape, classes), classes)


def load_judged(path: Path, shape: Sequence[int], classes: int) -> tuple[np.ndarray, np.ndarray | None]:
    """``(images [n, c, h, w], labels or None)`` of a file or a folder.

    A folder has pictures without labels; or a folder a class; or ``test`` with these, as for a fine-tune.
    """
    if not path.is_dir():
        return load_images(path, classes=classes)
    folder = path / "test" if (path / "test").is_dir() else path
    if any(each.is_dir() for each in inside(folder)):
        return _labelled(classes_in(folder, classes), shape)
    return np.stack([_pixels(file, shape) for file in files_in(folder, _ENDINGS, "pictures")]), None


def _labelled(folders: Sequence[Path], shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    read = [(_pixels(file, shape), label) for file, label in in_turn(folders, _ENDINGS, "pictures")]
    return np.stack([pixels for pixels, _ in read]), np.array([label for _, label in read])


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
