"""Models of sequences, by file or folder."""

from pathlib import Path

from gradloom.models.files.onnx_file import has_recurrence

__all__ = ["known"]


def known(model: str) -> str | None:
    """An ONNX file with recurrent operators, or the folder of an import."""
    path = Path(model)
    imported = (path / "network.json").is_file() or (path.name == "network.json" and path.is_file())
    return model if imported or (path.suffix == ".onnx" and path.is_file() and has_recurrence(model)) else None
