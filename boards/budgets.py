"""Budgets for levels of logic of a preset's units.

They are in ``budgets.toml``.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gradloom.plugins import Table

__all__ = ["allowed", "beyond", "budget", "budgets"]

_FILE = Path(__file__).with_name("budgets.toml")


@cache
def budgets() -> dict[str, dict[str, int]]:
    """Budgets of modules, by preset and by unit of ``gradloom generate``."""
    read = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return {name: read[entry["like"]] if "like" in entry else entry for name, entry in read.items()}


def budget(name: str) -> Mapping[str, int] | None:
    """The budget of a preset or unit, or None where there is none.

    It is from the house's table or a plug-in.

    A plug-in's is a mapping of levels by module, where ``"*"`` is for every module without an entry of its own.
    """
    known: Table[Mapping[str, int]] = Table("budget", "gradloom.budgets", budgets())
    return known[name] if name in known else None


def allowed(budget: Mapping[str, int], module: str) -> int | None:
    """Levels that a module may have.

    None where the budget has no entry for it.
    """
    return budget.get(module, budget.get("*"))


def beyond(units: Mapping[str, Mapping[str, Any]], budget: Mapping[str, int]) -> list[str]:
    """Messages for ``units`` of a report that are beyond their budget.

    There is one for each unit that has more levels than its budget, or none.
    """
    found = []
    for name, entry in units.items():
        most = allowed(budget, name)
        if most is None or entry["levels"] > most:
            found.append(
                f"{name}: {entry['levels']} levels of logic between registers: "
                + ("there is no budget for it" if most is None else f"{most} were allowed")
            )
    return found
