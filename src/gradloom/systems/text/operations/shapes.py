"""Bounds of a model's shapes that all machines have, and what it needs of one."""

from collections.abc import Iterator
from dataclasses import replace

from gradloom.models.filled import filled, source_of
from gradloom.models.language import LanguageModel
from gradloom.rtl.machines.configs.language import LanguageConfig

__all__ = ["odd_shapes", "paired", "suited"]

#: Elements of a head.
_MOST_ELEMENTS = 256


def suited(config: LanguageConfig, model: LanguageModel, **more: int) -> LanguageConfig:
    """A preset's machine with what a model needs, and ``more``: parameters that are 0 where nothing needs them."""
    return replace(config, **more, gelu=max(config.gelu, int(model.gate == "gelu_tanh")))


def paired(rank: int) -> int:
    """Rank of an adapter in a machine, which takes rank indices in pairs: an odd one has another of zeros."""
    return rank + rank % 2


def odd_shapes(model: LanguageModel) -> Iterator[tuple[str, int, str]]:
    """Fields of a model that fail the bounds of every machine.

    Yields field, value and bound. Shapes that are no whole tiles are filled with zeros.
    """
    if filled(model).head_dim > _MOST_ELEMENTS:
        yield "head_dim", source_of(model).head_dim, f"must be at most {_MOST_ELEMENTS}"
