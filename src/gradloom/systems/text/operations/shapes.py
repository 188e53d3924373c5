"""Bounds of a model's shapes that all machines have, and what it needs of one."""

from collections.abc import Iterator
from dataclasses import replace

from gradloom.models.language import LanguageModel
from gradloom.rtl.machines.configs.language import LanguageConfig

from .tensors import EDGE

__all__ = ["odd_shapes", "suited"]

#: Elements of a head.
_MOST_ELEMENTS = 256


def suited(config: LanguageConfig, model: LanguageModel, **more: int) -> LanguageConfig:
    """A preset's machine with what a model needs, and ``more``: parameters that are 0 where nothing needs them."""
    return replace(config, **more, gelu=max(config.gelu, int(model.gate == "gelu_tanh")))


def odd_shapes(model: LanguageModel) -> Iterator[tuple[str, int, str]]:
    """Fields of a model that fail the bounds of every machine.

    Yields field, value and bound.
    """
    for field in ("hidden", "inter"):
        if getattr(model, field) % EDGE:
            yield field, getattr(model, field), f"must be a multiple of {EDGE}"
    if model.head_dim % EDGE or model.head_dim > _MOST_ELEMENTS:
        yield "head_dim", model.head_dim, f"must be a multiple of {EDGE}, at most {_MOST_ELEMENTS}"
