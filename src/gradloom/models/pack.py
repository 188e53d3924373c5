"""Frozen weights in the board's layout, with a manifest.

The linears are streams (:mod:`gradloom.rtl.formats.weights.weight_stream`); everything else is raw. The same model
gives the same bytes.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gradloom.json_file import read_json
from gradloom.rtl.formats.weights.blocks import (
    GROUP,
    dequantize_blocks,
    dequantize_scales,
    dynamic_map,
    quantize_blocks,
    quantize_scales,
)
from gradloom.rtl.formats.weights.weight_stream import BOOKS, TILE, StreamShape, pack_stream, unpack_stream

from .files.language.checkpoint import open_checkpoint
from .files.language.huggingface import HuggingFaceCheckpoint
from .language import EMBEDDING, HEAD, Checkpoint, LanguageModel, small_parts

__all__ = [
    "HEADS",
    "MANIFEST",
    "PackedModel",
    "QuantizedLinear",
    "coded_linear",
    "keeps_groups",
    "quantize_linear",
    "weights_of",
    "write_pack",
]

FORMAT, VERSION = "gradloom-weights", 1
MANIFEST, WEIGHTS = "manifest.json", "weights.bin"
#: Every section begins at a multiple of this: a beat of the widest port there is, 512 bits.
ALIGN = 64
#: The head's format: as the embedding, or as the linears.
HEADS = ("float16", "nf")
Progress = Callable[[int, int, str], None]


@dataclasses.dataclass(frozen=True)
class QuantizedLinear:
    """A linear in bitsandbytes' terms.

    ``codes [N, K]``, a scale code a block, ``absmax2`` a group, ``offset``. ``rows``: which row of the matrix each is,
    where they are in another order.
    """

    shape: StreamShape
    codes: np.ndarray
    scale_codes: np.ndarray
    absmax2: np.ndarray
    offset: np.float32
    rows: np.ndarray | None = None

    def weight(self) -> np.ndarray:
        """The float32 matrix ``[N, K]`` that it stands for."""
        scales = dequantize_scales(self.scale_codes, self.absmax2, self.offset)
        flat = dequantize_blocks(self.codes, scales, book=BOOKS[self.shape.bits], block=TILE)
        made = flat.reshape(self.shape.outputs, self.shape.inputs)
        return made if self.rows is None else made[np.argsort(self.rows)]

    def ordered(self, rows: np.ndarray) -> "QuantizedLinear":
        """The same with its rows in another order, in which blocks that share a second-level scale stay together.

        One that was quantised in an order has that one alone.
        """
        if self.rows is not None:
            assert np.array_equal(self.rows, rows)
            return dataclasses.replace(self, rows=None)
        if not keeps_groups(rows, self.shape.inputs):
            raise ValueError(f"inputs={self.shape.inputs}: the order of rows parts groups of {GROUP} scales")
        groups = _blocks(rows, self.shape.inputs)[::GROUP] // GROUP
        scales = self.scale_codes.reshape(self.shape.outputs, -1)[rows].reshape(-1)
        return dataclasses.replace(self, codes=self.codes[rows], scale_codes=scales, absmax2=self.absmax2[groups])

    def part(self, first: int, outputs: int) -> "QuantizedLinear":
        """Rows ``first`` to ``first + outputs`` as a linear, behind the last row rows of zeros.

        No group of scales may begin before ``first`` and end behind it.
        """
        columns = self.shape.inputs // TILE
        if first * columns % GROUP:
            raise ValueError(f"first={first}: parts a group of {GROUP} scales")
        shape = dataclasses.replace(self.shape, outputs=outputs)
        codes = self.codes[first : first + outputs]
        missing = outputs - len(codes)
        scales = self.scale_codes[first * columns : (first + len(codes)) * columns]
        absmax2 = self.absmax2[first * columns // GROUP :][: shape.groups]
        return QuantizedLinear(
            shape,
            np.pad(codes, ((0, missing), (0, 0)), constant_values=BOOKS[shape.bits].zero_code),
            np.pad(scales, (0, missing * columns)),
            np.pad(absmax2, (0, shape.groups - len(absmax2))),
            self.offset,
        )


def _blocks(rows: np.ndarray, inputs: int) -> np.ndarray:
    return np.arange(len(rows) * inputs // TILE).reshape(len(rows), -1)[rows].reshape(-1)


def keeps_groups(rows: np.ndarray, inputs: int) -> bool:
    """Whether blocks of a matrix that share a second-level scale stay together in an order of its rows."""
    blocks = _blocks(rows, inputs)
    return np.array_equal(np.repeat(blocks[::GROUP] // GROUP, GROUP)[: len(blocks)], blocks // GROUP)


def quantize_linear(w: np.ndarray, bits: int = 4, rows: np.ndarray | None = None) -> QuantizedLinear:
    """Quantises ``w [N, K]`` in blocks of 64, as bitsandbytes does.

    bitsandbytes does so with 4 bits; scales are double-quantised. ``rows``: an order in which blocks share scales of
    the second level.
    """
    if rows is not None:
        return dataclasses.replace(quantize_linear(w[rows], bits), rows=rows)
    shape = StreamShape(outputs=w.shape[0], inputs=w.shape[1], bits=bits)
    codes, absmax = quantize_blocks(w, book=BOOKS[bits], block=TILE)
    return QuantizedLinear(shape, codes.reshape(w.shape), *quantize_scales(absmax))


def coded_linear(checkpoint: Checkpoint, name: str, bits: int = 4) -> QuantizedLinear:
    """A tensor of a checkpoint in codes, by its name with ``.weight``.

    Codes and scales of NF4 that bitsandbytes has saved are taken as they are; scales without double quantisation get
    it. All else is quantised.
    """
    held = checkpoint.nf4(name) if bits == 4 and isinstance(checkpoint, HuggingFaceCheckpoint) else None
    if held is None:
        return quantize_linear(checkpoint.tensor(name), bits)
    shape = StreamShape(outputs=held.codes.shape[0], inputs=held.codes.shape[1], bits=bits)
    if held.scale_codes is None or held.absmax2 is None:
        return QuantizedLinear(shape, held.codes, *quantize_scales(held.absmax))
    return QuantizedLinear(shape, held.codes, held.scale_codes, held.absmax2, held.offset)


def write_pack(
    checkpoint: Checkpoint, directory: Path, *, bits: int = 4, head: str = "float16", progress: Progress | None = None
) -> dict[str, Any]:
    """Writes ``weights.bin`` and ``manifest.json`` into ``directory``.

    Returns the manifest.

    In order: tables (the book's levels and the dynamic map, float32), embedding, each layer's norms and
    linears as a forward pass meets them, last norm, head. The embedding is float16, and so is the head
    unless ``head`` is ``"nf"``; norms are float32. A tied float16 head is the embedding and is not repeated.
    """
    if head not in HEADS:
        raise ValueError(f"head={head!r}: must be one of {', '.join(HEADS)}")
    model = checkpoint.model
    streams = _streams(model, bits, head)  # refuses what cannot be packed before anything is read
    names = [*model.tensors, *([HEAD] if model.tied and head == "nf" else [])]
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "model": dataclasses.asdict(model),
        "bits": bits,
        "head": head,
        "frozen_bytes": sum(shape.frozen_bytes for shape in _streams(model, bits, "float16").values()),
        "file": WEIGHTS,
        "linears": [],
        "tensors": [],
    }
    with (directory / WEIGHTS).open("wb") as file:
        for name, table in (
            ("table.levels", np.asarray(BOOKS[bits].levels, np.float32)),
            ("table.dynamic_map", dynamic_map()),
        ):
            manifest["tensors"].append(_write(file, name, table.shape, table.astype("<f4"), dtype="float32"))
        for done, name in enumerate(names):
            if progress is not None:
                progress(done, len(names), "packing")
            own = EMBEDDING if name == HEAD and model.tied else name
            if name in streams:
                held = coded_linear(checkpoint, own, bits)
                stream = pack_stream(held.shape, held.codes, held.scale_codes, held.absmax2, held.offset)
                manifest["linears"].append(_write(file, name.removesuffix(".weight"), held.codes.shape, stream))
            else:
                values = checkpoint.tensor(own)
                dtype = "float16" if name in (EMBEDDING, HEAD) else "float32"
                manifest["tensors"].append(
                    _write(file, name, values.shape, _as(checkpoint.path, name, values, dtype), dtype=dtype)
                )
        _align(file)
        manifest["bytes"] = file.tell()
    text = json.dumps(manifest, indent=1, allow_nan=False) + "\n"
    (directory / MANIFEST).write_text(text, encoding="utf-8", newline="\n")
    return manifest


def _streams(model: LanguageModel, bits: int, head: str) -> dict[str, StreamShape]:
    """The stream of each quantised matrix by the name of its tensor."""
    streams = {}
    for linear in model.linears:
        try:
            shape = StreamShape(outputs=linear.outputs, inputs=linear.inputs, bits=bits)
        except ValueError as error:
            raise ValueError(f"{linear.name}: {error}") from None
        streams[f"{linear.name}.weight"] = shape
    if head == "nf":
        streams[HEAD] = StreamShape(outputs=model.vocab, inputs=model.hidden, bits=bits)
    return streams


def _as(path: Path, name: str, values: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        narrow = values.astype(np.dtype(dtype).newbyteorder("<"))
    if not np.isfinite(narrow).all():
        raise ValueError(
            f"{path}: tensor {name} reaches {np.abs(values).max():.6g}: {dtype} holds {np.finfo(dtype).max:.6g}"
        )
    return narrow


def _align(file: BinaryIO) -> None:
    file.write(bytes(-file.tell() % ALIGN))


def _write(file: BinaryIO, name: str, shape: tuple[int, ...], content: np.ndarray, **more: str) -> dict[str, Any]:
    _align(file)
    offset, data = file.tell(), content.tobytes()
    file.write(data)
    return {
        "name": name,
        "shape": list(shape),
        **more,
        "offset": offset,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


class PackedModel:
    """A pack of :func:`write_pack`: a checkpoint with quantised linears.

    It is a :class:`~.language.Checkpoint`.

    Opening reads the manifest; each section is checked against its sum when it is read. :class:`ValueError`
    names what is missing or damaged.
    """

    def __init__(self, directory: Path | str) -> None:
        self.path = Path(directory)
        path = self.path / MANIFEST
        if not path.is_file():
            raise ValueError(f"{path}: no such file; name a directory that gradloom pack made")
        try:
            self.manifest = read_json(path)
            if (self.manifest["format"], self.manifest["version"]) != (FORMAT, VERSION):
                raise ValueError(
                    f"is {self.manifest['format']!r} version {self.manifest['version']!r}, must be "
                    f"{FORMAT!r} version {VERSION}"
                )
            self.model = LanguageModel(**self.manifest["model"])
            self.bits: int = self.manifest["bits"]
            self._streams = _streams(self.model, self.bits, self.manifest["head"])
            self._sections = {entry["name"]: entry for kind in ("linears", "tensors") for entry in self.manifest[kind]}
            size = self.manifest["bytes"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: cannot be read: {' '.join(str(error).split())}") from None
        self._file = self.path / WEIGHTS
        found = self._file.stat().st_size if self._file.is_file() else 0
        if found != size:
            raise ValueError(f"{self._file}: has {found} bytes: its manifest says {size}")

    @property
    def weights(self) -> Path:
        """The file with all sections, as a board's memory holds them."""
        return self._file

    def check(self, progress: Progress | None = None) -> None:
        """Reads every section.

        :class:`ValueError` names the first that is damaged.
        """
        for done, name in enumerate(self._sections):
            if progress is not None:
                progress(done, len(self._sections), "checking")
            self.read(name)

    def read(self, name: str) -> bytes:
        """The bytes of a section."""
        if name not in self._sections:
            raise ValueError(f"{self.path / MANIFEST}: has no section {name}")
        entry = self._sections[name]
        with self._file.open("rb") as file:
            file.seek(entry["offset"])
            data = file.read(entry["bytes"])
        if hashlib.sha256(data).hexdigest() != entry["sha256"]:
            raise ValueError(
                f"{self._file}: section {name} at byte {entry['offset']} is damaged: its sha256 is not the manifest's"
            )
        return data

    def linear(self, name: str) -> QuantizedLinear:
        """A linear by its name without ``.weight``."""
        if f"{name}.weight" not in self._streams:
            raise ValueError(f"{self.path}: has no quantised linear {name}")
        shape = self._streams[f"{name}.weight"]
        return QuantizedLinear(shape, *unpack_stream(shape, np.frombuffer(self.read(name), np.uint8)))

    def tensor(self, name: str) -> np.ndarray:
        """A tensor as float32, dequantised where it is stored in codes."""
        if name in self._streams:
            return self.linear(name.removesuffix(".weight")).weight()
        if name == HEAD and self.model.tied:
            name = EMBEDDING
        data = self.read(name)
        entry = self._sections[name]
        values = np.frombuffer(data, np.dtype(entry["dtype"]).newbyteorder("<"))
        return values.astype(np.float32).reshape(entry["shape"])


def weights_of(base: Path | str) -> Checkpoint | None:
    """A pack, or a language model's file or folder of weights.

    None where ``base`` is none that we read. A damaged pack is refused.
    """
    try:
        packed = read_json(Path(base) / MANIFEST)["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        packed = False
    if packed:
        return PackedModel(base)
    try:
        return open_checkpoint(base)
    except ValueError:
        return None


def raw_parts(model: LanguageModel, head: str) -> Iterator[tuple[str, int]]:
    """Name and bytes of each tensor that is not quantised.

    They are those of :func:`write_pack`, without its tables.
    """
    for name, shape in small_parts(model):
        if name == HEAD and head == "nf":
            continue
        yield name, int(np.prod(shape)) * (2 if name in (EMBEDDING, HEAD) else 4)
