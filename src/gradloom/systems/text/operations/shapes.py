"""Bounds of a model's shapes that all machines have, and the machine that a model needs."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from gradloom.models.filled import filled, source_of
from gradloom.models.language import PROJECTIONS, LanguageModel
from gradloom.rtl.formats.weights.blocks import GROUP
from gradloom.rtl.machines.configs.language import LanguageConfig

from .tensors import EDGE

__all__ = ["larger", "needs", "odd_shapes", "paired", "suited"]

#: Elements of a head.
_MOST_ELEMENTS = 256


def needs(
    config: LanguageConfig, model: LanguageModel, *, rank: int = 0, targets: Sequence[str] = ()
) -> dict[str, tuple[int, str]]:
    """Parameters that a model and adapters of a rank need: each with its least value, and what it is for.

    ``targets``: projections with adapters of the rank.
    """
    model = filled(model)
    tiles = {name: [size // EDGE for size in model.shape(name)] for name in PROJECTIONS}
    rows = max(model.hidden, model.attention if model.joint_norms else 0)
    groups = max(-(-outputs * inputs * EDGE // GROUP) for outputs, inputs in tiles.values())
    even = min(paired(rank), config.most_rank) if targets else 0
    lanes = max((sum(tiles[name]) * even for name in targets), default=0)
    return {
        "gelu": (int(model.gate == "gelu_tanh"), "GELU"),
        "features": (rows, f"norms of {rows:,} elements"),
        "groups": (groups, f"{groups:,} second-level scales"),
        "rank": (even, f"rank {rank}"),
        "lane_depth": (lanes, f"{lanes:,} words of adapters"),
    }


def suited(
    config: LanguageConfig, model: LanguageModel, *, rank: int = 0, targets: Sequence[str] = (), **more: int
) -> LanguageConfig:
    """A machine with what a model and adapters need, as far as parameters reach: each is at least ``config``'s.

    ``more``: other parameters with their least values.
    """
    wanted = {name: least for name, (least, _) in needs(config, model, rank=rank, targets=targets).items()} | more
    return replace(
        config,
        **{
            name: config.smallest(name, least) or config.largest(name)
            for name, least in wanted.items()
            if least > getattr(config, name)
        },
    )


def larger(config: LanguageConfig, than: LanguageConfig) -> dict[str, int]:
    """Parameters of a machine that another one has otherwise."""
    return {name: value for name, value in asdict(config).items() if value != getattr(than, name)}


def paired(rank: int) -> int:
    """Rank of an adapter in a machine, which takes rank indices in pairs: an odd one has another of zeros."""
    return rank + rank % 2


def odd_shapes(model: LanguageModel) -> Iterator[tuple[str, int, str]]:
    """Fields of a model that fail the bounds of every machine.

    Yields field, value and bound. Shapes that are no whole tiles are filled with zeros.
    """
    if filled(model).head_dim > _MOST_ELEMENTS:
        yield "head_dim", source_of(model).head_dim, f"must be at most {_MOST_ELEMENTS}"
