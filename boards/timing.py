"""Levels of logic between registers, on a netlist that open synthesis has mapped to the chip's cells.

Open synthesis knows no delays; levels are what a design can be held to before a vendor tool has placed it. A
LUT counts 1. A carry chain counts 1 to enter and 1 for each 16 bits passed. An asynchronous read of LUT RAM
or a shift register counts 1. MUXF7 and MUXF8 stand in the slice behind their LUTs and count nothing. Pins of
registers, DSP slices, block and ultra RAM are ends.
"""

import dataclasses
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

__all__ = ["LogicPath", "Netlist", "TimingError", "worst_paths"]

#: Costs in quarters of a level, so that a CARRY4 is a whole number.
QUARTERS = 4
_LUT = re.compile(r"LUT[1-6](_[0-9])?|LUT6_2|INV|BUFG?")
_MUX = re.compile(r"MUXF[789]")
_REGISTER = re.compile(r"FD[RSCP]E(_1)?|LD[CP]E")
_LUTRAM = re.compile(r"RAM\d+(M|X\d+[SDQ]|M\d+|X\d+D\d*)(_1)?\w*|SRLC?\d+E")
_CLOCKED = re.compile(r"DSP48E[12]|RAMB\w+|URAM\w+|FIFO\w+")
_CARRY_QUARTERS = {"CARRY4": 1, "CARRY8": 2}


class TimingError(ValueError):
    """A netlist whose levels cannot be counted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogicPath:
    """A path with its ``levels`` of logic; ``cells`` lists the types passed, in order.

    ``ends_at_port`` is set if it starts or ends at a port of the design, whose register lies outside.
    """

    levels: int
    start: str
    end: str
    cells: tuple[str, ...]
    ends_at_port: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return dataclasses.asdict(self)


def worst_paths(netlist: dict[str, Any] | Path | str, *, count: int = 5) -> list[LogicPath]:
    """The ``count`` deepest paths of a flat netlist (Yosys JSON), deepest first, one a pair of registers."""
    found = netlist if isinstance(netlist, dict) else json.loads(Path(netlist).read_text(encoding="utf-8"))
    return Netlist(found).worst(count)


class Netlist:
    """A flat netlist (Yosys JSON): arcs from net to net, and where paths begin and end. Nets are Yosys' bit numbers."""

    def __init__(self, netlist: dict[str, Any]) -> None:
        tops = [module for module in netlist["modules"].values() if int(module["attributes"].get("top", "0"), 2)]
        if len(tops) != 1:
            raise TimingError(f"the netlist has {len(tops)} top modules, must have one")
        self.module = module = tops[0]
        self.arcs: dict[int, list[tuple[int, int, str]]] = defaultdict(list)  # net -> (net, cost, cell type)
        self.fan_in: dict[int, int] = defaultdict(int)
        self.ends: list[tuple[int, str, str]] = []  # net, cell name, pin
        self.starts: dict[int, tuple[str, int]] = {}  # net -> cell name, cost
        self.ports: set[str] = set()
        for name, port in module["ports"].items():
            for bit in port["bits"]:
                if isinstance(bit, int):
                    if port["direction"] == "input":
                        self.starts[bit] = f"port {name}", 0
                    else:
                        self.ends.append((bit, f"port {name}", ""))
        unknown = set()
        for name, cell in module["cells"].items():
            if not self._add(name, cell):
                unknown.add(cell["type"])
        if unknown:
            raise TimingError(f"cells of unknown timing: {', '.join(sorted(unknown))}")

    def _add(self, name: str, cell: dict[str, Any]) -> bool:
        kind = cell["type"]
        inputs, outputs = _pins(cell)
        if _LUT.fullmatch(kind):
            cost = 0 if kind.startswith("BUF") else QUARTERS
            self._connect(((net, cost) for _, net in inputs), outputs, kind)
        elif _MUX.fullmatch(kind):
            self._connect(((net, 0) for _, net in inputs), outputs, kind)
        elif kind in _CARRY_QUARTERS:
            passed = _CARRY_QUARTERS[kind]
            # CYINIT is an entry like S and DI; CI continues the chain.
            self._connect(
                (
                    (net, passed + (0 if pin.startswith("CI") and pin != "CIN" else QUARTERS))
                    for pin, net in inputs
                ),
                outputs,
                kind,
            )
        elif _REGISTER.fullmatch(kind) or _CLOCKED.fullmatch(kind):
            self._clocked(name, inputs, outputs, 0)
        elif _LUTRAM.fullmatch(kind):
            # What is read appears behind a LUT's worth of logic, from the address or from a write before.
            address = [(net, QUARTERS) for pin, net in inputs if re.match(r"ADDR[A-H]|DPRA|A\d?$|RADR", pin)]
            self._clocked(name, inputs, outputs, QUARTERS)
            self._connect(iter(address), outputs, kind)
        elif kind.startswith("$") and kind in ("$scopeinfo", "$print", "$check", "$assert", "$cover"):
            pass
        else:
            return False
        return True

    def _connect(self, inputs: Iterable[tuple[int, int]], outputs: list[tuple[str, int]], kind: str) -> None:
        for source, cost in inputs:
            for _, sink in outputs:
                self.arcs[source].append((sink, cost, kind))
                self.fan_in[sink] += 1

    def _clocked(
        self, name: str, inputs: list[tuple[str, int]], outputs: list[tuple[str, int]], cost: int
    ) -> None:
        self.starts.update({net: (name, cost) for _, net in outputs})
        self.ends += [(net, name, pin) for pin, net in inputs if not re.fullmatch(r"\w*CLK\w*|C|WCLK|G", pin)]

    @cached_property
    def _levels(self) -> tuple[dict[int, int], dict[int, tuple[int, str]]]:
        """Quarters of a level at each net; the net, and the type of cell passed, from which it has them."""
        level: dict[int, int] = {net: cost for net, (_, cost) in self.starts.items()}
        came: dict[int, tuple[int, str]] = {}
        waiting = dict(self.fan_in)
        nets = set(self.arcs) | set(waiting)
        ready = [net for net in nets if not waiting.get(net)]
        passed = 0
        while ready:
            net = ready.pop()
            passed += 1
            here = level.get(net, -1)  # -1: nothing changes here, such as a pin without a driver
            for sink, cost, kind in self.arcs.get(net, ()):
                if here >= 0 and here + cost > level.get(sink, -1):
                    level[sink] = here + cost
                    came[sink] = net, kind
                waiting[sink] -= 1
                if not waiting[sink]:
                    ready.append(sink)
        if passed != len(nets):
            stuck = next(net for net in nets if waiting.get(net))
            raise TimingError(f"combinational loop through {self._net_name(stuck)}")
        return level, came

    def by_unit(self, unit: Callable[[str], str]) -> dict[str, int]:
        """Levels of the deepest path between registers that ends in each unit; ``unit`` tells a cell's by its name."""
        level, came = self._levels
        found: dict[str, int] = {}
        for net, cell, _ in self.ends:
            name = "" if cell.startswith("port ") else unit(cell)
            if not name or level.get(net, 0) <= found.get(name, -1):
                continue
            source = net
            while source in came:
                source, _ = came[source]
            if not self.starts.get(source, ("", 0))[0].startswith("port "):
                found[name] = level.get(net, 0)
        return {name: -(-quarters // QUARTERS) for name, quarters in found.items()}

    def worst(self, count: int) -> list[LogicPath]:
        """The ``count`` deepest paths, deepest first, one a pair of registers."""
        level, came = self._levels
        found: dict[tuple[str, str], LogicPath] = {}
        for net, cell, pin in sorted(self.ends, key=lambda end: (-level.get(end[0], 0), end[1], end[2])):
            cells, source = [], net
            while source in came:
                source, kind = came[source]
                cells.append(kind)
            start = self._net_name(source) if source in self.starts else "constant"
            outer = cell.startswith("port ") or self.starts.get(source, ("", 0))[0].startswith("port ")
            end = cell if cell.startswith("port ") else self._cell_name(cell, pin)
            path = LogicPath(
                levels=-(-level.get(net, 0) // QUARTERS),
                start=start,
                end=end,
                cells=tuple(reversed(cells)),
                ends_at_port=outer,
            )
            found.setdefault((_bus(start), _bus(end)), path)
            if len(found) == count:
                break
        return list(found.values())

    def _cell_name(self, cell: str, pin: str) -> str:
        """A register by what it drives: that is the name in the source."""
        _, outputs = _pins(self.module["cells"][cell])
        kind = self.module["cells"][cell]["type"]
        label = self._net_name(outputs[0][1]) if outputs and _REGISTER.fullmatch(kind) else cell
        return label if pin == "D" else f"{label} ({kind}.{pin})"

    def _net_name(self, net: int) -> str:
        if not hasattr(self, "_names"):
            names: dict[int, str] = {}
            for name, entry in self.module["netnames"].items():
                for index, bit in enumerate(entry["bits"]):
                    if isinstance(bit, int):
                        label = f"{name}[{index}]" if len(entry["bits"]) > 1 else name
                        if bit not in names or _rank(label) < _rank(names[bit]):
                            names[bit] = label
            self._names = names
        return self._names.get(net, f"net {net}")


def _pins(cell: dict[str, Any]) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    inputs: list[tuple[str, int]] = []
    outputs: list[tuple[str, int]] = []
    for pin, bits in cell["connections"].items():
        side = outputs if cell["port_directions"].get(pin) == "output" else inputs
        side += [(pin, bit) for bit in bits if isinstance(bit, int)]
    return inputs, outputs


def _bus(name: str) -> str:
    return re.sub(r"\[\d+\]", "", name)


def _rank(name: str) -> tuple[bool, int, str]:
    return "$" in name, len(name), name
