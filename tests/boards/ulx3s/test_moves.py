"""Tables that make long paths move to free sites."""

import json

import pytest

from gradloom.boards.ulx3s.moves import NEAR, TILE, Placed, move_tables

LUT, SETUP, START = 0.24, 0.1, 0.52
_WAYS = {"Q": "output", "F": "output", "WADO0": "output"}


def cell(kind, site, reads=(), makes=None, **more):
    """A table or register; ``reads`` and ``makes`` are numbers of nets."""
    table = kind == "TRELLIS_COMB"
    ports = dict(zip("ABCD" if table else ("DI" if more.get("SD") == "1" else "M",), ([bit] for bit in reads)))
    ports |= {"F" if table else "Q": [makes] if makes else []}
    if kind == "TRELLIS_FF":
        ports |= {"CLK": [1], "LSR": []}
    return {
        "type": kind,
        "parameters": more,
        "attributes": {"BEL" if table else "NEXTPNR_BEL": site},
        "port_directions": {port: _WAYS.get(port, "input") for port in ports},
        "connections": ports,
    }


@pytest.fixture
def netlist(tmp_path):
    """Writes cells beside each other; returns the file, and how to read where they are then."""
    path = tmp_path / "placed.json"

    def write(**cells):
        path.write_text(json.dumps({"modules": {"top": {"cells": cells, "netnames": {}}}}))
        return path

    return write


def sites(path):
    cells = json.loads(path.read_text())["modules"]["top"]["cells"]
    return {name: each["attributes"].get("BEL") or each["attributes"]["NEXTPNR_BEL"] for name, each in cells.items()}


def longest(path):
    return Placed(json.loads(path.read_text())["modules"]["top"]).longest()


def register(site, reads, makes, sd="0"):
    return cell("TRELLIS_FF", site, reads, makes, SD=sd)


#: Two registers beside each other, and between them two tables at the far end of the chip: each holds the other.
FAR = {
    "a": register("X10/Y10/SLICEA.FF0", (), 2),
    "t": cell("TRELLIS_COMB", "X80/Y60/SLICEA.K0", (2,), 3),
    "u": cell("TRELLIS_COMB", "X80/Y60/SLICEB.K1", (3,), 4),
    "b": register("X12/Y10/SLICEA.FF0", (4,), 5),
}


def row(y):
    """Tiles with free sites: a tile is known where something lies in it."""
    return {f"r{x}_{y}": register(f"X{x}/Y{y}/SLICED.FF1", (), 1000 + 100 * x + y) for x in range(8, 84)}


def test_two_tables_far_away_come_back_between_their_registers(netlist):
    content = {**FAR, **{name: each for y in range(10, 60, 4) for name, each in row(y).items()}}
    path = netlist(**content)
    far = (70 + 50, 0, 68 + 50)
    assert longest(path) == pytest.approx(START + 2 * LUT + SETUP + 3 * NEAR + TILE * sum(far))
    assert move_tables(path, 200) > 0
    assert longest(path) <= 5
    found, before = sites(path), sites(netlist(**content))
    assert len(set(found.values())) == len(found), "two cells have one site"
    assert {name for name in found if found[name] != before[name]} == {"t", "u"}


def test_a_clock_that_is_kept_moves_nothing(netlist):
    path = netlist(**FAR, **row(10))
    before = path.read_text()
    assert move_tables(path, 40) == 0 and json.loads(path.read_text()) == json.loads(before)


@pytest.mark.parametrize("kind", ["CCU2", "DPRAM"])
def test_carries_and_memories_stay_and_have_their_slices_alone(netlist, kind):
    held = {"m0": cell("TRELLIS_COMB", "X10/Y10/SLICEB.K0", (), 50, MODE=kind)}
    full = ("A.K0", "A.K1", "C.K0", "D.K0")
    held |= {f"f{at}": cell("TRELLIS_COMB", f"X10/Y10/SLICE{part}", (), 60 + at) for at, part in enumerate(full)}
    far = FAR | {"t": cell("TRELLIS_COMB", "X80/Y60/SLICEA.K0", (2,), 3, MODE=kind)}
    path = netlist(**far, **held)
    move_tables(path, 200)
    assert sites(path)["t"] == "X80/Y60/SLICEA.K0"
    near = {"b": register("X10/Y10/SLICEA.FF1", (4,), 5)}
    way = {f"w{x}": register(f"X{x}/Y{y}/SLICED.FF1", (), 900 + x) for x, y in ((45, 35), (28, 22), (19, 16), (14, 13))}
    path = netlist(**FAR | near, **held, **way)
    assert move_tables(path, 500) > 0
    assert not {name for name, site in sites(path).items() if "X10/Y10/SLICEB" in site} - {"m0"}


def test_a_table_takes_its_register_with_it_into_a_slice_of_its_own(netlist):
    pair = {
        "a": register("X10/Y10/SLICEA.FF0", (), 2),
        "t": cell("TRELLIS_COMB", "X80/Y60/SLICEA.K0", (2,), 3),
        "b": register("X80/Y60/SLICEA.FF0", (3,), 4, sd="1"),
        "u": cell("TRELLIS_COMB", "X12/Y10/SLICEA.K0", (4,), 5),
        "c": register("X12/Y10/SLICEA.FF0", (5,), 6, sd="1"),
    }
    path = netlist(**pair, **row(10))
    assert move_tables(path, 150) > 0 and longest(path) < 1000 / 150
    found = sites(path)
    table, own = found["t"].rsplit(".", 1)[0], found["b"].rsplit(".", 1)[0]
    assert table == own and sum(table in site for site in found.values()) == 2


def test_a_slice_that_a_table_took_is_no_register_s(netlist):
    plain = [("A", 0), ("A", 1), ("C", 0), ("D", 0)]
    full = {
        f"{part}{k}": cell("TRELLIS_COMB", f"X10/Y10/SLICE{part}.K{k}", (), 30 + 4 * k + ord(part)) for part, k in plain
    }
    path = netlist(
        **full,
        a=register("X10/Y10/SLICEA.FF0", (), 2),
        e=register("X10/Y10/SLICEA.FF1", (3,), 20),
        f=register("X10/Y10/SLICEC.FF0", (5,), 21),
        v=cell("TRELLIS_COMB", "X90/Y70/SLICEA.K0", (2,), 3),
        t=cell("TRELLIS_COMB", "X80/Y60/SLICEA.K0", (2,), 4),
        b=register("X80/Y60/SLICEA.FF0", (4,), 5, sd="1"),
    )
    assert move_tables(path, 200) > 0
    found = sites(path)
    assert found["v"].startswith("X10/Y10/SLICEB") and found["b"].startswith("X80/Y60/SLICEA")


@pytest.mark.parametrize("line", ["reset", "memory", "none"])
def test_registers_stay_out_of_tiles_with_another_reset_or_a_memory(netlist, line):
    other = register("X10/Y10/SLICED.FF1", (), 40)
    other["connections"]["LSR"] = [77] if line == "reset" else []
    mode = {"MODE": "DPRAM"} if line == "memory" else {}
    path = netlist(
        other=other,
        a=cell("TRELLIS_COMB", "X10/Y10/SLICEA.K0", (), 2, **mode),
        t=cell("TRELLIS_COMB", "X80/Y60/SLICEA.K0", (2,), 3),
        b=register("X80/Y60/SLICEA.FF0", (3,), 4, sd="1"),
        c=cell("TRELLIS_COMB", "X10/Y10/SLICEB.K0", (4,), 5),
    )
    move_tables(path, 400)
    assert sites(path)["b"].startswith("X10/Y10" if line == "none" else "X80/Y60")


def test_constants_begin_no_path(netlist):
    path = netlist(**FAR)
    content = json.loads(path.read_text())
    content["modules"]["top"]["netnames"] = {"$PACKER_VCC_NET": {"bits": [3]}}
    path.write_text(json.dumps(content))
    # What is left is from the first register to the first table, and from the second table to the second register.
    assert longest(path) == pytest.approx(START + NEAR + TILE * 120 + LUT)
