"""Budgets as a user writes them, with their units."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

__all__ = ["BYTES", "SECONDS", "Budget", "parse_bytes", "parse_seconds", "refusal", "shortfalls"]

#: Seconds of a unit of time.
SECONDS: Mapping[str, float] = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
#: Bytes of a unit of memory.
BYTES: Mapping[str, float] = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

#: In a second; whole numbers, so that rounding up is exact.
_WHOLE: Mapping[str, float] = {"us": 1e6, "ms": 1e3}

_NUMBER = re.compile(r"([0-9]*\.?[0-9]+(?:e[0-9]+)?)\s*([A-Za-z]*)")


def _parse(name: str, text: str, units: Mapping[str, float], usual: str) -> float:
    found = _NUMBER.fullmatch(text.strip())
    known = ", ".join(units)
    if found is None:
        raise ValueError(f"{name}={text}: must be a number and a unit, {known}; give --{name} 10{usual}")
    number, unit = found.groups()
    if unit not in units:
        raise ValueError(f"{name}={text}: needs a unit, one of {known}; give --{name} {number}{usual}")
    value = float(number) * units[unit]
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name}={text}: must be above 0")
    return value


def parse_seconds(name: str, text: str) -> float:
    """``10s``, ``1.5min`` and so on; :class:`ValueError` without a unit."""
    return _parse(name, text, SECONDS, "s")


def parse_bytes(name: str, text: str) -> int:
    """``300MB``, ``64KiB`` and so on; :class:`ValueError` without a unit."""
    return int(_parse(name, text, BYTES, "MB"))


class Priced(Protocol):
    """A fine-tune's seconds, and bytes of memory and of the adapter."""

    @property
    def seconds(self) -> float: ...
    @property
    def memory(self) -> int: ...
    @property
    def update(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Budgets of a fine-tune; None: any.

    ``seconds`` of the whole; ``memory``: bytes of the board's, all that it holds; ``update``: bytes of the
    adapter as it is shipped.
    """

    seconds: float | None = None
    memory: int | None = None
    update: int | None = None

    @classmethod
    def of(cls, time: str | None, memory: str | None, update: str | None) -> "Budget":
        """Budgets as a user writes them."""
        return cls(
            seconds=None if time is None else parse_seconds("time", time),
            memory=None if memory is None else parse_bytes("memory", memory),
            update=None if update is None else parse_bytes("update", update),
        )


def shortfalls(each: Priced, budget: Budget) -> dict[str, float]:
    """Ratio to each budget that an offer exceeds, by its name."""
    pairs = {
        "time": (each.seconds, budget.seconds),
        "memory": (each.memory, budget.memory),
        "update": (each.update, budget.update),
    }
    return {name: value / bound for name, (value, bound) in pairs.items() if bound is not None and value > bound}


def refusal(near: Priced, what: str, count: int, budget: Budget, *, time: str, memory: str) -> str:
    """Why none of ``count`` candidates is left, with the nearest one.

    ``what`` describes it; ``time`` and ``memory`` are the units in which it is told.
    """
    over = shortfalls(near, budget)
    values = {
        "time": f"{math.ceil(near.seconds * _WHOLE[time])}{time}",
        "memory": f"{math.ceil(near.memory / BYTES[memory])}{memory}",
        "update": f"{math.ceil(near.update / BYTES['kB'])}kB",
    }
    asks = {"time": budget.seconds, "memory": budget.memory, "update": budget.update}
    given = ", ".join(f"{name}={asks[name]:g} {'s' if name == 'time' else 'B'}" for name in over)
    return (
        f"{given}: no candidate of {count} meets it; the nearest ({what}) takes "
        f"{', '.join(f'{name} {values[name]}' for name in over)}; "
        f"give {' '.join(f'--{name} {values[name]}' for name in over)}"
    )
