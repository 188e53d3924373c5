"""Chooses the smallest sizes of a design that hold a network."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradloom.models.datasets import load_npz
from gradloom.models.network import Network
from gradloom.models.onnx_import import load_onnx
from gradloom.preset import Preset
from gradloom.rtl.machines.configs.images import ImageConfig

from .program.lowering import MAX_RANK, lower
from .program.sizes import SizeError
from .workload import ImageWorkload

__all__ = ["MAX_SAMPLES", "SizesFor", "choose"]

MAX_SAMPLES = 1 << 20


def choose(
    network: Network, config: ImageConfig, *, rank: int, samples: int, fixed: Collection[str] = ()
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


@dataclass(frozen=True, kw_only=True)
class SizesFor:
    """The fine-tune that a design is generated for.

    Parameters
    ----------
    model : Path
        An .onnx file.
    rank : int, optional
        Else the preset's.
    data : Path, optional
        An .npz file with the images that it learns from.
    samples : int, optional
        How many those are, without ``data``; else as many as the preset's.
    """

    model: Path
    rank: int | None = None
    data: Path | None = None
    samples: int | None = None

    def __post_init__(self) -> None:
        for name, value, most in (("rank", self.rank, MAX_RANK), ("samples", self.samples, MAX_SAMPLES)):
            if value is not None and not 1 <= value <= most:
                raise ValueError(f"{name}={value}: must be from 1 to {most}")
        if not self.model.is_file():
            raise ValueError(f"for={self.model}: no such file")
        if self.data is not None and self.samples is not None:
            raise ValueError(f"samples={self.samples}: {self.data} says how many there are, give one of the two")

    def choose(self, preset: Preset, config: ImageConfig, fixed: Collection[str]) -> tuple[ImageConfig, dict[str, Any]]:
        """The configuration, at least ``config``, and its entry in the report.

        The entry is for ``report.json``; it describes the choice.
        """
        network = load_onnx(self.model)
        workload = preset.workload
        assert isinstance(workload, ImageWorkload)
        rank = workload.rank if self.rank is None else self.rank
        samples = workload.samples if self.samples is None else self.samples
        if self.data is not None:
            samples = len(load_npz(self.data, classes=network.classes).x_train)
        chosen, why = choose(network, config, rank=rank, samples=samples, fixed=fixed)
        return chosen, {
            "network": network.name,
            "rank": rank,
            "samples": samples,
            "chosen": {
                field: {"value": getattr(chosen, field), "preset": getattr(preset.config, field), "for": unit}
                for field, unit in why.items()
            },
        }
