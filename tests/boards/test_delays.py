"""The estimate of delays, on netlists small enough to add up by hand."""

import pytest

from gradloom.boards.netlist.delays import DELAYS, estimate
from gradloom.boards.netlist.timing import Netlist


def cell(kind, **pins):
    """A cell of a netlist: pins in capitals, outputs first named O, Q, CO or P."""
    outputs = ("O", "Q", "CO", "P", "S0")
    return {
        "type": kind,
        "port_directions": {pin: "output" if pin in outputs else "input" for pin in pins},
        "connections": {pin: bits if isinstance(bits, list) else [bits] for pin, bits in pins.items()},
    }


def netlist(**cells):
    names = {bit for each in cells.values() for bits in each["connections"].values() for bit in bits}
    top = {
        "attributes": {"top": "1"},
        "ports": {},
        "cells": cells,
        "netnames": {f"n{bit}": {"bits": [bit]} for bit in sorted(names)},
    }
    return Netlist({"modules": {"top": top}})


XC7 = DELAYS["xc7"]


def test_a_path_is_its_cells_and_its_wires():
    found = estimate(
        netlist(a=cell("FDRE", Q=1, D=9, C=0), lut=cell("LUT2", O=2, I0=1, I1=1), b=cell("FDRE", Q=3, D=2, C=0)), "xc7"
    )
    assert found.ns == pytest.approx(0.25 + XC7.wire + XC7.lut + XC7.wire + XC7.setup, abs=0.005)
    assert (found.start, found.end) == ("n1", "n3") and found.wires_ns == pytest.approx(2 * XC7.wire, abs=0.005)
    assert found.mhz == round(1000 / found.ns, 1)


def test_many_loads_make_a_wire_longer_and_a_block_ram_starts_late():
    few = netlist(a=cell("FDRE", Q=1, D=9, C=0), b=cell("FDRE", Q=3, D=1, C=0))
    sinks = {f"b{n}": cell("FDRE", Q=10 + n, D=1, C=0) for n in range(8)}
    many = netlist(a=cell("FDRE", Q=1, D=9, C=0), **sinks)
    assert estimate(many, "xc7").ns - estimate(few, "xc7").ns == pytest.approx(3 * XC7.load, abs=0.006)
    block = netlist(a=cell("RAMB36E1", P=1, CLKARDCLK=0), b=cell("FDRE", Q=3, D=1, C=0))
    assert estimate(block, "xc7").ns - estimate(few, "xc7").ns == pytest.approx(1.9 - 0.25, abs=0.006)


def test_a_carry_chain_is_entered_once_and_has_no_wires_inside():
    chain = netlist(
        a=cell("FDRE", Q=1, D=9, C=0),
        first=cell("CARRY4", CO=2, S=1),
        second=cell("CARRY4", CO=3, CI=2),
        b=cell("FDRE", Q=4, D=3, C=0),
    )
    found = estimate(chain, "xc7")
    assert found.wires_ns == pytest.approx(2 * XC7.wire, abs=0.005)
    assert found.ns == pytest.approx(0.25 + 2 * XC7.wire + XC7.enter + 2 * XC7.passed + XC7.setup, abs=0.006)


def test_ports_are_no_paths():
    only = netlist(a=cell("LUT2", O=2, I0=1, I1=1))
    assert estimate(only, "xc7") is None


def test_paths_come_by_depth_then_by_the_names_of_their_ends():
    """Where no signal changes, as behind a constant, the end is as deep as one that a register drives."""
    found = netlist(
        a=cell("FDRE", Q=1, D=8, C=0),
        lut=cell("LUT2", O=2, I0=1, I1=1),
        z=cell("FDRE", Q=3, D=1, CE=2, C=0),
        c=cell("FDRE", Q=4, D=2, CE=1, R=8, C=0),
    ).worst(9)
    ends = [(each.levels, each.start, each.end) for each in found]
    assert ends[:2] == [(1, "n1", "n4"), (1, "n1", "n3 (FDRE.CE)")]
    assert ends[2:] == [
        (0, "constant", "n1"),
        (0, "n1", "n4 (FDRE.CE)"),
        (0, "constant", "n4 (FDRE.R)"),
        (0, "n1", "n3"),
    ]
