"""Reads GGUF files: metadata, tokens, dequantised tensors.

Our own reader: PyPI's ``gguf`` makes a numpy view of every token and needs seconds to minutes to open a
model, and tells a truncated file by whatever exception comes first. The tests take it for a witness.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...language import EMBEDDING, HEAD, LanguageModel, check_shapes, check_tensors, finite, of_vocabulary
from ..keys import ANY, check_keys
from ..kinds import what_is
from .form import Folded
from .gguf_blocks import BLOCK_KINDS, kind_named
from .gguf_families import ARCHITECTURES, Architecture

__all__ = ["GGUF_SUFFIX", "GgufCheckpoint", "GgufFile", "GgufTensor", "gguf_linear", "turned_pairs"]

GGUF_SUFFIX = ".gguf"
MAGIC = b"GGUF"
VERSIONS = (2, 3)

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class GgufTensor:
    """Range of a tensor in a file.

    ``shape`` is row-major (GGUF's own order reversed), ``start`` from the file's begin.
    """

    shape: tuple[int, ...]
    type: int
    start: int
    size: int


class GgufFile:
    """Metadata and a directory of tensors of a GGUF file.

    The file is little-endian, version 2 or 3.

    Attributes
    ----------
    fields : dict
        Metadata by key: numbers, strings, or lists of them.
    tensors : dict of str to :class:`GgufTensor`

    Raises
    ------
    ValueError
        Naming the file and what is wrong with it: another magic, a version, a truncated header or tensor.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise ValueError(f"{path}: no such file")
        self._size = path.stat().st_size
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
        if magic != MAGIC:
            other = what_is(path)
            if other:
                raise ValueError(f"{path}: is {other}")
            raise ValueError(f"{path}: begins with {magic!r}: a GGUF file begins with {MAGIC!r}")
        self._data = np.memmap(path, np.uint8, mode="r")
        self._at = len(MAGIC)
        version = self._scalar("I")
        if version not in VERSIONS:
            raise ValueError(
                f"{path}: GGUF version {version}: must be {' or '.join(map(str, VERSIONS))}, little-endian"
            )
        tensors, fields = self._scalar("Q"), self._scalar("Q")
        self.fields: dict[str, Any] = {}
        #: Offset in :attr:`metadata` of the type that most tensors have.
        self.file_type_at: int | None = None
        start = self._at
        for _ in range(fields):
            key = self._string()
            if key in self.fields:
                raise ValueError(f"{path}: field {key} is there twice: write the file again")
            kind = self._scalar("I")
            if (key, kind) == ("general.file_type", 4):
                self.file_type_at = self._at - start
            self.fields[key] = self._value(kind, key)
        #: The fields as they are in the file.
        self.metadata = self._data[start : self._at].tobytes()
        directory = [self._tensor_info() for _ in range(tensors)]
        align = self.fields.get("general.alignment", 32)
        if not isinstance(align, int) or align < 1 or align & (align - 1):
            raise ValueError(f"{path}: general.alignment={align!r}: must be a power of two")
        self.align = align
        base = -(-self._at // align) * align
        self.tensors: dict[str, GgufTensor] = {}
        end = base
        for name, shape, kind, offset in directory:
            if name in self.tensors:
                raise ValueError(f"{path}: tensor {name} is there twice: write the file again")
            self.tensors[name] = placed = self._placed(name, shape, kind, base + offset)
            if placed.start != end:
                raise ValueError(
                    f"{path}: tensor {name} begins at byte {placed.start}, the one before it ends at {end}"
                )
            end += -(-placed.size // align) * align

    def tensor(self, name: str) -> np.ndarray:
        """A tensor as float32, row-major."""
        entry = self.tensors[name]
        kind = BLOCK_KINDS[entry.type]
        data = np.array(self._data[entry.start : entry.start + entry.size]).reshape(-1, kind.size)
        return kind.decode(data).reshape(entry.shape)

    def stored(self, name: str) -> bytes:
        """A tensor as it is in the file."""
        entry = self.tensors[name]
        return self._data[entry.start : entry.start + entry.size].tobytes()

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """A field that must be of type ``kind``.

        Without ``default`` it must be there.
        """
        value = self.fields.get(key, default)
        if value is None:
            raise ValueError(f"{self.path}: has no field {key}")
        if not isinstance(value, kind):
            raise ValueError(f"{self.path}: {key} is a {type(value).__name__}, which it cannot be")
        return value

    def _take(self, count: int, what: str) -> bytes:
        end = self._at + count
        if end > self._size:
            raise ValueError(f"{self.path}: is truncated: {what} ends at byte {end}, the file at {self._size}")
        taken = self._data[self._at : end].tobytes()
        self._at = end
        return taken

    def _scalar(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self._take(struct.calcsize(f"<{code}"), "its header"))[0]

    def _string(self) -> str:
        at, taken = self._at, self._take(self._scalar("Q"), "a text of its header")
        try:
            return taken.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{self.path}: the text at byte {at} is not UTF-8") from None

    def _value(self, kind: int, key: str) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            if kind not in _SCALARS:
                raise ValueError(f"{self.path}: field {key} has type {kind}, which GGUF does not know")
            return self._scalar(_SCALARS[kind])
        inner, count = self._scalar("I"), self._scalar("Q")
        if inner == _STRING:
            return self._strings(count)
        if inner not in _SCALARS:
            raise ValueError(f"{self.path}: field {key} is an array of type {inner}, which is not known")
        code = _SCALARS[inner]
        content = self._take(count * struct.calcsize(f"<{code}"), f"field {key}")
        return list(struct.unpack(f"<{count}{code}", content))

    def _strings(self, count: int) -> list[str]:
        return [self._string() for _ in range(count)]

    def _tensor_info(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        rank = self._scalar("I")
        if not 1 <= rank <= 4:
            raise ValueError(f"{self.path}: tensor {name} has {rank} dimensions: 1 to 4 are possible")
        shape = tuple(self._scalar("Q") for _ in range(rank))[::-1]
        return name, shape, self._scalar("I"), self._scalar("Q")

    def _placed(self, name: str, shape: tuple[int, ...], kind: int, start: int) -> GgufTensor:
        if kind not in BLOCK_KINDS:
            known = ", ".join(each.name for each in BLOCK_KINDS.values())
            raise ValueError(f"{self.path}: tensor {name} is of type {kind_named(kind)}: {known} can be read")
        held = BLOCK_KINDS[kind]
        count = 1
        for extent in shape:  # Python integers: an absurd shape must not wrap
            count *= extent
        if not count or shape[-1] % held.elements:
            raise ValueError(
                f"{self.path}: tensor {name} has shape {list(shape)}: {held.name} has blocks of {held.elements}"
            )
        size = count // held.elements * held.size
        if start + size > self._size:
            raise ValueError(
                f"{self.path}: is truncated: tensor {name} ends at byte {start + size}, the file at {self._size}"
            )
        return GgufTensor(shape, kind, start, size)


_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def _hugging_face_name(name: str, layer_names: Mapping[str, str]) -> str:
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in layer_names:
        return f"model.layers.{parts[1]}.{layer_names[parts[2]]}.{parts[3]}"
    if len(parts) == 2 and parts[0] in _NAMES:
        return f"{_NAMES[parts[0]]}.{parts[1]}"
    return name


_OWN_NAMES = {full: short for short, full in ARCHITECTURES["llama"].layer_names.items()}


def gguf_linear(name: str) -> str:
    """llama.cpp's tensor of a linear, of Hugging Face's module."""
    _, _, layer, module = name.split(".", 3)
    return f"blk.{layer}.{_OWN_NAMES[module]}.weight"


#: Begins of fields that say nothing of the model's mathematics: of the file, its tokens, and how it was made.
_METADATA = ("general.", "tokenizer.", "quantize.", "mradermacher.", "split.")
#: Fields that are read and checked below.
_HANDLED = frozenset(
    ("embedding_length", "feed_forward_length", "block_count", "vocab_size", "context_length")
    + tuple(f"attention.{each}" for each in ("head_count", "head_count_kv", "key_length", "value_length"))
    + ("attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.dimension_count")
)
#: Of families whose layers see a window.
_OF_WINDOWS = frozenset(("attention.sliding_window", "rope.freq_base_swa"))
#: Other fields, with the values for which they change nothing.
_HARMLESS: dict[str, tuple[Any, ...]] = {
    "rope.scale_linear": (1.0, 0.0),
    "rope.scaling.type": ("none", "linear"),
    "rope.scaling.factor": (1.0, 0.0),
    "rope.scaling.attn_factor": (1.0,),
    "rope.scaling.yarn_log_multiplier": (0.0,),
    "rope.scaling.original_context_length": ANY,
    "rope.scaling.finetuned": ANY,
    "attention.causal": (True,),
    "attention.scale": (0.0,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.sliding_window": (0,),
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
    "logit_scale": (1.0, 0.0),
    "residual_scale": (1.0, 0.0),
    "embedding_scale": (1.0, 0.0),
    "use_parallel_residual": (False,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "expert_shared_count": (0,),
    "leading_dense_block_count": (0,),
    "nextn_predict_layers": (0,),
    "pooling_type": (0,),
    # The order of q's and k's rows that llama.cpp's files have.
    "tensor_data_layout": ("Meta AI original pth",),
}


def _family(file: GgufFile) -> tuple[str, Architecture]:
    """The family of a file, and its name; refuses what is none, by what it is."""
    path = file.path
    if file.get("general.type", str, "model") == "adapter":
        raise ValueError(f"{path}: is a LoRA adapter (general.type='adapter'), not a model")
    parts = file.get("split.count", int, 0)
    if parts > 1:
        raise ValueError(
            f"{path}: is part {file.get('split.no', int, 0) + 1} of {parts} of a model (split.count={parts}): join "
            f"them by llama.cpp's llama-gguf-split --merge"
        )
    kind = file.get("general.type", str, "model")
    if kind != "model":
        raise ValueError(f"{path}: general.type={kind!r}: must be 'model'")
    name = file.get("general.architecture", str)
    if name not in ARCHITECTURES:
        known = ", ".join(map(repr, ARCHITECTURES))
        raise ValueError(f"{path}: general.architecture={name!r}: must be {known.replace(', ', ' or ')}")
    family = ARCHITECTURES[name]
    if file.fields.get("general.quantization_version", 2) != 2:
        raise ValueError(
            f"{path}: general.quantization_version={file.fields['general.quantization_version']!r}: must be 2"
        )
    experts = file.get(f"{name}.expert_count", int, 0)
    if experts:
        raise ValueError(
            f"{path}: {name}.expert_count={experts}: a mixture of experts; only dense models are supported"
        )
    try:
        own = {key: value for key, value in file.fields.items() if not key.startswith(_METADATA)}
        handled = _HANDLED | (_OF_WINDOWS if family.windowed else set())
        check_keys(
            own,
            handled={f"{name}.{key}" for key in handled},
            harmless={f"{name}.{key}": values for key, values in _HARMLESS.items() if key not in handled},
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if "rope_freqs.weight" in file.tensors:
        raise ValueError(
            f"{path}: has scaled positions (rope_freqs.weight, as of Llama 3.1 and later), which are not supported"
        )
    return name, family


#: Keys of the metadata, by the fields of a model.
_KEYS = {
    "hidden": "embedding_length",
    "inter": "feed_forward_length",
    "layers": "block_count",
    "heads": "attention.head_count",
    "kv_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "vocab": "vocab_size",
    "context": "context_length",
    "rope_theta": "rope.freq_base",
    "norm_eps": "attention.layer_norm_rms_epsilon",
}


class GgufCheckpoint:
    """A language model in a GGUF file; see :class:`~.language.Checkpoint`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = file = GgufFile(path)
        self.architecture, self.family = _family(file)
        names = self.family.layer_names
        self.names = {_hugging_face_name(name, names): name for name in file.tensors}
        shapes = {name: file.tensors[own].shape for name, own in self.names.items()}
        hidden, heads = self._count("embedding_length"), self._count("attention.head_count")
        try:
            found: dict[str, Any] = {
                "hidden": hidden,
                "inter": self._count("feed_forward_length"),
                "layers": self._count("block_count"),
                "heads": heads,
                "kv_heads": self._count("attention.head_count_kv", heads),
                "head_dim": self._count("attention.key_length", hidden // max(heads, 1)),
                # Tokens may be more than vocab_size says, or fewer where it counts rows without a token.
                "vocab": max(self._count("vocab_size", 0), len(file.get("tokenizer.ggml.tokens", list, []))),
                "context": self._count("context_length"),
                "rope_theta": self._field("rope.freq_base", float, 10000.0),
                # Written as float32; its shortest decimal is what the model was made with.
                "norm_eps": float(str(np.float32(self._field("attention.layer_norm_rms_epsilon", float)))),
            }
            check_shapes(found, {field: f"{self.architecture}.{key}" for field, key in _KEYS.items()})
            found |= self.family.parts
            found |= self.family.constants(
                found["layers"], found["head_dim"], lambda key, default: self._field(key, type(default), default)
            )
            factor, tied = self.family.embedding(found["hidden"]), HEAD not in shapes
            model = LanguageModel(name=path.name.removesuffix(GGUF_SUFFIX), tied=tied and factor == 1, **found)
            #: How the file has the model's tensors.
            self.form = Folded(model=model, tied=tied, embedding=factor)
            self.model = model
        except ValueError as error:
            raise ValueError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
        for key in ("rope.dimension_count", "attention.value_length"):
            count = self._count(key, self.model.head_dim)
            if count != self.model.head_dim:
                raise ValueError(
                    f"{path}: {self.architecture}.{key}={count}: must be {self.model.head_dim}, the elements of a head"
                )
        check_tensors(path, self.model, shapes, self.form.shapes)

    def _count(self, key: str, default: int | None = None) -> int:
        return int(self._field(key, int, default))

    def _field(self, key: str, kind: type, default: Any = None) -> Any:
        return self.file.get(f"{self.architecture}.{key}", kind, default)

    def tensor(self, name: str) -> np.ndarray:
        """A tensor as float32 in Hugging Face's orientation."""
        own, _ = self.form.place(name)
        if own not in self.names:
            raise ValueError(f"{self.path}: has no tensor {own}")
        values = finite(self.path, own, self.file.tensor(self.names[own]))
        heads = self.paired(name)
        if heads is not None:
            values = turned_pairs(values, heads)
        return self.form.of_file(name, of_vocabulary(self.model, values) if name in (EMBEDDING, HEAD) else values)

    def paired(self, name: str) -> int | None:
        """Heads of a tensor whose rows llama.cpp has in another order."""
        # It turns neighbouring elements there, where Hugging Face turns halves of a head.
        heads = {"q_proj": self.model.heads, "k_proj": self.model.kv_heads}
        return heads.get(name.split(".")[-2]) if self.family.paired else None


def turned_pairs(values: np.ndarray, heads: int, *, back: bool = False) -> np.ndarray:
    """Rows of q or k in Hugging Face's order; ``back``: in llama.cpp's."""
    half = len(values) // heads // 2
    pairs = values.reshape(heads, *((2, half) if back else (half, 2)), -1)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)
