"""Moves tables of a placed netlist that make long paths.

The placer makes the wires short in sum. Inside the box around a net a place costs it nothing, so a table may lie half
the chip away from the way between its source and its end. Here the paths are estimated from the places, and a table on
a long one moves to a free site, until none gains by it. With its register it moves to a slice that nothing uses.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..netlist.delays import DELAYS

__all__ = ["Placed", "move_tables"]

#: Delay of a wire in ns: to a neighbour, and more a tile along either axis; as long wires were routed.
NEAR, TILE = 0.45, 0.072
#: Passes over all long paths, and what a move must gain in ns.
PASSES, GAIN = 40, 0.05
#: Sites that are tried for a table, around each of its middles.
TRIED = 48
#: What the square of a wire's tiles costs in ns, on a table's longest path alone. Delays grow evenly with the distance,
#: so that a table between two that lie together gains nothing by a place on the way: two tables far away from both
#: ends would stay, as each holds the other.
_SQUARE = 0.0003

_TABLE, _REGISTER, _PRODUCT = "TRELLIS_COMB", "TRELLIS_FF", "MULT18X18D"
_SITE = re.compile(r"X(\d+)/Y(\d+)/(?:SLICE([A-D])\.(?:K|FF|COMB)(\d))?")
_DELAYS = DELAYS["ecp5"]
_INPUTS = ("A", "B", "C", "D", "FCI")
_CLOCKS = ("DCCA", "EHXPLLL")
_CONSTANTS = {"$PACKER_GND_NET", "$PACKER_VCC_NET"}
_Tile = tuple[int, int]
_Place = tuple[int, int, str, str]  # column, row, slice, half


class Placed:
    """Cells of a placed netlist, and estimates of its paths.

    Times are in ns. ``arrival`` of a cell: from a clock to its outputs. ``rest``: from its inputs to the end of the
    longest path behind it.
    """

    def __init__(self, module: dict[str, Any]) -> None:
        self.cells: dict[str, dict[str, Any]] = module["cells"]
        self.places: dict[str, _Place] = {}
        drivers: dict[int, str] = {}
        for name, cell in self.cells.items():
            attributes = cell["attributes"]
            if found := _SITE.match(attributes.get("BEL") or attributes.get("NEXTPNR_BEL", "")):
                self.places[name] = (int(found[1]), int(found[2]), found[3] or "", found[4] or "")
                drivers |= {bit: name for bit in _bits(cell, "output") if cell["type"] not in _CLOCKS}
        for name in _CONSTANTS & module["netnames"].keys():
            for bit in module["netnames"][name]["bits"]:
                drivers.pop(bit, None)
        #: Sources of what a cell's paths pass or end with, and the input that has no wire: FCI, DI; who reads a cell.
        self.sources: dict[str, list[tuple[str, str]]] = {}
        self.readers: dict[str, list[str]] = defaultdict(list)
        for name in self.places:
            self.sources[name] = [(drivers[bit], port) for bit, port in self._reads(self.cells[name]) if bit in drivers]
            for source, _ in self.sources[name]:
                self.readers[source].append(name)
        self.order = self._order()
        self.arrival: dict[str, float] = {}
        self.rest: dict[str, float] = {}
        self.behind: defaultdict[str, float] = defaultdict(float)
        self.estimate()

    def passes(self, name: str) -> bool:
        """Whether a path goes through a cell and does not end in it."""
        cell = self.cells[name]
        if cell["type"] == _PRODUCT:
            return not any(key.startswith("REG_") for key in cell["parameters"])
        return cell["type"] == _TABLE

    def _reads(self, cell: dict[str, Any]) -> Iterator[tuple[int, str]]:
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "input" and port not in ("CLK", "WCK", "LSR"):
                if cell["type"] != _TABLE or port in _INPUTS:
                    yield from ((bit, port if port in ("FCI", "DI") else "") for bit in bits if isinstance(bit, int))

    def _order(self) -> list[str]:
        """Cells that paths pass, each behind its sources."""
        waits = {name: sum(self.passes(s) for s, _ in self.sources[name]) for name in self.places if self.passes(name)}
        ready = [name for name, count in waits.items() if not count]
        made = []
        while ready:
            made.append(name := ready.pop())
            for reader in self.readers[name]:
                if reader in waits:
                    waits[reader] -= 1
                    if not waits[reader]:
                        ready.append(reader)
        return made

    def wire(self, source: _Place, reader: _Place) -> float:
        """Delay of a wire between two places."""
        return NEAR + TILE * (abs(source[0] - reader[0]) + abs(source[1] - reader[1]))

    def through(self, name: str) -> float:
        """Delay of a cell that paths pass."""
        cell = self.cells[name]
        if cell["type"] == _PRODUCT:
            return _DELAYS.product
        return _DELAYS.enter if cell["parameters"].get("MODE") == "CCU2" else _DELAYS.lut

    def _start(self, name: str) -> float:
        kind = self.cells[name]["type"]
        return next(delay for pattern, delay in _DELAYS.start if re.match(pattern, kind))

    def estimate(self) -> None:
        """Estimates all paths again."""
        places, wire = self.places, self.wire
        self.arrival = {name: self._start(name) for name in places if not self.passes(name)}
        for name in self.order:
            carried, found = 0.0, 0.0
            for source, port in self.sources[name]:
                come = self.arrival.get(source, 0.0)
                if port == "FCI":
                    carried = come + _DELAYS.passed
                else:
                    found = max(found, come + wire(places[source], places[name]))
            self.arrival[name] = max(found + self.through(name), carried)
        ends = [name for name in places if not self.passes(name)]
        self.rest = dict.fromkeys(ends, _DELAYS.setup)
        behind: defaultdict[str, float] = defaultdict(float)
        self.behind = behind
        for name in (*ends, *reversed(self.order)):
            if self.passes(name):
                self.rest[name] = self.through(name) + behind[name]
            for source, port in self.sources[name]:
                if port == "FCI":
                    far = behind[name] + _DELAYS.passed
                else:
                    far = self.rest[name] + (0.0 if port else wire(places[source], places[name]))
                behind[source] = max(behind[source], far)

    def longest(self) -> float:
        """The longest path."""
        return max(self.length(name) for name in self.places)

    def length(self, name: str) -> float:
        """The longest path through a cell, or that begins in it."""
        return self.arrival.get(name, 0.0) + self.behind[name]


def _bits(cell: dict[str, Any], direction: str) -> Iterable[int]:
    for port, bits in cell["connections"].items():
        if cell["port_directions"][port] == direction:
            yield from (bit for bit in bits if isinstance(bit, int))


class _Sites:
    """Sites of tables that nothing uses, by tile, and what moves with a table."""

    def __init__(self, placed: Placed) -> None:
        self.placed = placed
        self.tables: dict[_Tile, set[tuple[str, str]]] = {}
        self.slices: dict[_Tile, set[str]] = {}
        self.lines: dict[_Tile, set[tuple[Any, ...]]] = defaultdict(set)
        #: Cells by site; a memory's ports take three slices of a tile.
        self.used: dict[_Place, list[str]] = defaultdict(list)
        for name, place in placed.places.items():
            kind = placed.cells[name]["type"]
            if kind in (_TABLE, _REGISTER):
                self.used[place].append(name)
                tile = place[:2]
                self.tables.setdefault(tile, {(part, half) for part in "ABCD" for half in "01"})
                self.slices.setdefault(tile, set("ABCD"))
                if kind == _TABLE:
                    self.tables[tile].discard(place[2:])
                    if "MODE" in placed.cells[name]["parameters"]:
                        self.tables[tile] -= {(place[2], "0"), (place[2], "1")}
                else:
                    self.lines[tile].add(self._line(name))
                self.slices[tile].discard(place[2])
        modes = {name: placed.cells[name]["parameters"].get("MODE") for name in placed.places}
        memories = {place[:2] for name, place in placed.places.items() if modes[name] == "DPRAM"}
        for tile in memories:
            self.slices[tile].clear()

    def _line(self, register: str) -> tuple[Any, ...]:
        """What the registers of a tile share."""
        cell = self.placed.cells[register]
        parts = (str(cell["connections"].get(port)) for port in ("CLK", "LSR"))
        return (*parts, *(cell["parameters"].get(key) for key in ("CLKMUX", "LSRMUX", "SRMODE", "REGSET", "GSR")))

    def partner(self, table: str) -> str | None:
        """The register that a table feeds without a wire."""
        bits = set(_bits(self.placed.cells[table], "output"))
        for name in self.used[self.placed.places[table]]:
            cell = self.placed.cells[name]
            if cell["type"] == _REGISTER and cell["parameters"].get("SD", "").strip() == "1":
                if bits & set(cell["connections"].get("DI", ())):
                    return name
        return None

    def around(self, column: int, row: int, register: str | None) -> Iterator[_Place]:
        """Free sites, the nearest tiles first."""
        line = self._line(register) if register else None
        for away in range(24):
            for dx in range(-away, away + 1):
                for dy in sorted({away - abs(dx), abs(dx) - away}):
                    tile = (column + dx, row + dy)
                    if line is None:
                        yield from ((*tile, *site) for site in sorted(self.tables.get(tile, ()))[:1])
                    elif line in self.lines.get(tile, (line,)):
                        yield from ((*tile, part, "0") for part in sorted(self.slices.get(tile, ()))[:1])

    def move(self, table: str, register: str | None, place: _Place) -> None:
        """Moves a table, and its register with it."""
        for name in (table, register) if register else (table,):
            old = self.placed.places[name]
            self.used[old].remove(name)
            self.used[place].append(name)
            self.placed.places[name] = place
            cell = self.placed.cells[name]
            site = f"X{place[0]}/Y{place[1]}/SLICE{place[2]}."
            if name == table:
                cell["attributes"]["BEL"] = f"{site}K{place[3]}"
            else:
                cell["attributes"]["NEXTPNR_BEL"] = f"{site}FF{place[3]}"
        self.tables[place[:2]].discard(place[2:])
        self.slices[place[:2]].discard(place[2])
        if register:
            self.lines[place[:2]].add(self._line(register))
        self.tables[old[:2]].add(old[2:])


def move_tables(placed: Path, mhz: float) -> int:
    """Moves tables until the paths keep ``mhz``, or none gains; returns the number of moves.

    ``placed`` is nextpnr's output whose tables keep their sites (:func:`~.routing.keep_sites`). Each place of a slice
    that a register leaves stays unused. Memories, carries, and registers whose data comes by a wire stay.
    """
    content = json.loads(placed.read_text(encoding="utf-8"))
    found = Placed(content["modules"]["top"])
    sites, wanted, moves = _Sites(found), 1000 / mhz, 0
    for _ in range(PASSES):
        late = [
            name
            for name in found.order
            if found.cells[name]["type"] == _TABLE
            and "MODE" not in found.cells[name]["parameters"]
            and found.length(name) > wanted
        ]
        gained = sum(_move(found, sites, name) for name in sorted(late, key=lambda each: (-found.length(each), each)))
        if not gained:
            break
        moves += gained
        found.estimate()
    placed.write_text(json.dumps(content), encoding="utf-8", newline="\n")
    return moves


def _move(found: Placed, sites: _Sites, table: str) -> bool:
    """Moves a table where its longest path is shorter; returns whether it has moved."""
    register = sites.partner(table)
    moving = {table, register}
    sources = [(found.places[s], found.arrival.get(s, 0.0)) for s, _ in found.sources[table]]
    readers = [(found.places[r], found.rest[r]) for n in moving if n for r in found.readers[n] if r not in moving]
    after = [(found.places[r], found.rest[r]) for r in found.readers[table] if r not in moving]
    if not sources or not readers:
        return False
    own, begin = found.through(table), found.arrival[register] if register else 0.0

    here = found.places[table]
    ends = [max(some, key=lambda each: each[1] + found.wire(each[0], here))[0] for some in (sources, readers)]
    if register:
        # Of its two paths the longer one: the register moves towards where it is short of time.
        ends = ends[:1] if found.length(table) >= found.length(register) else ends[1:]

    def cost(place: _Place) -> float:
        come = max(time + found.wire(at, place) for at, time in sources) + own
        longest = come + max((rest + found.wire(place, at) for at, rest in after), default=_DELAYS.setup)
        if register:
            longest = max(longest, *(begin + rest + found.wire(place, at) for at, rest in readers))
        squares = sum((abs(at[0] - place[0]) + abs(at[1] - place[1])) ** 2 for at in ends)
        return longest + _SQUARE * squares

    columns, rows = zip(*((each[0], each[1]) for each in (*ends, here)[:2]))
    middles = {*zip(columns, rows), (sum(columns) // 2, sum(rows) // 2)}
    best, place = cost(here) - GAIN, None
    for column, row in sorted(middles):
        for tried, site in enumerate(sites.around(column, row, register)):
            if tried >= TRIED:
                break
            if (value := cost(site)) < best:
                best, place = value, site
    if place is None:
        return False
    sites.move(table, register, place)
    return True
