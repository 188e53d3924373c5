"""Models that are networks, by file."""

from pathlib import Path

from gradloom.models.files.onnx_file import has_recurrence

__all__ = ["known"]


def known(model: str) -> str | None:
    """An ONNX file that recurs nowhere."""
    return model if Path(model).suffix == ".onnx" and Path(model).is_file() and not has_recurrence(model) else None
