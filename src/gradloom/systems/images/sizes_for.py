"""Chooses the smallest sizes of a design that hold a network."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from gradloom.models.network import LayerNetwork
from gradloom.models.onnx_import import load_onnx, load_pretrained
from gradloom.models.pictures import load_dataset
from gradloom.output import some
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.systems.asked import Asked

from .program.lowering import MAX_RANK, lower
from .program.sizes import SizeError
from .workload import ImageWorkload

__all__ = ["MAX_SAMPLES", "choose", "sizes"]

MAX_SAMPLES = 1 << 20


def choose(
    network: LayerNetwork, config: ImageConfig, *, rank: int, samples: int, fixed: Collection[str] = ()
) -> tuple[ImageConfig, dict[str, str]]:
    """The smallest configuration that fine-tunes ``network``.

    No field is below that of ``config``. The design has adapters of ``rank`` and keeps the activations of ``samples``
    samples, or of as many as any design keeps. Returns the configuration, and the purpose of each changed field.

    Fields in ``fixed`` stay: :class:`ValueError` names all that are too small. :class:`SizeError` names sizes beyond
    those of any design.
    """
    why: dict[str, str] = {}
    while True:
        changes: dict[str, tuple[int, str]] = {}
        try:
            lower(network, config, rank)
        except SizeError as error:
            if error.changes is None:
                raise
            changes |= error.changes
        # A group of rows is kept beside the samples. Fewer slots cost time, and are no fault of who sets them.
        slots = min(samples + config.rows, ImageConfig.largest("cache_slots"))
        if config.cache_slots < slots and "cache_slots" not in fixed:
            changes["cache_slots"] = slots, f"{samples:,} samples and a group of {config.rows}"
        if not changes:
            return config, why
        short = [
            f"{field}={getattr(config, field)}: {network.name} at rank {rank} needs {value} ({unit})"
            for field, (value, unit) in changes.items()
            if field in fixed
        ]
        if short:
            raise ValueError("; ".join(short))
        config = config.replace(**{field: value for field, (value, _) in changes.items()})
        why |= {field: unit for field, (_, unit) in changes.items()}


def sizes(
    asked: Asked,
    config: ImageConfig,
    fixed: Collection[str],
    *,
    rank: int | None = None,
    data: Path | str | None = None,
    samples: int | None = None,
) -> tuple[ImageConfig, dict[str, Any]]:
    """The configuration for a network, at least ``config``, and its report.

    ``rank``: of its adapters, else the preset's. ``data``: an .npz file with the images that it learns from;
    ``samples``: how many those are, without ``data``; else as many as the preset's.

    The report's ``expects`` is what the design's own forecast is of.
    """
    workload = asked.preset.workload
    assert isinstance(workload, ImageWorkload)
    for name, value, most in (("rank", rank, MAX_RANK), ("samples", samples, MAX_SAMPLES)):
        if value is not None and not 1 <= value <= most:
            raise ValueError(f"{name}={value}: must be from 1 to {most}")
    if data is not None and samples is not None:
        raise ValueError(f"samples={samples}: {data} says how many there are, give one of the two")
    network = load_pretrained(workload.network) if asked.model is None else load_onnx(Path(asked.model))
    rank = workload.rank if rank is None else rank
    samples = workload.samples if samples is None else samples
    if data is not None:
        samples = len(load_dataset(Path(data), network.input_shape, network.classes).x_train)
    chosen, why = choose(network, config, rank=rank, samples=samples, fixed=fixed)
    return chosen, {
        "network": network.name,
        "rank": rank,
        "samples": samples,
        "at": f" at rank {rank}, {some(samples, 'image')}",
        "chosen": {
            field: {"value": getattr(chosen, field), "preset": getattr(asked.preset.config, field), "for": unit}
            for field, unit in why.items()
        },
        "expects": {"model": asked.model, "rank": rank, "samples": samples},
    }
