"""The order of a head's elements in the machine.

Positions turn element i of a head with element i + head_dim / 2. The vector engine turns the halves of a tile with each
other. Queries and keys of the machine therefore have both elements of 32 pairs in each tile of a head; pairs that do
not turn have the angle 0. Scores do not
see an order that queries and keys share. Files and floating-point models have the elements as Hugging Face has them,
without the zeros that fill tiles, and ranks as they are: the machine's adapters have pairs of rank indices.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from gradloom.models.adapters.language.lora_xs import CoreAdapter
from gradloom.models.adapters.language.vectors import Vector
from gradloom.models.adapters.lora import Adapter, LearntModule
from gradloom.models.filled import cut, fill, filled, shapes_of
from gradloom.models.language import LanguageModel

from .operations.shapes import paired
from .operations.tensors import EDGE

__all__ = ["arranged", "order", "restored"]

_Learnt = TypeVar("_Learnt", bound=LearntModule)
#: Modules whose outputs have the machine's order, with the linear that makes them.
_TURNED = {"q_proj": "q_proj", "k_proj": "k_proj", "q_norm": "q_proj", "k_norm": "k_proj"}


def order(model: LanguageModel, module: str) -> np.ndarray | None:
    """Which output of a filled module is each of the machine's; None where the machine has them as they are."""
    model = filled(model)
    last = module.rpartition(".")[2]
    # Other heads no machine takes.
    if last not in _TURNED or model.head_dim % EDGE or (model.head_dim == EDGE and model.places is None):
        return None
    projection = _TURNED[last]
    count = model.shape(projection)[0] if last == projection else model.norm_features(projection)
    heads = np.arange(count).reshape(-1, model.head_dim)
    if model.places is not None:
        heads = heads[:, model.places]
    return heads.reshape(-1, 2, model.head_dim // EDGE, EDGE // 2).swapaxes(1, 2).reshape(-1)


def arranged(model: LanguageModel, adapters: Mapping[str, _Learnt]) -> dict[str, _Learnt]:
    """What learns, by module, as the machine has it: filled, and in its order."""
    whole = filled(model)
    return {name: _taken(_filled(whole, name, each), order(whole, name)) for name, each in adapters.items()}


def restored(model: LanguageModel, adapters: Mapping[str, _Learnt], rank: int | None = None) -> dict[str, _Learnt]:
    """The same as files have it; ``rank``: of adapters, where it is odd."""
    whole, made = filled(model), {}
    for name, each in adapters.items():
        rows = order(whole, name)
        made[name] = _cut(whole, name, _taken(each, None if rows is None else np.argsort(rows)), rank)
    return made


def _taken(each: Any, rows: np.ndarray | None) -> Any:
    if rows is None:
        return each
    field = "values" if isinstance(each, Vector) else "b"
    return replace(each, **{field: getattr(each, field)[rows]})


def _vector_shape(name: str) -> str:
    """The shape that a module's vector is a multiple of: factors are of outputs, but of ``down_proj`` of inputs."""
    return shapes_of(name)[name.endswith("down_proj")]


def _filled(whole: LanguageModel, name: str, each: Any) -> Any:
    outputs, inputs = shapes_of(name)
    if isinstance(each, Vector):
        return replace(each, values=fill(whole, each.values, _vector_shape(name)))
    gap = 0, paired(each.rank) - each.rank
    made = {
        "a": np.pad(fill(whole, each.a, None, inputs), (gap, (0, 0))),
        "b": np.pad(fill(whole, each.b, outputs, None), ((0, 0), gap)),
    }
    if isinstance(each, CoreAdapter):
        made["r"] = np.pad(each.r, (gap, gap))
    return replace(each, **made)


def _cut(whole: LanguageModel, name: str, each: Any, rank: int | None) -> Any:
    outputs, inputs = shapes_of(name)
    if isinstance(each, Vector):
        return replace(each, values=cut(whole, each.values, _vector_shape(name)))
    assert isinstance(each, Adapter)
    return replace(each, a=cut(whole, each.a[:rank], None, inputs), b=cut(whole, each.b[:, :rank], outputs, None))
