"""A LLaMA-like language model: its shapes, its tensors by name."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .files.keys import shown

__all__ = [
    "BIASED",
    "BUILT_IN",
    "HEAD_NORMS",
    "Checkpoint",
    "LanguageModel",
    "LanguageLinear",
    "PROJECTIONS",
    "Scaling",
    "check_positive",
    "check_shapes",
]

#: The linears of a layer in the order in which a forward pass meets them, with the module that holds each.
PROJECTIONS = {
    "q_proj": "self_attn",
    "k_proj": "self_attn",
    "v_proj": "self_attn",
    "o_proj": "self_attn",
    "gate_proj": "mlp",
    "up_proj": "mlp",
    "down_proj": "mlp",
}
#: Those that may have biases.
BIASED = ("q_proj", "k_proj", "v_proj")
#: Norms of each head's queries and keys, behind the linears that make them.
HEAD_NORMS = {"q_proj": "q_norm", "k_proj": "k_norm"}
EMBEDDING, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"

_MOST = {
    "hidden": 1 << 16,
    "inter": 1 << 18,
    "layers": 1024,
    "heads": 1024,
    "kv_heads": 1024,
    "head_dim": 1024,
    "vocab": 1 << 22,
    "context": 1 << 24,
}


def check_shapes(shapes: Mapping[str, Any], names: Mapping[str, str] | None = None) -> None:
    """Refuses shapes and constants of a model that cannot be.

    ``shapes``: fields of a :class:`LanguageModel`. ``names``: what a file calls those that have another name there.
    """
    named = {field: (names or {}).get(field, field) for field in shapes}
    for field, most in _MOST.items():
        value = shapes[field]
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ValueError(f"{named[field]}={shown(value)}: must be an integer from 1 to {most}")
    if shapes["heads"] % shapes["kv_heads"]:
        raise ValueError(f"{named['kv_heads']}={shapes['kv_heads']}: must divide {named['heads']}={shapes['heads']}")
    if shapes["head_dim"] % 2:
        raise ValueError(f"{named['head_dim']}={shapes['head_dim']}: must be even, rotary positions turn pairs")
    for field in ("rope_theta", "norm_eps"):
        check_positive(named[field], shapes[field])


def check_positive(name: str, value: Any) -> None:
    """Refuses what is no number above 0, or a very large one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        raise ValueError(f"{name}={shown(value)}: must be a number above 0 and below 1e12")


@dataclass(frozen=True)
class LanguageLinear:
    """A linear layer ``y = W x``.

    ``name`` is Hugging Face's without ``.weight``, W is ``[outputs, inputs]``.
    """

    name: str
    outputs: int
    inputs: int

    @property
    def projection(self) -> str:
        """Its name within a layer, such as ``q_proj``."""
        return self.name.rsplit(".", 1)[-1]

    @property
    def parameters(self) -> int:
        """Weights in it."""
        return self.outputs * self.inputs


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Rotary positions for texts longer than those of a model's first training.

    Angles of wavelengths above ``original / low`` tokens are divided by ``factor``, those below ``original / high``
    stay, and those between are blended linearly in ``original / wavelength``: ``llama3`` of transformers. Where
    ``low`` and ``high`` are None, all angles are divided: ``linear``.
    """

    factor: float
    low: float | None = None
    high: float | None = None
    original: int | None = None

    def __post_init__(self) -> None:
        for field in ("factor", "low", "high", "original"):
            value = getattr(self, field)
            if value is not None or field == "factor":
                check_positive(field, value)
        if self.low is not None and (self.high is None or self.original is None or self.low >= self.high):
            raise ValueError(f"low={self.low}: must be below high={self.high}")

    def scaled(self, frequencies: np.ndarray) -> np.ndarray:
        """Radians a token."""
        if self.low is None or self.high is None or self.original is None:
            return frequencies / self.factor
        turns = self.original * frequencies / (2 * np.pi)
        share = np.clip((turns - self.low) / (self.high - self.low), 0, 1)
        return frequencies * (share + (1 - share) / self.factor)


@dataclass(frozen=True, kw_only=True)
class LanguageModel:
    """Shapes and constants of a decoder.

    It has RMSNorm, rotary positions, grouped-query attention and SwiGLU.

    Parameters
    ----------
    name : str
        What reports and adapters call it.
    hidden, inter : int
        Width of the residual stream, and of the feed-forward part.
    layers, heads, kv_heads, head_dim : int
        ``heads`` query heads share ``kv_heads`` key and value heads, ``head_dim`` elements each.
    vocab, context : int
        Tokens there are, and how many of them a text may have.
    rope_theta, norm_eps : float
        Base of the rotary angles; what RMSNorm adds to the mean square.
    tied : bool
        Whether the head is the embedding.
    scaling : Scaling, optional
        Of the rotary angles.
    unturned : tuple of int
        Layers without positions.
    score : float, optional
        Factor of the attention's scores; ``1 / sqrt(head_dim)`` unless given.
    biases : bool
        Whether the linears of :data:`BIASED` have biases.
    head_norms : bool
        Whether each head's queries and keys are normalised in front of the positions, with weights that the heads of
        a layer share.
    """

    name: str
    hidden: int
    inter: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    rope_theta: float
    norm_eps: float
    tied: bool
    scaling: Scaling | None = None
    unturned: tuple[int, ...] = ()
    score: float | None = None
    biases: bool = False
    head_norms: bool = False

    def __post_init__(self) -> None:
        check_shapes(vars(self))
        # Files of JSON have an object and a list.
        if isinstance(self.scaling, Mapping):
            object.__setattr__(self, "scaling", Scaling(**self.scaling))
        object.__setattr__(self, "unturned", tuple(self.unturned))

    @property
    def score_factor(self) -> float:
        """Factor of the attention's scores."""
        return self.head_dim**-0.5 if self.score is None else self.score

    def angles(self, count: int, start: int = 0) -> np.ndarray:
        """Rotary angles of ``count`` positions from ``start`` on, radians: ``[count, head_dim / 2]``.

        Element i of a head turns with element i + head_dim / 2. Layers of ``unturned`` have none.
        """
        frequencies = self.rope_theta ** (-np.arange(0, self.head_dim, 2, dtype=np.float64) / self.head_dim)
        if self.scaling is not None:
            frequencies = self.scaling.scaled(frequencies)
        return np.outer(np.arange(start, start + count), frequencies)

    @property
    def attention(self) -> int:
        """Elements of all query heads."""
        return self.heads * self.head_dim

    @property
    def kv(self) -> int:
        """Elements of all key heads, and of all value heads."""
        return self.kv_heads * self.head_dim

    @property
    def bias_elements(self) -> int:
        """Elements of a layer's biases."""
        return sum(self.shape(name)[0] for name in BIASED) if self.biases else 0

    def shape(self, projection: str) -> tuple[int, int]:
        """``(outputs, inputs)`` of a projection."""
        return {
            "q_proj": (self.attention, self.hidden),
            "k_proj": (self.kv, self.hidden),
            "v_proj": (self.kv, self.hidden),
            "o_proj": (self.hidden, self.attention),
            "gate_proj": (self.inter, self.hidden),
            "up_proj": (self.inter, self.hidden),
            "down_proj": (self.hidden, self.inter),
        }[projection]

    @cached_property
    def linears(self) -> tuple[LanguageLinear, ...]:
        """Every linear of every layer, in the order of a forward pass.

        The head is not among them.
        """
        return tuple(
            LanguageLinear(f"model.layers.{i}.{module}.{name}", *self.shape(name))
            for i in range(self.layers)
            for name, module in PROJECTIONS.items()
        )

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Shape of every tensor by Hugging Face's name.

        A tied head is not among them.
        """
        shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (self.vocab, self.hidden)}
        linears = {linear.name: linear for linear in self.linears}
        for i in range(self.layers):
            layer = f"model.layers.{i}"
            shapes[f"{layer}.input_layernorm.weight"] = (self.hidden,)
            for name, module in PROJECTIONS.items():
                linear = linears[f"{layer}.{module}.{name}"]
                shapes[f"{linear.name}.weight"] = (linear.outputs, linear.inputs)
                if self.biases and name in BIASED:
                    shapes[f"{linear.name}.bias"] = (linear.outputs,)
                if self.head_norms and name in HEAD_NORMS:
                    shapes[f"{layer}.{module}.{HEAD_NORMS[name]}.weight"] = (self.head_dim,)
            shapes[f"{layer}.post_attention_layernorm.weight"] = (self.hidden,)
        shapes[NORM] = (self.hidden,)
        if not self.tied:
            shapes[HEAD] = (self.vocab, self.hidden)
        return shapes

    @property
    def linear_parameters(self) -> int:
        """Weights in all linears."""
        return sum(linear.parameters for linear in self.linears)

    @property
    def parameters(self) -> int:
        """Everything; a tied head counts once."""
        return sum(int(np.prod(shape)) for shape in self.tensors.values())


#: Known by name, for a plan without weights.
BUILT_IN: Mapping[str, LanguageModel] = {
    model.name: model
    for model in (
        LanguageModel(
            name="tinyllama-1.1b",
            hidden=2048,
            inter=5632,
            layers=22,
            heads=32,
            kv_heads=4,
            head_dim=64,
            vocab=32000,
            context=2048,
            rope_theta=10000.0,
            norm_eps=1e-5,
            tied=False,
        ),
        LanguageModel(
            name="smollm2-135m",
            hidden=576,
            inter=1536,
            layers=30,
            heads=9,
            kv_heads=3,
            head_dim=64,
            vocab=49152,
            context=8192,
            rope_theta=100000.0,
            norm_eps=1e-5,
            tied=True,
        ),
        LanguageModel(
            name="smollm2-360m",
            hidden=960,
            inter=2560,
            layers=32,
            heads=15,
            kv_heads=5,
            head_dim=64,
            vocab=49152,
            context=8192,
            rope_theta=100000.0,
            norm_eps=1e-5,
            tied=True,
        ),
        LanguageModel(
            name="qwen2.5-0.5b",
            hidden=896,
            inter=4864,
            layers=24,
            heads=14,
            kv_heads=2,
            head_dim=64,
            vocab=151936,
            context=32768,
            rope_theta=1000000.0,
            norm_eps=1e-6,
            tied=True,
            biases=True,
        ),
        LanguageModel(
            name="llama-3.2-1b",
            hidden=2048,
            inter=8192,
            layers=16,
            heads=32,
            kv_heads=8,
            head_dim=64,
            vocab=128256,
            context=131072,
            rope_theta=500000.0,
            norm_eps=1e-5,
            tied=True,
            scaling=Scaling(factor=32.0, low=1.0, high=4.0, original=8192),
        ),
        LanguageModel(
            name="qwen3-0.6b",
            hidden=1024,
            inter=3072,
            layers=28,
            heads=16,
            kv_heads=8,
            head_dim=128,
            vocab=151936,
            context=40960,
            rope_theta=1000000.0,
            norm_eps=1e-6,
            tied=True,
            head_norms=True,
        ),
    )
}


class Checkpoint(Protocol):
    """A model with its weights, which are read from disk when asked for."""

    @property
    def model(self) -> LanguageModel:
        """The model as the file describes it."""

    @property
    def path(self) -> Path:
        """File or folder."""

    def tensor(self, name: str) -> np.ndarray:
        """A tensor as finite float32, by Hugging Face's name.

        Its orientation is also Hugging Face's, ``[out, in]``.
        """


def check_tensors(path: Path, model: LanguageModel, found: Mapping[str, tuple[int, ...]]) -> None:
    """Refuses a file whose tensors are not those of the model.

    It may lack a tensor, have one of another shape, or have one that this model cannot have. An embedding or head may
    have rows behind the vocabulary's (:func:`of_vocabulary`).
    """
    for name, shape in model.tensors.items():
        if name not in found:
            raise ValueError(f"{path}: has no tensor {name} ({list(shape)} is needed)")
        padded = name in (EMBEDDING, HEAD) and found[name][1:] == shape[1:] and found[name][0] >= shape[0]
        if found[name] != shape and not padded:
            raise ValueError(f"{path}: tensor {name} has shape {list(found[name])}: {list(shape)} is needed")
    # A head beside a tied embedding is the embedding again; old files carry the angles of the positions.
    harmless = re.compile(r"lm_head\.weight|.*rotary_emb\.inv_freq")
    strange = sorted(name for name in found.keys() - model.tensors.keys() if not harmless.fullmatch(name))
    if strange:
        raise ValueError(
            f"{path}: tensor {strange[0]} (of {len(strange)} such) has no place in a LLaMA model without biases"
        )


def of_vocabulary(model: LanguageModel, values: np.ndarray) -> np.ndarray:
    """Rows of an embedding or head without those that only pad it."""
    return values[: model.vocab]


def finite(path: Path, name: str, values: np.ndarray) -> np.ndarray:
    """``values``, refused if one of them is NaN or infinite."""
    good = np.isfinite(values)
    if not good.all():
        at = np.unravel_index(int(np.argmin(good)), values.shape)
        raise ValueError(
            f"{path}: tensor {name}[{', '.join(str(int(n)) for n in at)}] is {values[at]}: must be finite in float32"
        )
    return values


def small_parts(model: LanguageModel) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every tensor that is not a linear's."""
    linears = {f"{linear.name}.weight" for linear in model.linears}
    yield from ((name, shape) for name, shape in model.tensors.items() if name not in linears)
