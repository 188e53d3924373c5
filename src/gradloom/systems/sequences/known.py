"""Models of sequences, by file or folder."""

from pathlib import Path

from gradloom.models.files.onnx_file import has_recurrence
from gradloom.models.sequences import spar_model

from .workload import SHIPPED

__all__ = ["known"]


def known(model: str) -> str | None:
    """An ONNX file with recurrent operators, or the folder of an import.

    ``spar-lstm`` is the file of a shipped network, that of the first fold.
    """
    if model == SHIPPED:
        return str(spar_model(0))
    path = Path(model)
    imported = (path / "network.json").is_file() or (path.name == "network.json" and path.is_file())
    return model if imported or (path.suffix == ".onnx" and path.is_file() and has_recurrence(model)) else None
