"""The shipped diffusion model of digits, its prompts and images."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from .datasets import DATA
from .files.tensors import as_float32, open_safetensors
from .files.unet import UNet, find_unet

__all__ = [
    "ANY",
    "SIDE",
    "STYLES",
    "Prompts",
    "check_sizes",
    "latents",
    "pictures",
    "plain",
    "shipped_prompts",
    "shipped_unet",
]

#: Pixels of a side of a digit in MNIST, and of the picture that a latent is.
DIGIT, SIDE = 28, 16
#: Word of a prompt that stands for an image's digit.
ANY = "*"
STYLES = ("rot90", "invert", "shear")
NAME = "digits_unet"


@dataclass(frozen=True, eq=False)
class Prompts:
    """Words of prompts as the model reads them.

    ``vectors [words, features]`` and ``places [tokens, features]`` are added. The first word fills a prompt's rest.
    """

    words: tuple[str, ...]
    vectors: np.ndarray
    places: np.ndarray

    def __call__(self, text: str) -> np.ndarray:
        """A prompt's ``[tokens, features]``.

        :class:`ValueError` where it is too long, or has a word that the model does not know.
        """
        found = text.split()
        if len(found) > len(self.places):
            raise ValueError(f"prompt={text!r}: has {len(found)} words, must have at most {len(self.places)}")
        if not found:
            raise ValueError(f"prompt={text!r}: must have a word")
        for word in found:
            if word not in self.words:
                raise ValueError(f"prompt={text!r}: word {word!r} must be one of {' '.join(self.words[1:])}")
        numbers = [self.words.index(word) for word in found] + [0] * (len(self.places) - len(found))
        return self.vectors[numbers] + self.places

    def filled(self, text: str, digit: int) -> np.ndarray:
        """The prompt with a digit in place of :data:`ANY`."""
        return self(" ".join(str(digit) if word == ANY else word for word in text.split()))


@cache
def shipped_unet() -> tuple[UNet, dict[str, np.ndarray]]:
    """Configuration and weights, which the file has in float16."""
    stored = open_safetensors(DATA / f"{NAME}.safetensors")
    return find_unet(DATA / f"{NAME}.json"), {
        name: as_float32(each.read(), each.dtype) for name, each in stored.items()
    }


@cache
def shipped_prompts() -> Prompts:
    """Words that the shipped model knows; ``sks`` was never trained."""
    with np.load(DATA / "digits_words.npz") as file:
        return Prompts(tuple(file["words"].tolist()), file["vectors"], file["places"])


def latents(images: np.ndarray, style: str | None = None) -> np.ndarray:
    """Latents ``[n, 64, 4]`` of bytes ``[n, 28, 28]``.

    A digit is padded to 32 by 32, changed to the style, averaged to 16 by 16 and scaled to -1 to 1. Each square of 2 by
    2 pixels becomes 4 channels.
    """
    wide = np.pad(images, ((0, 0), (2, 2), (2, 2)))
    real = _styled(wide, style).astype(np.float32) / 255
    small = real.reshape(-1, SIDE, 2, SIDE, 2).mean((2, 4)) * 2 - 1
    half = SIDE // 2
    return small.reshape(-1, half, 2, half, 2).transpose(0, 1, 3, 2, 4).reshape(-1, half * half, 4)


def pictures(values: np.ndarray) -> np.ndarray:
    """Pictures ``[n, 16, 16]`` of latents, 0 to 1."""
    half = SIDE // 2
    turned = values.reshape(-1, half, half, 2, 2).transpose(0, 1, 3, 2, 4).reshape(-1, SIDE, SIDE)
    return np.clip((turned + 1) / 2, 0, 1)


def plain(images: np.ndarray, style: str | None) -> np.ndarray:
    """Pictures 0 to 1 turned back from a style."""
    match style:
        case "rot90":
            return np.rot90(images, -1, axes=(1, 2))
        case "invert":
            return 1 - images
        case "shear":
            return _sheared(images, -1)
    return images


def _styled(images: np.ndarray, style: str | None) -> np.ndarray:
    match style:
        case None:
            return images
        case "rot90":
            return np.rot90(images, axes=(1, 2))
        case "invert":
            return 255 - images
        case "shear":
            return _sheared(images, 1)
    raise ValueError(f"style={style}: must be one of {', '.join(STYLES)}")


def _sheared(images: np.ndarray, way: int) -> np.ndarray:
    """Each row moved by half its distance from the middle; zeros enter."""
    side = images.shape[1]
    made = np.zeros_like(images)
    for row in range(side):
        by = way * ((side // 2 - row) // 2)
        if by >= 0:
            made[:, row, by:] = images[:, row, : side - by]
        else:
            made[:, row, :by] = images[:, row, -by:]
    return made


def check_sizes(name: str, images: np.ndarray) -> np.ndarray:
    """Bytes ``[n, 28, 28]`` of a user's images, or :class:`ValueError`."""
    if images.shape[1:] != (1, DIGIT, DIGIT):
        raise ValueError(
            f"{name} has images of {'x'.join(map(str, images.shape[1:]))}: must be 1x{DIGIT}x{DIGIT}, as the model's"
        )
    return images[:, 0]
