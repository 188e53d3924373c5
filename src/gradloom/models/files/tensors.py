"""Reads and writes safetensors files."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.output import staged_file

from .kinds import what_is

__all__ = ["FLOATS", "StoredTensor", "as_float32", "open_safetensors", "read_metadata", "write_safetensors"]

#: safetensors' names of the float types, with numpy's type of the bytes and torch's name.
FLOATS = {"F64": ("<f8", "float64"), "F32": ("<f4", "float32"), "F16": ("<f2", "float16"), "BF16": ("<u2", "bfloat16")}
#: The same of integers that hold codes.
INTEGERS = {"U8": ("u1", "uint8"), "I32": ("<i4", "int32")}
CODES = {torch: code for code, (_, torch) in FLOATS.items()} | {"uint8": "U8"}


@dataclass(frozen=True)
class StoredTensor:
    """A tensor on disk.

    ``dtype`` is torch's name; bfloat16, which numpy has not, is read as its 16 bits.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: str
    storage: str
    start: int

    def read(self) -> np.ndarray:
        """Its values."""
        count = int(np.prod(self.shape, dtype=np.int64))
        with self.path.open("rb") as file:
            file.seek(self.start)
            return np.fromfile(file, self.storage, count).reshape(self.shape)


def open_safetensors(path: Path, *, coded: bool = False) -> dict[str, StoredTensor]:
    """The float tensors of a file by name.

    ``coded``: those of bytes and of int32, too. Only the header is read; :class:`ValueError` describes a fault.
    """
    from safetensors import SafetensorError, safe_open

    try:
        # The library checks the file; its numpy side refuses bfloat16, so bytes are cut out below.
        with safe_open(path, framework="np"):
            pass
    except (SafetensorError, OSError) as error:
        if not path.is_file():
            raise ValueError(f"{path}: no such file") from None
        kind = what_is(path)
        if kind is not None and kind != "a safetensors file":
            raise ValueError(f"{path}: cannot be read as a safetensors file: it is {kind}") from None
        raise ValueError(f"{path}: cannot be read as a safetensors file ({error}); is it truncated?") from None
    header, length = _header(path)
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        known = FLOATS | INTEGERS if coded else FLOATS
        if entry["dtype"] not in known:
            more = "U8, I32, " if coded else ""
            raise ValueError(f"{path}: tensor {name} is {entry['dtype']}, must be {more}F16, BF16, F32 or F64")
        storage, dtype = known[entry["dtype"]]
        tensors[name] = StoredTensor(path, tuple(entry["shape"]), dtype, storage, 8 + length + entry["data_offsets"][0])
    return tensors


def read_metadata(path: Path) -> dict[str, str]:
    """Texts by name of a file that :func:`open_safetensors` has taken."""
    return dict(_header(path)[0].get("__metadata__", {}))


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Header of a file, and its bytes."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(length)), length


def as_float32(array: np.ndarray, dtype: str) -> np.ndarray:
    """The array's values as float32; bfloat16 comes as its 16 bits."""
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def write_safetensors(path: Path, tensors: dict[str, tuple[np.ndarray, str]]) -> None:
    """Writes tensors to a file, which appears when it is complete.

    They are written under another name and the file is renamed.
    """
    # The format is a length, a JSON header and the bytes. Written here since the library takes no bfloat16
    # from numpy. Wide types first keeps every tensor aligned.
    header: dict[str, dict] = {"__metadata__": {"format": "pt"}}
    chunks, end = [], 0
    for name, (array, dtype) in sorted(tensors.items(), key=lambda item: (-item[1][0].itemsize, item[0])):
        chunks.append(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
        start, end = end, end + len(chunks[-1])
        header[name] = {"dtype": CODES[dtype], "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with staged_file(path) as file:
        file.writelines([len(text).to_bytes(8, "little") + text, *chunks])
