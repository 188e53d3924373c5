"""Chooses the smallest sizes of a design that hold a recurrent network."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.models.network import LayerNetwork
from gradloom.models.recurrent.network import RecurrentNetwork
from gradloom.models.recurrent.stored import load_network
from gradloom.models.recurrent.taps import QUARTERS, TapSums, parts_of, tap_network
from gradloom.models.sequences import load_sequences
from gradloom.output import some
from gradloom.preset import Preset
from gradloom.systems.asked import Asked
from gradloom.systems.images.sizes_for import choose as choose_learning

from .program.image import CellImage
from .program.room import RoomError
from .workload import SequenceWorkload

__all__ = ["chosen", "held", "sizes", "told", "zero_taps"]

Why = dict[str, tuple[int, str]]


def chosen(
    network: RecurrentNetwork,
    preset: Preset,
    config: Any,
    *,
    fixed: Collection[str] = (),
    rank: int | None = None,
    samples: int = 1,
) -> tuple[Any, Why]:
    """The smallest configuration that runs a network, and learns where the preset does.

    No field is below that of ``config``. Returns it, and each changed field's value and purpose.

    Fields in ``fixed`` stay: a refusal (:class:`~.program.room.RoomError`) names all that are too small. A network
    whose logits adapters cannot reach gets a design that answers. ``rank`` of adapters: None is the preset's.
    """
    config, why = _running(network, config, fixed)
    workload = preset.workload
    taps = zero_taps(network, config) if isinstance(workload, SequenceWorkload) else None
    if taps is None:
        return config, why
    rank = workload.rank if rank is None else rank
    config, more = choose_learning(taps, config, rank=rank, samples=samples, fixed=fixed)
    return config, why | {field: (getattr(config, field), what) for field, what in more.items()}


def _running(network: RecurrentNetwork, config: Any, fixed: Collection[str]) -> tuple[Any, Why]:
    why: Why = {}
    while True:
        try:
            image = CellImage(network, config)
            image.check()
            if config.tap_channels:
                image.check_tap_room()
        except RoomError as error:
            if not error.changes or any(field in fixed for field in error.changes):
                raise
            config = config.replace(**{field: value for field, (value, _) in error.changes.items()})
            why |= error.changes
        else:
            return config, why


def zero_taps(network: RecurrentNetwork, config: Any) -> LayerNetwork | None:
    """What the taps of a network reach, with weights of 0; None where adapters cannot reach its logits."""
    try:
        parts = parts_of(network, config.parallel)
        made = tap_network(network, TapSums(parts=parts, shifts=(0,) * len(parts)), QUARTERS)
    except ValueError:
        return None
    # Scales, which are not known yet, change no size.
    layers = [replace(each, weight=np.zeros_like(each.weight), bias=np.zeros_like(each.bias)) for each in made.layers]
    return replace(made, layers=tuple(layers))


def held(preset: Preset, model: str) -> tuple[Any, str]:
    """A preset's configuration for a model, and the fields that differ, in words.

    What no design holds is refused where a design is needed.
    """
    try:
        config, why = chosen(load_network(model), preset, preset.config)
    except ValueError:
        return preset.config, ""
    return config, told(why)


def told(why: Why) -> str:
    """Changed fields, in words."""
    return ", ".join(f"{field}={value} ({what})" for field, (value, what) in why.items())


def sizes(
    asked: Asked,
    config: Any,
    fixed: Collection[str],
    *,
    rank: int | None = None,
    data: Path | str | None = None,
    samples: int | None = None,
) -> tuple[Any, dict[str, Any]]:
    """The configuration for a network, at least ``config``, and its report; see :func:`chosen`.

    ``data``: sequences that it learns from; ``samples``: how many those are, without ``data``.
    """
    workload = asked.preset.workload
    if not workload.can("finetune"):
        for name, value in (("rank", rank), ("data", data), ("samples", samples)):
            if value is not None:
                raise ValueError(f"{name}={value}: must be left out, {asked.preset.name} answers and does not learn")
    if asked.model is None:
        return config, {"network": workload.ships, "chosen": {}}
    network = load_network(asked.model)
    if data is not None:
        found = load_sequences(
            Path(data), classes=network.classes or 0, channels=network.channels, tokens=network.tokens
        )
        samples = len(found.x_train)
    made, why = chosen(network, asked.preset, config, fixed=fixed, rank=rank, samples=samples or 1)
    at = "" if samples is None else f" that learns from {some(samples, 'sequence')}"
    return made, {
        "network": network.name,
        "at": at,
        "chosen": {
            field: {"value": value, "preset": getattr(asked.preset.config, field), "for": what}
            for field, (value, what) in why.items()
        },
    }
