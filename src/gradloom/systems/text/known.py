"""Models of text, by name, file or folder."""

from pathlib import Path

from gradloom.models.files.language.huggingface import CONFIG
from gradloom.models.files.unet import is_unet
from gradloom.models.language import BUILT_IN

__all__ = ["known"]


def known(model: str) -> str | None:
    """A name, a GGUF or safetensors file, or a folder with such files.

    A folder with a config.json is one, too: the reader says what it lacks.
    """
    path = Path(model)
    if path.exists() and is_unet(path):
        return None
    files = [path] if path.is_file() else list(path.glob("*")) if path.is_dir() else []
    holds = any(file.suffix in (".gguf", ".safetensors") or file.name == CONFIG for file in files)
    return model if model in BUILT_IN or holds else None
