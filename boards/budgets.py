"""Levels of logic that the units of a preset may have between registers: ``budgets.toml``."""
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["beyond", "budgets"]

_FILE = Path(__file__).with_name("budgets.toml")


@cache
def budgets() -> dict[str, dict[str, int]]:
    """By preset, and by unit of ``gradloom generate``: what each module of it may have."""
    read = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return {name: read[entry["like"]] if "like" in entry else entry for name, entry in read.items()}


def beyond(units: Mapping[str, Mapping[str, Any]], budget: Mapping[str, int]) -> list[str]:
    """A message for each of a report's ``units`` that has more levels than its budget, or none."""
    return [
        f"{name}: {entry['levels']} levels of logic between registers: "
        + (f"{budget[name]} were allowed" if name in budget else "boards/budgets.toml has no budget for it")
        for name, entry in units.items()
        if name not in budget or entry["levels"] > budget[name]
    ]
