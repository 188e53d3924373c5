"""Reads and writes LoRA adapters in PEFT's format."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gradloom.output import some

from ..files.keys import shown
from ..language import PROJECTIONS, LanguageLinear, LanguageModel
from .config import DIRECT, TOPOLOGY_KEY, kind_of, rank_of, scale_of, targeted
from .language.fused import apart, of_files, together
from .peft import about, check_names, in_file, read_peft
from .peft_files import CONFIG, check_array, key, representable, write_peft

__all__ = [
    "Adapter",
    "LearntModule",
    "adapter_of",
    "check_uniform",
    "finite",
    "fresh_lora",
    "layer_of",
    "linears_of",
    "load_lora",
    "lowest_layer",
    "save_lora",
]


@dataclass(frozen=True)
class Adapter:
    """Adds ``scale · B A`` to a linear.

    ``a [rank, inputs]``, ``b [outputs, rank]``, ``scale`` alpha / rank or, with rsLoRA, alpha / √rank.
    """

    a: np.ndarray
    b: np.ndarray
    scale: float

    @property
    def rank(self) -> int:
        """Rows of A."""
        return len(self.a)

    @property
    def parts(self) -> dict[str, np.ndarray]:
        """What learns, by name."""
        return {"a": self.a, "b": self.b}

    def taking(self, parts: Mapping[str, np.ndarray]) -> "Adapter":
        """The same with other values."""
        return Adapter(parts["a"], parts["b"], self.scale)


def adapter_of(
    tensors: Mapping[str, np.ndarray], name: Callable[[str], str], rank: int, inputs: int, outputs: int, scale: float
) -> Adapter:
    """The adapter of ``name("A")`` and ``name("B")``, float32.

    :class:`ValueError` if they are not of these sizes.
    """
    a, b = (tensors[name(which)] for which in "AB")
    check_array(name("A"), a, (rank, inputs))
    check_array(name("B"), b, (outputs, rank))
    if not representable(np.multiply(b, scale, dtype=np.float64)):
        raise ValueError(f"{name('B')}: is beyond float32 times its scale {scale:g}; make lora_alpha smaller")
    return Adapter(a.astype(np.float32), b.astype(np.float32), scale)


def linears_of(model: LanguageModel, projections: Iterable[str], layers: Iterable[int]) -> list[LanguageLinear]:
    """Linears of projections and layers, in the order of a forward pass."""
    wanted = set(projections)
    prefixes = tuple(f"model.layers.{i}." for i in layers)
    return [each for each in model.linears if each.projection in wanted and each.name.startswith(prefixes)]


def fresh_lora(
    model: LanguageModel,
    *,
    rank: int = 8,
    alpha: float | None = None,
    targets: Iterable[str] = ("q_proj", "v_proj"),
    layers: Iterable[int] | None = None,
    seed: int = 0,
    rslora: bool = False,
) -> dict[str, Adapter]:
    """New adapters by linear: A as PEFT draws it, B zero.

    A is uniform in ±1/√inputs. ``alpha`` is twice the rank unless given; ``layers`` are all of them. Their scale is
    alpha / rank, with ``rslora`` alpha / √rank.
    """
    if rank < 1:
        raise ValueError(f"rank={rank}: must be at least 1")
    random = np.random.default_rng(seed)
    scale = (2 * rank if alpha is None else alpha) / (math.sqrt(rank) if rslora else rank)
    adapters = {}
    for linear in linears_of(model, targets, range(model.layers) if layers is None else layers):
        bound = linear.inputs**-0.5
        a = random.uniform(-bound, bound, (rank, linear.inputs)).astype(np.float32)
        adapters[linear.name] = Adapter(a, np.zeros((linear.outputs, rank), np.float32), scale)
    return adapters


def layer_of(name: str) -> int:
    """Number of the layer of a module, from its name."""
    return int(name.split(".")[2])


def lowest_layer(adapters: Iterable[str]) -> int:
    """The lowest layer that learns.

    ``adapters`` : names of modules; 0 where none of them is in a layer.
    """
    return min((layer_of(name) for name in adapters if name.startswith("model.layers.")), default=0)


class LearntModule(Protocol):
    """What learns at a module: an adapter or a :class:`~.vectors.Vector`."""

    @property
    def parts(self) -> dict[str, np.ndarray]:
        """Arrays by name."""

    def taking(self, parts: Mapping[str, np.ndarray]) -> "LearntModule":
        """The same with other values."""


def finite(adapters: Mapping[Any, LearntModule]) -> bool:
    """Whether all values are, in float32 as files hold them."""
    return all(representable(array) for each in adapters.values() for array in each.parts.values())


def single(adapters: Mapping[Any, LearntModule]) -> dict[Any, LearntModule]:
    """The same in float32, as files hold them."""
    return {
        name: each.taking({which: values.astype(np.float32) for which, values in each.parts.items()})
        for name, each in adapters.items()
    }


class _Ranked(Protocol):
    """An adapter with a rank and a scale."""

    @property
    def rank(self) -> int: ...

    @property
    def scale(self) -> float: ...


def _shape(adapter: _Ranked) -> tuple[int, float]:
    return adapter.rank, adapter.scale


def check_uniform(model: LanguageModel, adapters: Mapping[str, _Ranked]) -> tuple[list[str], list[int]]:
    """Projections and layers of adapters that can learn together.

    :class:`ValueError` unless they have one rank and one scale, and the same projections in each of their layers.
    """
    if not adapters:
        raise ValueError("adapters has none: at least 1 is needed")
    shapes = {_shape(each) for each in adapters.values()}
    if len(shapes) > 1:
        told = ", ".join(f"{rank} with {scale:g}" for rank, scale in sorted(shapes))
        raise ValueError(f"adapters has different ranks or scales ({told}): a fine-tune has one; merge takes all")
    projections = [name for name in PROJECTIONS if any(each.endswith(f".{name}") for each in adapters)]
    layers = sorted({layer_of(name) for name in adapters})
    expected = {each.name for each in linears_of(model, projections, layers)}
    if expected != set(adapters):
        raise ValueError(
            f"adapters has {len(adapters)} linears: {', '.join(projections)} in {some(len(layers), 'layer')} are "
            f"{len(expected)}, and a fine-tune needs the same in each layer; merge takes all"
        )
    return projections, layers


def save_lora(
    folder: str | Path, model: LanguageModel, adapters: Mapping[str, Adapter], *, base: str | None = None
) -> tuple[Path, Path]:
    """Writes the adapters as float32 for PEFT and returns both files' paths.

    They must have one rank and one scale, and the same projections in each of their layers. ``base`` is what
    the config calls the model, by default its name.
    """
    projections, layers = check_uniform(model, adapters)
    rank, scale = _shape(next(iter(adapters.values())))
    for linear in linears_of(model, projections, layers):
        for which, array, shape in _parts(linear, rank, adapters[linear.name]):
            check_array(key(linear.name, which), array, shape)
    held = together(model, adapters)
    tensors = {
        key(name, which): array for name, each in held.items() for which, array in (("A", each.a), ("B", each.b))
    }
    ranks = {name.rpartition(".")[2]: each.rank for name, each in held.items()}
    usual = min(ranks.values())
    config = {
        "base_model_name_or_path": base or model.name,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "layers_to_transform": None if len(layers) == model.layers else layers,
        "lora_alpha": _alpha(scale, usual),
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": usual,
        "target_modules": list(ranks),
        "task_type": "CAUSAL_LM",
    }
    others = {name: each for name, each in ranks.items() if each != usual}
    if others:
        config |= {
            "rank_pattern": others,
            "alpha_pattern": {name: _alpha(scale, each) for name, each in others.items()},
        }
    return write_peft(folder, tensors, config)


def _alpha(scale: float, rank: int) -> float:
    return int(scale * rank) if float(scale * rank).is_integer() else scale * rank


def _parts(linear: LanguageLinear, rank: int, adapter: Adapter) -> Iterable[tuple[str, np.ndarray, tuple[int, int]]]:
    yield "A", np.asarray(adapter.a), (rank, linear.inputs)
    yield "B", np.asarray(adapter.b), (linear.outputs, rank)


def load_lora(folder: str | Path, model: LanguageModel, *, rank: int | None = None) -> dict[str, Adapter]:
    """Adapters by linear, float32, in the order of a forward pass.

    :class:`ValueError` if they are of another model or, where ``rank`` is given, of another rank; or if the
    config asks for something that plain LoRA is not.
    """
    config, tensors = read_peft(folder, "LORA")
    with about(folder):
        return _adapters(config, tensors, model, rank)


def _adapters(
    config: dict[str, Any], tensors: Mapping[str, np.ndarray], model: LanguageModel, wanted: int | None
) -> dict[str, Adapter]:
    if kind_of(config) is DIRECT:
        raise ValueError(
            f"{CONFIG}: {TOPOLOGY_KEY}={shown(config[TOPOLOGY_KEY])}: is of a network of images, not of {model.name}"
        )
    linears = of_files(model)
    names = in_file(tensors, [each.name for each in linears])
    modules = targeted(config, [*names.values(), "lm_head"], names.values())
    if "lm_head" in modules:
        named = shown(config.get("target_modules"))
        raise ValueError(f"target_modules={named}: names lm_head, which has no adapter here")
    check_names(tensors, (key(name, which) for name in modules for which in "AB"), model.name)
    made = {}
    for linear in linears:
        name = names[linear.name]
        if name in modules:
            rank = rank_of(config, name)
            if wanted is not None and rank != wanted:
                raise ValueError(f"r={rank}: rank {wanted} is needed")
            made[linear.name] = adapter_of(
                tensors, partial(key, name), rank, linear.inputs, linear.outputs, scale_of(config, name)
            )
    return apart(model, made)
