"""Refuses what cannot fit a chip by count, before anything is made."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from ..shell.parameters import Parameters

__all__ = ["check_fit", "shortages"]


def check_fit(config: Parameters, board: Any) -> dict[str, dict[str, int]]:
    """DSP slices and memory bits by part.

    :class:`ValueError` names all resources of which the board has too few.

    ``board`` has ``name``, ``dsp``, ``bram36`` and ``uram``.
    """
    beyond = [f"{what}: make {keys} smaller" for what, keys in shortages(config, board)]
    if beyond:
        raise ValueError("; ".join(beyond))
    counted = config.counted
    return {"dsp": dict(counted.dsp), "memory_bits": dict(counted.bits)}


def shortages(config: Parameters, board: Any) -> Iterator[tuple[str, str]]:
    """Resources of which a board has too few, each with what makes a design smaller; of the board see above."""
    counted = config.counted
    *others, last = [field.name for field in dataclasses.fields(config) if field.metadata["mesh"]] or ["the beats"]
    for what, parts, there, keys in (
        ("DSP slices", counted.dsp, board.dsp, ", ".join(others) + " or " * bool(others) + last),
        ("block RAMs", counted.block_rams, board.bram36, "the depths"),
        ("ultra RAMs", counted.ultra_rams, board.uram, "the depths"),
        ("bits of block RAM and URAM", counted.bits, board.bram36 * 36 * 1024 + board.uram * 288 * 1024, "the depths"),
    ):
        needs = sum(parts.values())
        if needs > there:
            most = max(parts, key=parts.__getitem__)
            wanted, largest = (f"{each:,}".removesuffix(".0") for each in (needs, parts[most]))
            yield f"{board.name} has {there:,} {what}, this design needs {wanted} ({largest} for {most})", keys
