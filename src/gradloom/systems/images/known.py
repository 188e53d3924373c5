"""Models of images, by name or file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.json_file import read_json
from gradloom.models.files.archive import read_npz
from gradloom.models.files.onnx_file import has_recurrence
from gradloom.models.onnx_import import load_onnx, shipped_networks
from gradloom.preset import Preset

from .program.lowering import lower

__all__ = ["known", "unfit"]


def known(model: str) -> str | None:
    """The file of a shipped network, or an ONNX file of a chain of layers that the machine for images takes."""
    if model in (networks := shipped_networks()):
        return str(networks[model])
    if Path(model).suffix != ".onnx" or not Path(model).is_file() or has_recurrence(model):
        return None
    try:
        load_onnx(model)
    except ValueError:
        return None
    return model


def unfit(preset: Preset, model: str, given: Mapping[str, Any]) -> str | None:
    """Why a preset cannot work with a model that is known, or with the data or adapter given; None where it can."""
    try:
        lower(load_onnx(shipped_networks().get(model, model)), preset.config, 1)
    except ValueError as error:
        return str(error)
    data, adapter = (given.get(name) for name in ("data", "adapter"))
    if adapter is not None and _is_of_network(Path(adapter)):
        return "the adapter is of another preset"
    if data is None or not Path(data).is_file():
        return None
    arrays = read_npz(Path(data), optional=("x", "x_train", "x_test", "y", "y_train", "y_test"))
    for name, value in arrays.items():
        if name.startswith("x") and value.dtype != np.uint8:
            return f"{name} are {value.dtype}, no bytes of pixels"
        if name.startswith("y") and (value.dtype.kind not in "iu" or value.ndim != 1):
            return f"{name} are no classes"
    return None


def _is_of_network(adapter: Path) -> bool:
    """Whether a folder has what a fine-tune of any network wrote."""
    try:
        return "gradloom_loss" in read_json(adapter / "adapter_config.json")
    except (OSError, ValueError, TypeError):
        return False
