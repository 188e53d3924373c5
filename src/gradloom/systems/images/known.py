"""Models of images, by name or file."""

from pathlib import Path

from gradloom.models.files.onnx_file import has_recurrence
from gradloom.models.onnx_import import shipped_networks

__all__ = ["known"]


def known(model: str) -> str | None:
    """The file of a shipped network, or an ONNX file that recurs nowhere."""
    if model in (networks := shipped_networks()):
        return str(networks[model])
    return model if Path(model).suffix == ".onnx" and Path(model).is_file() and not has_recurrence(model) else None
