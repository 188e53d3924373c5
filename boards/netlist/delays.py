"""Estimates the delays of paths in a mapped netlist.

**An estimate, not timing**: nothing is placed. A path is the delay from its start's clock, one delay a cell, and a wire
before each cell, which grows with the loads of its net. The values are rounded ones for each family: of cells in the
order of the vendors' data sheets, of wires so that routed designs come out (ECP5) or by experience (AMD).
"""

import dataclasses
import math
import re
from collections import defaultdict
from typing import TypedDict

from .timing import LEVEL, Netlist

__all__ = ["DELAYS", "Delays", "Estimate", "estimate"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Delays:
    """Delays of a family in ns.

    ``start``: from the clock to the output, by kind of cell, the first pattern that fits. ``wire`` and ``load``: of a
    net with one load, and more for each doubling of the loads. ``enter`` and ``passed``: of a carry chain and of a step
    of it.
    """

    grade: str
    start: tuple[tuple[str, float], ...]
    setup: float
    lut: float
    enter: float
    passed: float
    product: float
    wire: float
    load: float

    def net(self, loads: int) -> float:
        """Delay of a net with so many loads."""
        return self.wire + self.load * math.log2(max(loads, 1))


DELAYS = {
    "xc7": Delays(
        grade="Kintex-7, speed grade 2",
        start=((r"DSP48", 0.35), (r"RAMB|FIFO", 1.9), (r"RAM|SRL", 0.8), ("", 0.25)),
        setup=0.05,
        lut=0.05,
        enter=0.30,
        passed=0.06,
        product=0.0,
        wire=0.38,
        load=0.06,
    ),
    "xcup": Delays(
        grade="UltraScale+, speed grade 2LV",
        start=((r"DSP48", 0.30), (r"RAMB|FIFO", 1.2), (r"URAM", 1.3), (r"RAM|SRL", 0.6), ("", 0.12)),
        setup=0.05,
        lut=0.09,
        enter=0.20,
        passed=0.03,
        product=0.0,
        wire=0.32,
        load=0.06,
    ),
    "ecp5": Delays(
        grade="ECP5, speed grade 6",
        start=((r"MULT18", 0.5), (r"DP16KD", 0.6), (r"DPR16", 0.55), ("", 0.52)),
        setup=0.1,
        lut=0.24,
        enter=0.45,
        passed=0.07,
        product=3.0,
        wire=0.85,
        load=0.08,
    ),
}


class PathEstimate(TypedDict):
    """A path's time, of which wires are a part, and the clock that it allows."""

    ns: float
    cells_ns: float
    wires_ns: float
    start: str
    end: str
    grade: str
    mhz: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """The slowest path between registers, by estimate."""

    ns: float
    cells_ns: float
    wires_ns: float
    start: str
    end: str
    grade: str

    @property
    def mhz(self) -> float:
        """The clock that the path allows."""
        return round(1000 / self.ns, 1) if self.ns else 0.0

    def as_dict(self) -> PathEstimate:
        """Plain values, for JSON."""
        return {
            "ns": self.ns,
            "cells_ns": self.cells_ns,
            "wires_ns": self.wires_ns,
            "start": self.start,
            "end": self.end,
            "grade": self.grade,
            "mhz": self.mhz,
        }


def estimate(netlist: Netlist, family: str) -> Estimate | None:
    """The slowest path of ``netlist`` that does not touch a port.

    None if there is none.
    """
    delays = DELAYS[family]
    kinds = {name: cell["type"] for name, cell in netlist.module["cells"].items()}
    loads: dict[int, int] = defaultdict(int)
    for net, arcs in netlist.arcs.items():
        loads[net] += len({sink for sink, _, _ in arcs})
    for net, _, _ in netlist.ends:
        loads[net] += 1

    def wire(net: int) -> float:
        return delays.net(loads[net])

    def begins(cell: str) -> float:
        kind = kinds.get(cell, "")
        return next(value for pattern, value in delays.start if re.match(pattern, kind))

    def cell(kind: str, cost: int) -> float:
        if kind.startswith(("CARRY", "CCU2C")):
            steps, enters = (cost - LEVEL, True) if cost >= LEVEL else (cost, False)
            return delays.passed * steps / 2 + (delays.enter if enters else 0.0)
        if kind == "MULT18X18D":
            return delays.product
        return delays.lut * cost / LEVEL

    late = {net: begins(name) for net, (name, _) in netlist.starts.items() if not name.startswith("port ")}
    wires = dict.fromkeys(late, 0.0)
    came: dict[int, int] = {}
    for net in netlist.order():
        if net not in late:
            continue
        for sink, cost, kind in netlist.arcs.get(net, ()):
            chained = kind.startswith(("CARRY", "CCU2C")) and cost < LEVEL
            way = 0.0 if chained else wire(net)
            then = late[net] + way + cell(kind, cost)
            if then > late.get(sink, -1.0):
                late[sink], wires[sink], came[sink] = then, wires[net] + way, net
    ends = [(late[net] + wire(net) + delays.setup, net, name, pin) for net, name, pin in netlist.ends if net in late]
    ends = [each for each in ends if not each[2].startswith("port ")]
    if not ends:
        return None
    ns, net, name, pin = max(ends)
    on_wire, source = wires[net] + wire(net), net
    while source in came:
        source = came[source]
    return Estimate(
        ns=round(ns, 2),
        cells_ns=round(ns - on_wire, 2),
        wires_ns=round(on_wire, 2),
        start=netlist.net_name(source),
        end=netlist.cell_name(name, pin),
        grade=delays.grade,
    )
