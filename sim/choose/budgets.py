"""Budgets as a user writes them, with their units."""

import math
import re
from collections.abc import Mapping

__all__ = ["BYTES", "SECONDS", "parse_bytes", "parse_seconds"]

#: Seconds of a unit of time.
SECONDS: Mapping[str, float] = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
#: Bytes of a unit of memory.
BYTES: Mapping[str, float] = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

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
