"""The adapter of each unit."""

import importlib

from gradloom.rtl.catalog import KNOWN, Unit

from . import lora, mesh, nf4, optimizer, softmax
from .adapter import UnitAdapter

__all__ = ["ADAPTERS", "runs", "unit_adapter"]

#: Those of units whose entry in the catalogue names none.
ADAPTERS: dict[str, UnitAdapter] = {
    "mesh": mesh.ADAPTER,
    "nf4-encode": nf4.ENCODE,
    "nf4-decode": nf4.DECODE,
    "lora-forward": lora.FORWARD,
    "lora-gradient": lora.GRADIENT,
    "softmax-cross-entropy": softmax.ADAPTER,
    "optimizer": optimizer.ADAPTER,
}


def runs(unit: Unit) -> bool:
    """Whether :func:`~.run.run_unit` takes it."""
    return unit.name in ADAPTERS or unit.adapter is not None


def unit_adapter(unit: Unit) -> UnitAdapter:
    """How a unit's arrays are its streams.

    :class:`ValueError` where it has no adapter.
    """
    if not runs(unit):
        raise ValueError(
            f"unit {unit.name!r}: cannot be run alone, only generated; those that can: "
            + ", ".join(name for name, each in KNOWN.items() if runs(each))
        )
    if unit.adapter is None:
        return ADAPTERS[unit.name]
    module, _, name = unit.adapter.partition(":")
    found: UnitAdapter = getattr(importlib.import_module(module), name)
    return found
