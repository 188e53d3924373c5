"""The order of a head's elements in the machine.

Positions turn element i of a head with element i + head_dim / 2. The vector engine turns the halves of a tile with each
other. Queries and keys of the machine therefore have both elements of 32 pairs in each tile of a head; pairs that do
not turn have the angle 0. Scores do not
see an order that queries and keys share. Files and floating-point models have the elements as Hugging Face has them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from gradloom.models.adapters.language.vectors import Vector
from gradloom.models.adapters.lora import LearntModule
from gradloom.models.language import LanguageModel

from .operations.tensors import EDGE

__all__ = ["arranged", "order", "restored"]

_Learnt = TypeVar("_Learnt", bound=LearntModule)
#: Modules whose outputs have the machine's order, with the linear that makes them.
_TURNED = {"q_proj": "q_proj", "k_proj": "k_proj", "q_norm": "q_proj", "k_norm": "k_proj"}


def order(model: LanguageModel, module: str) -> np.ndarray | None:
    """Which output of a module is each of the machine's; None where the machine has them as they are."""
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
    """What learns, by module, as the machine has it."""
    return {name: _taken(each, order(model, name)) for name, each in adapters.items()}


def restored(model: LanguageModel, adapters: Mapping[str, _Learnt]) -> dict[str, _Learnt]:
    """The same as files have it."""
    orders = {name: order(model, name) for name in adapters}
    return {name: _taken(adapters[name], None if rows is None else np.argsort(rows)) for name, rows in orders.items()}


def _taken(each: Any, rows: np.ndarray | None) -> Any:
    if rows is None:
        return each
    field = "values" if isinstance(each, Vector) else "b"
    return replace(each, **{field: getattr(each, field)[rows]})
