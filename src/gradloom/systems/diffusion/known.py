"""Models of pictures, by name, file or folder."""

from pathlib import Path

from gradloom.models.files.unet import MODELS, is_unet

__all__ = ["known"]


def known(model: str) -> str | None:
    """A UNet of diffusers, whose shapes are planned.

    A fine-tune has the shipped one, which its preset names.
    """
    return model if model in MODELS or (Path(model).exists() and is_unet(model)) else None
