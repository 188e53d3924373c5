"""Reads language models in Hugging Face's format.

``config.json`` and safetensors files, one or several.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.json_file import read_json

from ...language import EMBEDDING, HEAD, check_tensors, finite, of_vocabulary
from ..keys import shown
from ..kinds import what_is
from ..tensors import StoredTensor, as_float32, open_safetensors
from .families import described
from .four_bits import CodedLinear, Nf4Codes, check_quantization, gathered, nf4_of

__all__ = ["CONFIG", "HuggingFaceCheckpoint"]

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
#: One part of several, with its number and theirs.
_PART = re.compile(r".*-(\d{5})-of-(\d{5})\.safetensors")
#: Files of PyTorch's own format, which is not read.
_PICKLED = ("pytorch_model*.bin", "consolidated*.pth", "*.bin", "*.pth", "*.pt")


class HuggingFaceCheckpoint:
    """A language model in a folder or in one safetensors file.

    The file needs ``config.json`` beside it. Linears may be in 4 bits (:mod:`.four_bits`).

    See :class:`~.language.Checkpoint`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        folder = path if path.is_dir() else path.parent
        part = None if path.is_dir() else _PART.fullmatch(path.name)
        if part and int(part[2]) > 1:
            raise ValueError(f"{path}: is part {int(part[1])} of {int(part[2])} of a model: name the folder {folder}")
        kind = what_is(path)
        if kind not in (None, "a safetensors file"):
            raise ValueError(f"{path}: is {kind}")
        config = _json(folder / CONFIG)
        try:
            #: How the files have the model's tensors.
            self.form = described(config, folder.resolve().name)
        except ValueError as error:
            raise ValueError(f"{folder / CONFIG}: {error}") from None
        self.model = self.form.model
        #: Content of the file that describes it.
        self.config = config
        quantization = check_quantization(config.get("quantization_config"))
        self._tensors: dict[str, StoredTensor] = {}
        self._coded: dict[str, CodedLinear] = {}
        for file in [path] if path.is_file() else _files(folder):
            for name, tensor in open_safetensors(file, coded=quantization is not None).items():
                if name in self._tensors:
                    raise ValueError(f"{file}: tensor {name} is in another file of {folder}, too")
                self._tensors[name] = tensor
        if quantization is not None:
            try:
                self._tensors, self._coded = gathered(quantization, self._tensors)
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from None
        held = self._tensors | self._coded
        check_tensors(path, self.model, {name: tensor.shape for name, tensor in held.items()}, self.form.shapes)
        integers = next((name for name, each in self._tensors.items() if each.dtype in ("uint8", "int32")), None)
        if integers is not None:
            raise ValueError(f"{path}: tensor {integers} has integers, but no codes that quantization_config tells of")
        if self.form.tied and HEAD in held:
            head, embedding = (of_vocabulary(self.model, self._read(each)) for each in (HEAD, EMBEDDING))
            if not np.array_equal(head, embedding):
                raise ValueError(
                    f"{path}: tie_word_embeddings=true, but {HEAD} differs from {EMBEDDING}: set it to false, or "
                    f"remove the tensor that is wrong"
                )

    def tensor(self, name: str) -> np.ndarray:
        """A tensor as float32, ``[out, in]``; a tied head is the embedding."""
        own, rows = self.form.place(name)
        if own not in self._tensors and own not in self._coded:
            raise ValueError(f"{self.path}: has no tensor {own}")
        values = finite(self.path, own, self._read(own))
        if name in (EMBEDDING, HEAD):
            values = of_vocabulary(self.model, values)
        return self.form.of_file(name, values if rows is None else values[rows])

    def nf4(self, name: str) -> Nf4Codes | None:
        """Codes of a tensor that bitsandbytes has saved, else None.

        They are taken as they are: quantising their values again would make other scales. A part of a linear of several
        has them where it has whole groups of scales.
        """
        own, rows = self.form.place(name)
        held = nf4_of(self._coded.get(own))
        return held if held is None or rows is None else held.part(rows)

    def _read(self, name: str) -> np.ndarray:
        if name in self._coded:
            try:
                return self._coded[name].values()
            except ValueError as error:
                raise ValueError(f"{self.path}: {error}") from None
        stored = self._tensors[name]
        return as_float32(stored.read(), stored.dtype)


def _files(folder: Path) -> list[Path]:
    if (folder / INDEX).is_file():
        index = _json(folder / INDEX).get("weight_map")
        if not isinstance(index, dict) or not index or not all(isinstance(name, str) for name in index.values()):
            raise ValueError(f"{folder / INDEX}: weight_map is not an object of file names")
        names = sorted(set(index.values()))
        for name in names:
            if Path(name).name != name:
                raise ValueError(f"{folder / INDEX}: weight_map names {shown(name)}: must be a file of the folder")
            if not (folder / name).is_file():
                raise ValueError(
                    f"{folder / name}: no such file; it is one of {len(names)} parts that {INDEX} names: download it"
                )
        return [folder / name for name in names]
    if not (folder / WEIGHTS).is_file():
        raise ValueError(f"{folder / WEIGHTS}: no such file{_instead(folder)}")
    return [folder / WEIGHTS]


def _instead(folder: Path) -> str:
    """What a folder has in place of the weights, with a remedy."""
    if any(_PART.fullmatch(file.name) for file in folder.iterdir()):
        return f"; its parts are there, but not {INDEX}, which says which belong together: download it"
    other = next(iter(sorted(folder.glob("*.gguf"))), None)
    if other is not None:
        return f"; name the file {other} to read that"
    pickled = next((file for pattern in _PICKLED for file in sorted(folder.glob(pattern))), None)
    if pickled is not None:
        return f"; {pickled.name} can run code when it is read: save the model as safetensors"
    return ""


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    try:
        content = read_json(path)
    except ValueError as error:
        kind = what_is(path)
        raise ValueError(f"{path}: is {kind}" if kind else f"{path}: is not JSON ({error}); is it truncated?") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: must be an object of JSON, not {shown(content)}")
    return content
