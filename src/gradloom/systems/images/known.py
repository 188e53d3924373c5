"""Models of images, by name or file."""

from pathlib import Path

from gradloom.models.files.onnx_file import has_recurrence
from gradloom.models.onnx_import import load_onnx, shipped_networks

__all__ = ["known"]


def known(model: str) -> str | None:
    """The file of a shipped network, or an ONNX file of a chain of layers that the machine for images takes.

    One that nobody takes is this kind's, too: its refusal says why.
    """
    if model in (networks := shipped_networks()):
        return str(networks[model])
    if Path(model).suffix != ".onnx" or not Path(model).is_file() or has_recurrence(model):
        return None
    try:
        load_onnx(model)
    except ValueError:
        return None if _is_network(model) else model
    return model


def _is_network(model: str) -> bool:
    """Whether it is a network of another kind."""
    from gradloom.graph.onnx.reader import load_network

    try:
        load_network(model)
    except ValueError:
        return False
    return True
