"""Reads language models in Hugging Face's format.

``config.json`` and safetensors files, one or several.
"""

from pathlib import Path
from typing import Any

import numpy as np

from gradloom.rtl.json_file import read_json

from .language import EMBEDDING, HEAD, LanguageModel, check_tensors, finite
from .tensors import StoredTensor, as_float32, open_safetensors

__all__ = ["HuggingFaceCheckpoint"]

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
#: What a config may say of a model that it is not, with what is meant where it says nothing.
_MUST = {
    "model_type": "llama",
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "quantization_config": None,
    "rope_scaling": None,
    "pretraining_tp": 1,
}


class HuggingFaceCheckpoint:
    """A LLaMA model in a folder or in one safetensors file.

    The file needs ``config.json`` beside it.

    See :class:`~.language.Checkpoint`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        folder = path if path.is_dir() else path.parent
        self.model = _model(folder / CONFIG, folder.resolve().name)
        self._tensors: dict[str, StoredTensor] = {}
        for file in [path] if path.is_file() else _files(folder):
            for name, tensor in open_safetensors(file).items():
                if name in self._tensors:
                    raise ValueError(f"{file}: tensor {name} is in another file of {folder}, too")
                self._tensors[name] = tensor
        check_tensors(path, self.model, {name: tensor.shape for name, tensor in self._tensors.items()})

    def tensor(self, name: str) -> np.ndarray:
        """A tensor as float32, ``[out, in]``; a tied head is the embedding."""
        if name == HEAD and self.model.tied:
            name = EMBEDDING
        if name not in self._tensors:
            raise ValueError(f"{self.path}: has no tensor {name}")
        stored = self._tensors[name]
        return finite(self.path, name, as_float32(stored.read(), stored.dtype))


def _files(folder: Path) -> list[Path]:
    if (folder / INDEX).is_file():
        index = _json(folder / INDEX).get("weight_map")
        if not isinstance(index, dict) or not index or not all(isinstance(name, str) for name in index.values()):
            raise ValueError(f"{folder / INDEX}: weight_map is not an object of file names")
        names = sorted(set(index.values()))
        for name in names:
            if Path(name).name != name:
                raise ValueError(f"{folder / INDEX}: weight_map names {name!r}: must be a file of the folder")
    else:
        names = [WEIGHTS]
    for name in names:
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name}: no such file")
    return [folder / name for name in names]


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    try:
        content = read_json(path)
    except ValueError as error:
        raise ValueError(f"{path}: is not JSON ({error}); is it truncated?") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: holds a {type(content).__name__}: expected an object")
    return content


def _model(path: Path, name: str) -> LanguageModel:
    config = _json(path)
    for field, wanted in _MUST.items():
        if field == "model_type" and field not in config:
            raise ValueError(f"{path}: has no model_type")
        value = config.get(field, wanted)
        if value != wanted:
            raise ValueError(f"{path}: {field}={value!r}: must be {wanted!r}")
    # Newer files keep the positions' constants in an object of their own.
    rope = config.get("rope_parameters") or {}
    if not isinstance(rope, dict) or rope.get("rope_type", "default") != "default":
        raise ValueError(f"{path}: rope_parameters={rope!r}: rope_type must be 'default'")
    try:
        heads = config["num_attention_heads"]
        return LanguageModel(
            name=name,
            hidden=config["hidden_size"],
            inter=config["intermediate_size"],
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=_or(config.get("num_key_value_heads"), heads),
            head_dim=_or(config.get("head_dim"), _quotient(config["hidden_size"], heads)),
            vocab=config["vocab_size"],
            context=config.get("max_position_embeddings", 2048),
            rope_theta=_or(config.get("rope_theta"), rope.get("rope_theta", 10000.0)),
            norm_eps=config.get("rms_norm_eps", 1e-6),
            tied=bool(config.get("tie_word_embeddings", False)),
        )
    except KeyError as error:
        raise ValueError(f"{path}: has no {error.args[0]}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _quotient(hidden: Any, heads: Any) -> Any:
    """The quotient that transformers uses without a ``head_dim``.

    Any invalid value is refused with the fields themselves.
    """
    return hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads > 0 else 0
