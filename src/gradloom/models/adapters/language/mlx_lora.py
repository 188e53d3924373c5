"""Writes LoRA adapters of language models as mlx-lm reads them.

``adapters.safetensors`` has ``NAME.lora_a [inputs, rank]`` and ``NAME.lora_b [rank, outputs]`` by module, float32;
mlx-lm adds ``scale · x lora_a lora_b``. ``adapter_config.json`` names the modules of a layer, and counts layers from
the last one.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ...files.tensors import write_safetensors
from ...language import PROJECTIONS, LanguageModel
from ..lora import Adapter, lowest_layer
from .fused import check_apart

__all__ = ["write_mlx_lora"]


def write_mlx_lora(folder: Path, model: LanguageModel, adapters: Mapping[str, Adapter]) -> None:
    """Writes both files of adapters by linear.

    mlx-lm has one rank and one scale for all: of another scale than the first adapter's B has the rest, and another
    rank is refused by its linear.
    """
    if not adapters:
        raise ValueError("adapters has none: at least 1 is needed")
    check_apart(model, "an adapter of mlx-lm")
    first = next(iter(adapters.values()))
    tensors: dict[str, tuple[np.ndarray, str]] = {}
    for name, each in adapters.items():
        if each.rank != first.rank:
            raise ValueError(f"{name}: rank={each.rank}: must be {first.rank} as of others, mlx-lm has one for all")
        b = np.asarray(each.b, np.float32)
        if each.scale != first.scale:
            with np.errstate(over="ignore"):
                b = b * np.float32(each.scale / first.scale)
        if not np.isfinite(b).all() or not np.isfinite(each.a).all():
            raise ValueError(f"{name}: has a value that float32 does not hold")
        tensors[f"{name}.lora_a"] = np.ascontiguousarray(each.a.T, np.float32), "float32"
        tensors[f"{name}.lora_b"] = np.ascontiguousarray(b.T), "float32"
    used = {name.rsplit(".", 1)[-1] for name in adapters}
    config = {
        "fine_tune_type": "lora",
        "model": model.name,
        "num_layers": model.layers - lowest_layer(adapters),
        "lora_parameters": {
            "rank": first.rank,
            "scale": first.scale,
            "dropout": 0.0,
            "keys": [f"{module}.{name}" for name, module in PROJECTIONS.items() if name in used],
        },
    }
    write_safetensors(folder / "adapters.safetensors", tensors)
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
