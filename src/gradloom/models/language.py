"""A LLaMA-like language model: its shapes, its tensors by name."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gradloom.json_file import read_json

from .files.keys import shown

__all__ = [
    "BIASED",
    "BUILT_IN",
    "FUSED",
    "HEAD_NORMS",
    "Checkpoint",
    "LanguageModel",
    "LanguageLinear",
    "NORMS",
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
#: Linears of files that hold several of these, in the order of their rows.
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
#: A layer's norms by where they are; see :attr:`LanguageModel.layer_norms`.
NORMS: Mapping[str, Mapping[str, str]] = {
    "before": {"input_layernorm": "norm1", "post_attention_layernorm": "norm2"},
    "after": {"post_attention_layernorm": "norm3", "post_feedforward_layernorm": "norm4"},
    "both": {
        "input_layernorm": "norm1",
        "post_attention_layernorm": "norm3",
        "pre_feedforward_layernorm": "norm2",
        "post_feedforward_layernorm": "norm4",
    },
}
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
    ``low`` and ``high`` are None, all angles are divided: ``linear``. ``divisors``: of each pair's angle, for texts of
    at most ``original`` tokens, and ``size`` multiplies what is turned: ``longrope``.
    """

    factor: float = 1.0
    low: float | None = None
    high: float | None = None
    original: int | None = None
    divisors: tuple[float, ...] = ()
    size: float = 1.0

    def __post_init__(self) -> None:
        # Files of JSON have a list.
        object.__setattr__(self, "divisors", tuple(self.divisors))
        for field in ("factor", "low", "high", "original", "size"):
            value = getattr(self, field)
            if value is not None or field in ("factor", "size"):
                check_positive(field, value)
        for value in self.divisors:
            check_positive("short_factor", value)
        if self.low is not None and (self.high is None or self.original is None or self.low >= self.high):
            raise ValueError(f"low={self.low}: must be below high={self.high}")

    def scaled(self, frequencies: np.ndarray) -> np.ndarray:
        """Radians a token."""
        if self.divisors:
            return frequencies / np.array(self.divisors)
        if self.low is None or self.high is None or self.original is None:
            return frequencies / self.factor
        turns = self.original * frequencies / (2 * np.pi)
        share = np.clip((turns - self.low) / (self.high - self.low), 0, 1)
        return frequencies * (share + (1 - share) / self.factor)


@dataclass(frozen=True, kw_only=True)
class LanguageModel:
    """Shapes and constants of a decoder.

    It has RMSNorm, rotary positions, grouped-query attention and a gated feed-forward part.

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
    joint_norms : bool
        Whether all heads' queries are normalised together there, and all heads' keys.
    norms : str
        Where a layer's norms are: ``before`` attention and feed-forward part, ``after``, or ``both``.
    gate : str
        Activation of the gate: ``silu``, or ``gelu_tanh``.
    turned : int, optional
        Elements of a head that positions turn, the first ones; all unless given.
    local : tuple of int
        Layers whose rotary angles have the base ``local_theta`` and are not scaled.
    fused : bool
        Whether files have q, k and v in one linear, and gate and up in another: :data:`FUSED`.
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
    joint_norms: bool = False
    norms: str = "before"
    gate: str = "silu"
    turned: int | None = None
    local: tuple[int, ...] = ()
    local_theta: float | None = None
    fused: bool = False

    def __post_init__(self) -> None:
        check_shapes(vars(self))
        # Files of JSON have an object and a list.
        if isinstance(self.scaling, Mapping):
            object.__setattr__(self, "scaling", Scaling(**self.scaling))
        object.__setattr__(self, "unturned", tuple(self.unturned))
        object.__setattr__(self, "local", tuple(self.local))
        if self.scaling is not None and len(self.scaling.divisors) not in (0, self._turned // 2):
            raise ValueError(
                f"short_factor={shown(self.scaling.divisors)}: must be {self._turned // 2} numbers, one a turned pair"
            )

    @property
    def score_factor(self) -> float:
        """Factor of the attention's scores."""
        return self.head_dim**-0.5 if self.score is None else self.score

    @property
    def _turned(self) -> int:
        """Elements of a head that positions turn."""
        return self.head_dim if self.turned is None else self.turned

    @cached_property
    def places(self) -> np.ndarray | None:
        """Elements of a head as halves, of which element i turns with element i of the other half.

        None where a head has them so. Pairs that do not turn stand behind those that do.
        """
        if self._turned == self.head_dim:
            return None
        turned, rest = np.split(np.arange(self.head_dim), [self._turned])
        return np.concatenate([half for pair in zip(np.split(turned, 2), np.split(rest, 2)) for half in pair])

    def kind(self, layer: int) -> str:
        """Which angles a layer has: ``flat`` ones, which are 0, ``local`` ones, or those of most layers, ""."""
        return "flat" if layer in self.unturned else "local" if layer in self.local else ""

    def turns(self, count: int, start: int = 0, kind: str = "") -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines of ``count`` positions from ``start`` on, each ``[count, head_dim / 2]``.

        A column is a pair of :attr:`places`; they are multiplied by the size of what is turned. ``kind``: of layers.
        """
        size, theta = self._turned, self.rope_theta
        if kind == "local":
            assert self.local_theta is not None
            theta = self.local_theta
        frequencies = theta ** (-np.arange(0, size, 2, dtype=np.float64) / size)
        if self.scaling is not None and kind != "local":
            frequencies = self.scaling.scaled(frequencies)
        frequencies = np.pad(frequencies * (kind != "flat"), (0, (self.head_dim - size) // 2))
        radians = np.outer(np.arange(start, start + count), frequencies)
        factor = np.where(np.arange(self.head_dim // 2) < size // 2, self.turned_size, 1.0)
        return factor * np.cos(radians), factor * np.sin(radians)

    @property
    def turned_size(self) -> float:
        """Factor of queries and keys that turn."""
        return 1.0 if self.scaling is None else self.scaling.size

    @property
    def attention(self) -> int:
        """Elements of all query heads."""
        return self.heads * self.head_dim

    @property
    def kv(self) -> int:
        """Elements of all key heads, and of all value heads."""
        return self.kv_heads * self.head_dim

    @property
    def layer_norms(self) -> Mapping[str, str]:
        """Names of a layer's norms, with their place: 1 in front of attention, 2 of the feed-forward part.

        Behind attention it is 3, behind the feed-forward part 4.
        """
        return NORMS[self.norms]

    @property
    def normed(self) -> bool:
        """Whether queries and keys are normalised."""
        return self.head_norms or self.joint_norms

    def norm_features(self, projection: str) -> int:
        """Elements that a norm behind ``q_proj`` or ``k_proj`` takes together."""
        return self.shape(projection)[0] if self.joint_norms else self.head_dim

    @property
    def counted(self) -> int:
        """Elements of the residual stream that a norm's mean is over."""
        return self.hidden

    @property
    def head_eps(self) -> float:
        """``norm_eps`` of norms of queries and keys."""
        return self.norm_eps

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
            norms = {f"{layer}.{norm}.weight": place for norm, place in self.layer_norms.items()}
            shapes |= {name: (self.hidden,) for name, place in norms.items() if place == "norm1"}
            for name, module in PROJECTIONS.items():
                linear = linears[f"{layer}.{module}.{name}"]
                shapes[f"{linear.name}.weight"] = (linear.outputs, linear.inputs)
                if self.biases and name in BIASED:
                    shapes[f"{linear.name}.bias"] = (linear.outputs,)
                if self.normed and name in HEAD_NORMS:
                    shapes[f"{layer}.{module}.{HEAD_NORMS[name]}.weight"] = (self.norm_features(name),)
            shapes |= {name: (self.hidden,) for name, place in norms.items() if place != "norm1"}
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
    each["name"]: LanguageModel(**each) for each in read_json(Path(__file__).parent / "data/language_models.json")
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


def check_tensors(
    path: Path,
    model: LanguageModel,
    found: Mapping[str, tuple[int, ...]],
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> None:
    """Refuses a file whose tensors are not those of the model, or others that it needs: ``shapes``.

    It may lack a tensor, have one of another shape, or have one that this model cannot have. An embedding or head may
    have rows behind the vocabulary's (:func:`of_vocabulary`).
    """
    needed = model.tensors if shapes is None else shapes
    for name, shape in needed.items():
        if name not in found:
            raise ValueError(f"{path}: has no tensor {name} ({list(shape)} is needed)")
        padded = name in (EMBEDDING, HEAD) and found[name][1:] == shape[1:] and found[name][0] >= shape[0]
        if found[name] != shape and not padded:
            raise ValueError(f"{path}: tensor {name} has shape {list(found[name])}: {list(shape)} is needed")
    # A head beside a tied embedding is the embedding again; old files carry the angles of the positions.
    harmless = re.compile(r"lm_head\.weight|.*rotary_emb\.inv_freq")
    strange = sorted(name for name in found.keys() - needed.keys() if not harmless.fullmatch(name))
    if strange:
        raise ValueError(f"{path}: tensor {strange[0]} (of {len(strange)} such) has no place in this model")


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
