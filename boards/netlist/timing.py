"""Counts levels of logic between registers in a mapped netlist.

Open synthesis knows no delays; levels are what a design can be held to before a vendor tool has placed it. A
LUT counts 1. A carry chain counts 1 to enter and 1 for each 16 bits passed. An asynchronous read of LUT RAM
or a shift register counts 1. MUXF7, MUXF8, PFUMX and L6MUX21 stand in the slice behind their LUTs and count nothing.
Pins of registers, DSP slices, block and ultra RAM are ends; a multiplier of the ECP5 that uses none of its registers is
passed, and counts 4.
"""

import dataclasses
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypedDict

__all__ = ["LEVEL", "LogicPath", "Netlist", "TimingError", "worst_paths"]

#: Costs in eighths of a level, so that a CCU2C, two bits of a chain, is a whole number.
LEVEL = 8
_LUT = re.compile(r"LUT[1-6](_[0-9])?|LUT6_2|INV|BUFG?")
_MUX = re.compile(r"MUXF[789]|PFUMX|L6MUX21")
_REGISTER = re.compile(r"FD[RSCP]E(_1)?|LD[CP]E|TRELLIS_FF")
_LUTRAM = re.compile(r"RAM\d+(M|X\d+[SDQ]|M\d+|X\d+D\d*)(_1)?\w*|SRLC?\d+E|TRELLIS_DPR16X4")
_CLOCKED = re.compile(r"DSP48E[12]|RAMB\w+|URAM\w+|FIFO\w+|DP16KD|MULT18X18D|EHXPLLL|DCCA")
_CARRY = {"CARRY4": 2, "CARRY8": 4, "CCU2C": 1}
_SECOND = ("A1", "B1", "C1", "D1")
_PRODUCT = 4 * LEVEL


class TimingError(ValueError):
    """A netlist whose levels cannot be counted."""


class PathReport(TypedDict):
    """A :class:`LogicPath` as plain values."""

    levels: int
    start: str
    end: str
    cells: tuple[str, ...]
    ends_at_port: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogicPath:
    """A path with its ``levels`` of logic.

    ``cells`` lists the types passed, in order.

    ``ends_at_port`` is set if it starts or ends at a port of the design, whose register lies outside.
    """

    levels: int
    start: str
    end: str
    cells: tuple[str, ...]
    ends_at_port: bool

    def as_dict(self) -> PathReport:
        """Plain values, for JSON."""
        return {
            "levels": self.levels,
            "start": self.start,
            "end": self.end,
            "cells": self.cells,
            "ends_at_port": self.ends_at_port,
        }


def worst_paths(netlist: dict[str, Any] | Path | str, *, count: int = 5) -> list[LogicPath]:
    """The ``count`` deepest paths of a flat netlist (Yosys JSON).

    They are deepest first, one a pair of registers.
    """
    found = netlist if isinstance(netlist, dict) else json.loads(Path(netlist).read_text(encoding="utf-8"))
    return Netlist(found).worst(count)


class Netlist:
    """A flat netlist (Yosys JSON) as a graph of nets.

    It has arcs from net to net, and where paths begin and end. Nets are Yosys' bit numbers.
    """

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
            cost = 0 if kind.startswith("BUF") else LEVEL
            self._connect(((net, cost) for _, net in inputs), outputs, kind)
        elif _MUX.fullmatch(kind):
            self._connect(((net, 0) for _, net in inputs), outputs, kind)
        elif kind in _CARRY:
            passed = _CARRY[kind]
            # CYINIT is an entry like S and DI; CI and CIN continue the chain.
            costs = [(pin, net, passed + (0 if pin.startswith("CI") else LEVEL)) for pin, net in inputs]
            self._connect(((net, cost) for pin, net, cost in costs if pin not in _SECOND), outputs, kind)
            # The second bit of a CCU2C does not reach the first one's sum.
            later = [(pin, net) for pin, net in outputs if pin != "S0"]
            self._connect(((net, cost) for pin, net, cost in costs if pin in _SECOND), later, kind)
        elif kind == "MULT18X18D" and not _registered(cell):
            self._connect(((net, _PRODUCT) for _, net in inputs), outputs, kind)
        elif _REGISTER.fullmatch(kind) or _CLOCKED.fullmatch(kind):
            self._clocked(name, inputs, outputs, 0)
        elif _LUTRAM.fullmatch(kind):
            # What is read appears behind a LUT's worth of logic, from the address or from a write before.
            address = [(net, LEVEL) for pin, net in inputs if re.match(r"ADDR[A-H]|DPRA|A\d?$|RADR|RAD$", pin)]
            self._clocked(name, inputs, outputs, LEVEL)
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

    def _clocked(self, name: str, inputs: list[tuple[str, int]], outputs: list[tuple[str, int]], cost: int) -> None:
        self.starts.update({net: (name, cost) for _, net in outputs})
        self.ends += [(net, name, pin) for pin, net in inputs if not re.fullmatch(r"\w*CLK\w*|C|WCLK|WCK|G", pin)]

    def _levels(self, starts: Iterable[tuple[int, int]]) -> tuple[dict[int, int], dict[int, tuple[int, str]]]:
        """Eighths of a level at each net that the ``starts`` reach.

        A start is a net and its level. Also returns the net, and the type of cell passed, from which a net has its
        level.
        """
        level = dict(starts)
        came: dict[int, tuple[int, str]] = {}
        for net in self.order():
            here = level.get(net, -1)  # -1: nothing changes here, such as a pin without a driver
            if here < 0:
                continue
            for sink, cost, kind in self.arcs.get(net, ()):
                if here + cost > level.get(sink, -1):
                    level[sink] = here + cost
                    came[sink] = net, kind
        return level, came

    def order(self) -> list[int]:
        """All nets, each behind those that it depends on."""
        waiting = dict(self.fan_in)
        nets = set(self.arcs) | set(waiting)
        ready = [net for net in nets if not waiting.get(net)]
        passed: list[int] = []
        while ready:
            net = ready.pop()
            passed.append(net)
            for sink, _, _ in self.arcs.get(net, ()):
                waiting[sink] -= 1
                if not waiting[sink]:
                    ready.append(sink)
        if len(passed) != len(nets):
            stuck = next(net for net in nets if waiting.get(net))
            raise TimingError(f"combinational loop through {self.net_name(stuck)}")
        return passed

    def by_unit(self, unit: Callable[[str], str]) -> dict[str, int]:
        """Levels of the deepest path between registers that ends in each unit.

        ``unit`` tells a cell's by its name.
        """
        level, _ = self._levels(
            (net, cost) for net, (cell, cost) in self.starts.items() if not cell.startswith("port ")
        )
        found: dict[str, int] = {}
        for net, cell, _ in self.ends:
            name = unit(cell) if net in level and not cell.startswith("port ") else ""
            if name:
                found[name] = max(found.get(name, 0), level[net])
        return {name: -(-cost // LEVEL) for name, cost in found.items()}

    def worst(self, count: int) -> list[LogicPath]:
        """The ``count`` deepest paths, deepest first, one a pair of registers."""
        level, came = self._levels((net, cost) for net, (_, cost) in self.starts.items())
        found: dict[tuple[str, str], LogicPath] = {}
        for net, cell, pin in sorted(self.ends, key=lambda end: (-level.get(end[0], 0), end[1], end[2])):
            cells, source = [], net
            while source in came:
                source, kind = came[source]
                cells.append(kind)
            start = self.net_name(source) if source in self.starts else "constant"
            outer = cell.startswith("port ") or self.starts.get(source, ("", 0))[0].startswith("port ")
            end = cell if cell.startswith("port ") else self.cell_name(cell, pin)
            path = LogicPath(
                levels=-(-level.get(net, 0) // LEVEL),
                start=start,
                end=end,
                cells=tuple(reversed(cells)),
                ends_at_port=outer,
            )
            found.setdefault((_bus(start), _bus(end)), path)
            if len(found) == count:
                break
        return list(found.values())

    def cell_name(self, cell: str, pin: str) -> str:
        """Name of a register in the source: that of the net it drives."""
        _, outputs = _pins(self.module["cells"][cell])
        kind = self.module["cells"][cell]["type"]
        label = self.net_name(outputs[0][1]) if outputs and _REGISTER.fullmatch(kind) else cell
        return label if pin in ("D", "DI") else f"{label} ({kind}.{pin})"

    def net_name(self, net: int) -> str:
        """The shortest name of a net in the source."""
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


def _registered(multiplier: dict[str, Any]) -> bool:
    """Whether a multiplier of the ECP5 uses any of its own registers."""
    return any(
        re.fullmatch(r"REG_\w+_CLK", name) and value != "NONE"
        for name, value in multiplier.get("parameters", {}).items()
    )


def _bus(name: str) -> str:
    return re.sub(r"\[\d+\]", "", name)


def _rank(name: str) -> tuple[bool, int, str]:
    return "$" in name, len(name), name
