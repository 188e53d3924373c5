"""Adapters from a language model's blocks to its head, on disk.

The files are named as PEFT names its own, but PEFT has no such adapter: ``peft_type`` says what they are, and so do the
tensors' names, ``instantft.layers.K.A`` (``[rank, hidden]``) and ``.B`` (``[hidden, rank]``).
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...files.keys import shown
from ...language import LanguageModel
from ..config import scale_of
from ..lora import Adapter, adapter_of
from ..peft import about, read_config, read_peft
from ..peft_files import CONFIG, WEIGHTS, check_array, write_peft

__all__ = ["KIND", "fresh_instant", "holds_instant", "key", "load_instant", "save_instant"]

#: What the config calls them.
KIND = "GRADLOOM_INSTANTFT"


def key(layer: int, which: str) -> str:
    """Name of a block's ``"A"`` or ``"B"``."""
    return f"instantft.layers.{layer}.{which}"


def fresh_instant(
    model: LanguageModel, *, rank: int = 8, layers: int | None = None, seed: int = 0
) -> dict[int, Adapter]:
    """New adapters by block: A as PEFT draws it, B zero.

    A is uniform in ±1/√hidden; alpha is twice the rank.
    """
    if rank < 1:
        raise ValueError(f"rank={rank}: must be at least 1")
    random, hidden = np.random.default_rng(seed), model.hidden
    return {
        layer: Adapter(
            random.uniform(-(hidden**-0.5), hidden**-0.5, (rank, hidden)).astype(np.float32),
            np.zeros((hidden, rank), np.float32),
            2.0,
        )
        for layer in range(model.layers if layers is None else layers)
    }


def save_instant(folder: str | Path, model: LanguageModel, adapters: Mapping[int, Adapter]) -> tuple[Path, Path]:
    """Writes adapters of one rank and one scale as float32.

    Returns both files' paths.
    """
    shapes = {(each.rank, each.scale) for each in adapters.values()}
    if len(shapes) != 1:
        raise ValueError(f"adapters has {len(shapes)} different ranks or scales: 1 is needed")
    rank, scale = next(iter(shapes))
    tensors = {}
    for layer, each in adapters.items():
        for which, array, shape in (("A", each.a, (rank, model.hidden)), ("B", each.b, (model.hidden, rank))):
            check_array(key(layer, which), array, shape)
            tensors[key(layer, which)] = array
    return write_peft(
        folder,
        tensors,
        {
            "base_model_name_or_path": model.name,
            "inference_mode": True,
            "layers": sorted(adapters),
            "lora_alpha": scale * rank,
            "peft_type": KIND,
            "r": rank,
            "task_type": "CAUSAL_LM",
        },
    )


def holds_instant(folder: str | Path) -> bool:
    """Whether a folder has an adapter that says it is of this kind."""
    try:
        return bool(read_config(folder)["peft_type"] == KIND)
    except ValueError:
        return False


def load_instant(folder: str | Path, model: LanguageModel, *, rank: int | None = None) -> dict[int, Adapter]:
    """Adapters by block, float32.

    :class:`ValueError` if they are of another kind, as PEFT's are, of another model or, where ``rank`` is given, of
    another rank.
    """
    config, tensors = read_peft(folder, KIND)
    with about(folder):
        return _adapters(config, tensors, model, rank)


def _adapters(
    config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], model: LanguageModel, wanted: int | None
) -> dict[int, Adapter]:
    rank, scale = config["r"], scale_of(config)
    if wanted is not None and rank != wanted:
        raise ValueError(f"r={rank}: rank {wanted} is needed")
    layers = config.get("layers")
    if not isinstance(layers, list) or not layers or layers != list(range(len(layers))) or len(layers) > model.layers:
        raise ValueError(f"{CONFIG}: layers={shown(layers)}: must be the first of {model.layers}, in order")
    expected = {key(layer, which) for layer in layers for which in "AB"}
    if expected != set(tensors):
        strange = sorted(expected ^ set(tensors))
        raise ValueError(
            f"{WEIGHTS}: has {len(tensors)} tensors, {len(expected)} are expected; {strange[0]} is not in both"
        )
    return {
        layer: adapter_of(tensors, partial(key, layer), rank, model.hidden, model.hidden, scale) for layer in layers
    }
