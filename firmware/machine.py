"""The machine table: parameters, engines and phases, as the registers of a machine tell them."""
from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PROGRAM_FORMAT", "TABLE_FORMAT", "EngineRow", "MachineTable", "parse_table"]

#: Formats that this host speaks.
TABLE_FORMAT, PROGRAM_FORMAT = 1, 1
#: Engines that every machine has, by number, and what cycles count as where none of a machine's own executes.
SHELL_ENGINES = ("control", "load", "store")
SHELL_PHASES = ("wait", "load", "store")


@dataclass(frozen=True)
class EngineRow:
    """An engine: its name, and what its cycles count as."""

    name: str
    phases: tuple[str, ...]


@dataclass(frozen=True)
class MachineTable:
    """What a machine is made of.

    ``parameters``: integers by name. ``loop``: destination and source of a memory that gives back what it is
    given, of 16 16-bit words the first ``classes``. ``engines``: from number 3 on.
    """

    parameters: dict[str, int]
    loop: tuple[int, int] | None
    engines: tuple[EngineRow, ...]

    @property
    def phases(self) -> tuple[str, ...]:
        """Names of the phase counters."""
        return SHELL_PHASES + tuple(phase for each in self.engines for phase in each.phases)

    @property
    def engine_names(self) -> tuple[str, ...]:
        """Names of all engines, by number."""
        return SHELL_ENGINES + tuple(each.name for each in self.engines)


def parse_table(text: str) -> MachineTable:
    """The table that ``text`` writes; :class:`ValueError` if it is none."""
    try:
        parameters, loop, *engines = text.split(";")
        load, store = map(int, loop.split(">")) if loop else (0, 0)
        values = {name: int(value) for name, value in (each.split("=") for each in parameters.split(",") if each)}
        rows = tuple(EngineRow(name, tuple(phases.split(",")))
                     for name, phases in (each.split(":") for each in engines))
    except ValueError:
        raise ValueError(f"machine table {text!r} is none that this host reads") from None
    return MachineTable(values, (load, store) if loop else None, rows)
