"""The model that a run learnt on.

``metrics.json`` names it, and has a digest of its norms. A model's norms are the same in all of its files: formats that
quantise its linears keep them. Models of the same shapes, as a base and what was trained from it, differ in them.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.json_file import read_json
from gradloom.models.adapters.language.lora_xs import CORE
from gradloom.models.files.language.checkpoint import find_weights, open_checkpoint
from gradloom.models.language import BUILT_IN, Checkpoint
from gradloom.systems.job import model_of_run

from .quantized import Quantized

__all__ = ["check_base", "digest", "model_of", "opened"]


def digest(checkpoint: Checkpoint) -> str:
    """SHA-256 of the norms' weights as float32, 16 digits of it."""
    made = hashlib.sha256()
    for name in checkpoint.model.tensors:
        if name.endswith("norm.weight"):
            made.update(np.ascontiguousarray(checkpoint.tensor(name), "<f4").tobytes())
    return made.hexdigest()[:16]


def _run(adapter: Path) -> Path:
    """The folder of an adapter's run; R of LoRA-XS has a folder inside it."""
    folder = adapter.resolve()
    return folder.parent if folder.name == CORE else folder


def _metrics(adapter: Path) -> Iterator[Mapping[str, Any]]:
    """What the run of an adapter's folder says, if it is one's."""
    path = _run(adapter) / "metrics.json"
    if path.is_file():
        try:
            found = read_json(path)
        except ValueError:
            return
        if isinstance(found, dict):
            yield found


def model_of(adapter: Path) -> Path | str | None:
    """The model that a run in an adapter's folder was asked for: a name, or its file."""
    if any(isinstance(each.get("request"), dict) and "model" in each["request"] for each in _metrics(adapter)):
        return model_of_run(_run(adapter), known=BUILT_IN)
    return None


def check_base(adapter: Path, checkpoint: Checkpoint) -> None:
    """Refuses a model that is not the one that a run in an adapter's folder learnt on."""
    for metrics in _metrics(adapter):
        told = metrics.get("base")
        if isinstance(told, str) and told != digest(checkpoint):
            raise ValueError(
                f"adapter={adapter}: learnt on {metrics.get('model')} with other norms than those of "
                f"{checkpoint.path}; give the model that it learnt on"
            )


def opened(adapter: Path | None, model: Path | str | None) -> Quantized:
    """``model``, else that of the run in an adapter's folder, else SmolLM2-135M, with the weights of a board."""
    of_run = model_of(adapter) if model is None and adapter is not None else None
    return Quantized(open_checkpoint(find_weights(model or of_run or "smollm2-135m")))
