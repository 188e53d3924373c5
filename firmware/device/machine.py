"""Reads the machine table from a machine's registers."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "PROGRAM_FORMAT",
    "TABLE_FORMAT",
    "MachineDesign",
    "EngineRow",
    "MachineLoop",
    "MachineTable",
    "own_design",
    "parse_table",
]

#: Formats that this host speaks.
TABLE_FORMAT, PROGRAM_FORMAT = 2, 2
#: Engines that every machine has, by number, and what cycles count as where none of a machine's own executes.
SHELL_ENGINES = ("control", "load", "store")
SHELL_PHASES = ("wait", "load", "store")


@dataclass(frozen=True)
class EngineRow:
    """An engine: its name, its phases, and its ports to memory.

    Cycles of the engine count as its phases.
    """

    name: str
    phases: tuple[str, ...]
    loads: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()


@dataclass(frozen=True)
class MachineLoop:
    """A memory that returns the words that it is given.

    A copy is ``beats`` beats from ``dest`` to ``source``, both with ``arg``.

    Its words have ``bits`` bits; those from 0 to 2**15 - 1 come back unchanged, of each ``group`` words the first
    ``kept``.
    """

    dest: int
    source: int
    arg: int
    beats: int
    bits: int
    kept: int
    group: int


@dataclass(frozen=True)
class MachineTable:
    """Parameters, engines and loop of a machine.

    ``parameters``: integers by name. ``loop``: for a self-test, if an engine offers one. ``engines``: from number 3 on.
    """

    parameters: dict[str, int]
    loop: MachineLoop | None
    engines: tuple[EngineRow, ...]

    @property
    def phases(self) -> tuple[str, ...]:
        """Names of the phase counters."""
        return SHELL_PHASES + tuple(phase for each in self.engines for phase in each.phases)

    @property
    def loads(self) -> tuple[str, ...]:
        """``engine.port`` of each ``dest`` of a LOAD."""
        return tuple(f"{each.name}.{port}" for each in self.engines for port in each.loads)

    @property
    def stores(self) -> tuple[str, ...]:
        """``engine.port`` of each ``source`` of a STORE."""
        return tuple(f"{each.name}.{port}" for each in self.engines for port in each.stores)

    @property
    def engine_names(self) -> tuple[str, ...]:
        """Names of all engines, by number."""
        return SHELL_ENGINES + tuple(each.name for each in self.engines)


def parse_table(text: str) -> MachineTable:
    """The table that ``text`` writes; :class:`ValueError` if it is none.

    What a program needs of a table is one, too.
    """
    try:
        parameters, loop, *engines = text.split(";")
        parameters = parameters.replace(">=", "=")
        ports, *sizes = loop.split(",")
        dest, source = map(int, ports.split(">")) if loop else (0, 0)
        arg, beats, bits, kept, group = map(int, sizes) if loop else (0, 0, 0, 0, 0)
        values = {name: int(value) for name, value in (each.split("=") for each in parameters.split(",") if each)}
        rows = tuple(
            EngineRow(name, *(tuple(names.split(",")) if names else () for names in (phases, loads, stores)))
            for name, phases, loads, stores in (each.split(":") for each in engines)
        )
    except ValueError:
        raise ValueError(f"machine table {text!r} has a format that this host does not read") from None
    return MachineTable(values, MachineLoop(dest, source, arg, beats, bits, kept, group) if loop else None, rows)


@dataclass(frozen=True)
class MachineDesign:
    """Identity of a generated design.

    ``table``: what programs need of the board's machine table: the same, with ``name>=value`` where it may have more.
    ``device``: what Linux calls its registers, and the end of its buffer's name.
    """

    name: str
    table: str
    data_bits: int
    clock_mhz: float | None = None
    device: str = "gradloom"

    def differs(self, *, engines: int, phases: int, data_bits: int) -> str:
        """How read-only registers of the board differ; empty if they do not."""
        ours = parse_table(self.table)
        pairs = (
            ("engines", engines, len(ours.engines)),
            ("phases", phases, len(ours.phases)),
            ("data_bits", data_bits, self.data_bits),
        )
        return ", ".join(f"{name}={there}, must be {here}" for name, there, here in pairs if there != here)

    def differs_in_table(self, text: str) -> str:
        """How the board's machine table differs; empty if it does not."""
        if text == self.table:
            return ""
        there, needs = parse_table(text).parameters, parse_table(self.table).parameters
        least = re.findall(r"(\w+)>=", self.table.partition(";")[0])
        found = [
            _unlike(name, there.get(name), needs.get(name), name in least)
            for name in dict.fromkeys((*needs, *there))
            if there.get(name) != needs.get(name)
            and not (name in least and name in there and there[name] >= needs[name])
        ]
        if not found and text.partition(";")[2] != self.table.partition(";")[2]:
            return "other engines or ports"
        return ", ".join(found)


def _unlike(name: str, there: int | None, needs: int | None, least: bool) -> str:
    """How a parameter differs; one that is not named is as usual."""
    found = f"{name} is as usual" if there is None else f"{name}={there}"
    if needs is None:
        return f"{found}, must be as usual"
    return f"{found}, must be {'at least ' * least}{needs} (--set {name}={needs})"


def own_design() -> MachineDesign | None:
    """The design that this host was generated with.

    None in the project itself, whose host drives any design.
    """
    path = Path(__file__).with_name("design.json")
    if not path.is_file():
        return None
    return MachineDesign(**json.loads(path.read_text(encoding="utf-8")))
