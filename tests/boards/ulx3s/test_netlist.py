"""The ULX3S's netlists: what is placed, sites of multipliers, copies of the reset, and reports of them."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from gradloom import boards
from gradloom.boards.ulx3s import tools as flow
from gradloom.boards.ulx3s.copies import copy_reset
from gradloom.boards.ulx3s.routing import SETTINGS as SETTINGS_OF_ROUTER
from gradloom.boards.ulx3s.routing import tell_router
from gradloom.boards.ulx3s.spread import SITES, spread
from gradloom.rtl.emit.yosys import yosys_files

BOARD = boards.find("ulx3s")


def test_what_is_placed_does_not_depend_on_folders(tmp_path):
    """Neither that of the design nor that of Yosys: names in the netlist begin with it, and wires depend on names."""
    made = []
    for folder in (tmp_path / "a", tmp_path / "another" / "and" / "deeper"):
        folder.mkdir(parents=True)
        (folder / "top.v").write_text(
            "module gradloom_ulx3s (input clk, input [17:0] a, output reg [35:0] p = 0);\n"
            "always @(posedge clk) p <= p + a * p[17:0]; endmodule\n"
        )
        flow.synthesise(folder, ["top.v"])
        netlist = folder / "build" / "netlist.json"
        assert str(yosys_files()) in netlist.read_text()
        tell_router(netlist)
        made.append(netlist.read_bytes())
        assert str(yosys_files()).encode() not in made[-1] and str(tmp_path).encode() not in made[-1]
    assert made[0] == made[1]


def test_a_report_asks_what_the_build_has_left(design, run, tmp_path):
    """Registers by their line, memories by their name; a memory's own registers by what their nets are called."""

    def held(q, name, **more):
        return {
            "type": "TRELLIS_FF",
            "attributes": more,
            "connections": {"CLK": [2], "DI": [3], "Q": [q]},
            "port_directions": {"CLK": "input", "DI": "input", "Q": "output"},
        }

    def module(file):
        return {
            "type": "$scopeinfo",
            "attributes": {"module_src": f"{file}:1.1-9.10"},
            "connections": {},
            "port_directions": {},
        }

    lines = (design / "rtl" / "gradloom_array_intake.v").read_text().splitlines()
    taken = next(number for number, line in enumerate(lines, 1) if line.startswith("  input "))
    given = next(number for number, line in enumerate(lines, 1) if line.startswith("  output "))
    path = "tuner.accelerator.intake"
    netlist = {
        "modules": {
            "gradloom_ulx3s": {
                "attributes": {"top": "1", "src": "top.v:1.1-9.10"},
                "ports": {},
                "cells": {
                    "tuner": module("tuner.v"),
                    "tuner.accelerator": module("../rtl/gradloom.v"),
                    path: module("../rtl/gradloom_array_intake.v"),
                    "tuner.accelerator.shell": module("../rtl/gradloom_shell.v"),
                    "$auto$ff.cc:1": held(10, "a", src="../rtl/gradloom_shell.v:5.3-5.9|/share/cells.v:1.1-1.2"),
                    "$auto$ff.cc:2": held(11, "b", src="/share/cells.v:1.1-1.2"),
                    "$auto$ff.cc:3": held(12, "c", src="/share/cells.v:1.1-1.2"),
                    "$auto$ff.cc:4": held(13, "d", src="/share/cells.v:1.1-1.2"),
                    f"{path}.words.0": {"type": "DP16KD", "attributes": {}, "connections": {}, "port_directions": {}},
                    "lut": {
                        "type": "LUT4",
                        "attributes": {},
                        "connections": {"A": [13], "Z": [3]},
                        "port_directions": {"A": "input", "Z": "output"},
                    },
                },
                "netnames": {
                    f"{path}.o": {
                        "bits": [11],
                        "attributes": {"src": f"../rtl/gradloom_array_intake.v:{given}.1-{given}.9"},
                    },
                    "tuner.accelerator.wire": {"bits": [11], "attributes": {"src": "../rtl/gradloom.v:9.1-9.9"}},
                    f"{path}.i": {
                        "bits": [12],
                        "attributes": {"src": f"../rtl/gradloom_array_intake.v:{taken}.1-{taken}.9"},
                    },
                    "$\\tuner.accelerator.words$rdreg[0]$q": {"bits": [12], "attributes": {}},
                    "$abc$13": {"bits": [13], "attributes": {}},
                },
            }
        }
    }
    copy = tmp_path / "design"
    shutil.copytree(design, copy)
    (copy / "board" / "build").mkdir()
    (copy / "board" / "build" / "netlist.json").write_text(json.dumps(netlist))
    code, out, err = run("report", str(copy), "--json")
    # One LUT, and `gradloom` may have one level too.
    assert code == 0, err
    found = json.loads(out)
    assert {name: unit["ff"] for name, unit in found["units"].items() if unit["ff"]} == {
        "gradloom_shell": 1,
        "gradloom_array_intake": 1,
        "gradloom": 1,
        "memories": 1,
    }
    assert (found["total"]["lut"], found["total"]["bram36"], found["levels"]) == (1, 0.5, 1)
    unit = found["units"]["gradloom_array_intake"]
    assert unit["instances"] == 1 and unit["bram36"] == 0.5


#: As nextpnr 0.11 writes it, shortened.
REPORT = {
    "fmax": {"$glbnet$clk": {"achieved": 81.2345, "constraint": 75.0}},
    "critical_paths": [
        {"from": "<async>", "to": "posedge $glbnet$clk", "path": []},
        {
            "from": "posedge $glbnet$clk",
            "to": "posedge $glbnet$clk",
            "path": [
                {
                    "type": "clk-to-q",
                    "delay": 0.525,
                    "from": {"cell": "a", "port": "CLK"},
                    "to": {"cell": "a", "port": "Q"},
                },
                {
                    "type": "routing",
                    "delay": 2.25,
                    "from": {"cell": "a", "port": "Q"},
                    "to": {"cell": "b", "port": "D"},
                },
            ],
        },
    ],
    "utilization": {
        "TRELLIS_COMB": {"used": 41820, "available": 83640},
        "DP16KD": {"used": 104, "available": 208},
        "MULT18X18D": {"used": 125, "available": 156},
        "DCCA": {"used": 1, "available": 56},
    },
}
SITE = "X18/Y30/SLICEB.COMB1"
SETTINGS = {"device": "85k", "package": "CABGA381", "speed": 6, "mhz": 75, "seed": 1}


def test_what_place_and_route_found_is_put_together():
    found = flow.summary(REPORT, BOARD, SETTINGS)
    assert found["fmax_mhz"] == 81.23 and found["clock_mhz"] == 75
    assert found["utilisation"] == {
        "lut": {"used": 41820, "available": 83640, "percent": 50.0},
        "bram18": {"used": 104, "available": 208, "percent": 50.0},
        "mult18": {"used": 125, "available": 156, "percent": 80.1},
    }
    assert found["worst_path"] == [
        {"kind": "clk-to-q", "from": "a.CLK", "to": "a.Q", "ns": 0.525},
        {"kind": "routing", "from": "a.Q", "to": "b.D", "ns": 2.25},
    ]


@pytest.mark.parametrize("count, sites", [(3, 78), (78, 78), (79, 156)])
def test_multipliers_get_sites_with_free_neighbours(tmp_path, count, sites):
    """Each a site of its own, the nearest where one is alone; second sites only where the first are too few."""
    names = [f"m{n}" for n in range(count)]
    at = {name: f"X{90 - n}/Y{33 + n % 3}/MULT18_1" for n, name in enumerate(names)}
    kinds = {name: {"type": "MULT18X18D", "attributes": {"NEXTPNR_BEL": at[name]}} for name in names}
    placed, netlist = tmp_path / "rough.json", tmp_path / "netlist.json"
    placed.write_text(json.dumps({"modules": {"top": {"cells": kinds | {"r": {"type": "TRELLIS_FF"}}}}}))
    cells = {name: {"type": "MULT18X18D"} for name in names} | {"r": {"type": "TRELLIS_FF"}}
    netlist.write_text(json.dumps({"modules": {"t": {"cells": cells, "settings": {}}, "blackbox": {"cells": {}}}}))
    assert spread(placed, netlist) == count
    made = json.loads(netlist.read_text())["modules"]["t"]["cells"]
    fixed = [made[name]["attributes"]["BEL"] for name in names]
    allowed = {f"X{x}/Y{y}/{kind}" for x, y, kind in SITES[:sites]}
    assert len(SITES) == len(set(SITES)) == 156 and set(fixed) <= allowed and len(set(fixed)) == count
    assert made["r"] == {"type": "TRELLIS_FF"}
    if count == 3:
        assert fixed == ["X91/Y34/MULT18_4", "X87/Y34/MULT18_0", "X82/Y34/MULT18_4"]
    (tmp_path / "rough.json").write_text(json.dumps({"modules": {"top": {"cells": {}}}}))
    with pytest.raises(ValueError, match="not those of"):
        spread(placed, netlist)


def _placed(loads, **register):
    """A placed netlist: ``loads`` registers of a reset in a row of full tiles, and free tiles below them."""
    flop = {"type": "TRELLIS_FF", "parameters": {"SD": "1 ", "REGSET": "SET"}}
    ways = {"Q": "output", "DI": "input", "LSR": "input", "CLK": "input"}
    cells = {}
    for n in range(loads):
        at = {"NEXTPNR_BEL": f"X{n // 8}/Y3/SLICE{'ABCD'[n % 8 // 2]}.FF{n % 2}"}
        wires = {"Q": [100 + n], "DI": [1], "LSR": [7], "CLK": [5]}
        cells[f"r{n}"] = flop | {"attributes": at, "port_directions": ways, "connections": wires}
    wires = {"Q": [7], "DI": [9], "LSR": [], "CLK": [5]} | register
    cells["source"] = flop | {
        "attributes": {"NEXTPNR_BEL": "X0/Y9/SLICEA.FF0"},
        "port_directions": ways,
        "connections": wires,
    }
    for n in range(loads // 4):  # two rows below: a table in each tile, or a register with another clock
        at = {"NEXTPNR_BEL": f"X{n // 2}/Y{4 + n % 2}/SLICEB.{'FF' if n % 4 == 3 else 'COMB'}0"}
        wires = {"Q": [50 + n], "CLK": [6]} if n % 4 == 3 else {"F": [50 + n]}
        kind = "TRELLIS_FF" if n % 4 == 3 else "TRELLIS_COMB"
        ways_of = dict.fromkeys(wires, "output") | ({"CLK": "input"} if n % 4 == 3 else {})
        cells[f"t{n}"] = {"type": kind, "attributes": at, "port_directions": ways_of, "connections": wires}
    nets = {"a.engines_rst": {"bits": [7]}, "other": {"bits": [200 + loads]}}
    return {"modules": {"top": {"cells": cells, "netnames": nets}}}


@pytest.mark.parametrize("loads, most, copies", [(64, 63, 2), (64, 20, 4), (64, 1, 8), (640, 360, 2)])
def test_each_region_has_the_reset_of_a_register_of_its_own(tmp_path, loads, most, copies):
    """Same data, clock and first value as the register; whole tiles; a slice that nothing uses, of the same clock."""
    path = tmp_path / "placed.json"
    before = _placed(loads)
    path.write_text(json.dumps(before))
    assert copy_reset(path, most=most) == copies
    after = json.loads(path.read_text())["modules"]["top"]
    made = {name: cell for name, cell in after["cells"].items() if name not in before["modules"]["top"]["cells"]}
    assert len(made) == copies
    bits = set()
    for cell in made.values():
        assert cell["connections"] | {"Q": []} == {"Q": [], "M": [9], "LSR": [], "CLK": [5]}
        assert cell["parameters"] == {"SD": "0 ", "REGSET": "SET"} and cell["port_directions"]["M"] == "input"
        column, row, part = re.fullmatch(
            r"X(\d+)/Y([459])/SLICE([A-D])\.FF0", cell["attributes"]["NEXTPNR_BEL"]
        ).groups()
        assert not (row == "5" and int(column) % 2) and (row, part) not in {("4", "B"), ("5", "B"), ("9", "A")}
        bits.add(cell["connections"]["Q"][0])
    assert len({cell["attributes"]["NEXTPNR_BEL"] for cell in made.values()}) == len(bits) == copies
    assert min(bits) > 200 + loads and bits == {each["bits"][0] for n, each in after["netnames"].items() if "rst_" in n}
    resets = [after["cells"][f"r{n}"]["connections"]["LSR"][0] for n in range(loads)]
    assert set(resets) == bits and all(len(set(resets[n : n + 8])) == 1 for n in range(0, loads, 8))
    assert after["cells"]["source"]["connections"]["Q"] == []


@pytest.mark.parametrize("content", [_placed(64), _placed(640, LSR=[3]), {"modules": {"top": {"cells": {}}}}])
def test_a_reset_of_few_loads_or_of_no_plain_register_stays(tmp_path, content):
    path = tmp_path / "placed.json"
    path.write_text(json.dumps(content))
    assert copy_reset(path, most=64) == 0 and json.loads(path.read_text()) == content


#: The words of the PLL that decide the clock, as nextpnr 0.11 writes them for 75 MHz.
CONFIG_WORDS = (
    "word: CLKOP_CPHASE 0001100\nword: CLKOP_DIV 0010111\nword: CLKOS_CPHASE 0000100\nword: CLKOS_DIV 0000111\n"
    "word: CLKOS2_DIV 0000111\n"
)
MISSED = "routing has not ended after 400 iterations"


@pytest.mark.parametrize(
    "first, later, divided, baud, said",
    [
        (81.2345, {}, (24, 8), 1_000_000, ""),
        (70.5, {"75": 75.01}, (24, 8), 1_000_000, ""),
        (
            59.06,
            {"61.12": 61.2, "63.64": 68.126, "71.43": MISSED, "69.45": MISSED, "68.75": MISSED},
            (27, 10),
            900_000,
            f"68.75 MHz: {MISSED}; the",
        ),
        (61.9, {"63.89": 68.1, "71.43": 71.2}, (28, 10), 933_333, "reaches 71.2 MHz, not clock_mhz=75"),
        (61.9, {"63.89": MISSED, "63.64": 63.7}, (28, 11), 848_485, f"63.89 MHz: {MISSED}; the wires of before stay"),
        (67.7, {"70": 69.82}, (25, 9), 925_926, "the bitstream runs it at 69.444 MHz"),
        (MISSED, {}, None, None, MISSED),
        (3.8, {"3.94": 3.8, "3.91": 3.8}, None, None, "reaches 3.8 MHz, which is less than the PLL makes"),
    ],
)
def test_a_bitstream_runs_at_the_clock_that_is_reached(design, run, monkeypatch, first, later, divided, baud, said):
    """Later routings aim at one clock of the PLL after another. Synthesis and nextpnr are stand-ins."""
    folder = design / "board"

    def synthesised(where, sources, top="gradloom_ulx3s"):
        assert any(source == "../synth/gradloom_pe_both0.v" for source in sources) and "top.v" in sources
        assert all((where / source).is_file() for source in sources)
        bare = {"connections": {}, "port_directions": {}, "attributes": {}, "parameters": {}}
        cells = {"t": {"type": "TRELLIS_COMB"} | bare, "m": {"type": "MULT18X18D"} | bare}
        (where / "build" / "netlist.json").write_text(json.dumps({"modules": {top: {"cells": cells}}}))

    asked, packed = [], []

    def placed_and_routed(args, build, watch):
        source, name = (Path(args[args.index(option) + 1]).stem for option in ("--json", "--write"))
        asked.append(name)
        (module,) = json.loads((build / f"{source}.json").read_text())["modules"].values()
        routes = name not in ("rough", "placed")
        aim = name.removeprefix("timed") if name.startswith("timed") else "75"
        still = {"placer1/startTemp": "0.0000001"} if routes else {}
        assert module["settings"] == SETTINGS_OF_ROUTER | still
        # The second placement finds the multiplier fixed near its place in the first, and the router each table.
        assert module["cells"]["m"]["attributes"].get("BEL") == (None if name == "rough" else "X17/Y34/MULT18_4")
        assert module["cells"]["t"]["attributes"].get("BEL") == (SITE if routes else None)
        assert args[args.index("--freq") + 1] == aim and ("--tmg-ripup" in args) == name.startswith("timed")
        if routes:
            watch()
            reached = first if name == "routed" else later[aim]
            if reached == MISSED:
                raise flow.FlowError(MISSED)
            clocks = {"fmax": {"$glbnet$clk": {"achieved": reached, "constraint": 75.0}}}
            (build / f"{name}.report").write_text(json.dumps(REPORT | clocks))
            (build / f"{name}.config").write_text(CONFIG_WORDS + f"# {name}\n")
        module["cells"]["t"]["attributes"] = {"NEXTPNR_BEL": SITE}
        module["cells"]["m"]["attributes"]["NEXTPNR_BEL"] = "X18/Y30/MULT18_5"
        module["settings"] |= {"target_freq": "75000000.0", "auto_freq": "0", "router": "router1"}
        (build / f"{name}.json").write_text(json.dumps({"modules": {"top": module | {"netnames": {}}}}))

    def tool(args, where, hint="", watch=None):
        def action():
            if args[0] == "nextpnr-ecp5":
                placed_and_routed(args, where / "build", watch)
            else:
                packed.append((where / args[-2]).read_text())
                (where / args[-1]).write_bytes(b"bits")

        return flow.FlowStep(args[0], action)

    kept = (design / "report.json").read_text()
    monkeypatch.setattr(flow, "synthesise", synthesised)
    monkeypatch.setattr(flow, "tool", tool)
    monkeypatch.setattr(flow, "find_spec", lambda name: sys)
    try:
        code, out, err = run("build", "ulx3s", str(design))
        assert said in " ".join((out + err).split())
        assert code == (0 if divided else 2) and (folder / "gradloom.bit").exists() == bool(divided)
        assert asked == ["rough", "placed", "routed", *(f"timed{aim}" for aim in later)]
        if divided:
            multiple, divider = divided
            clock = round(25 * multiple / divider, 3)
            found = json.loads((design / "report.json").read_text())["place_and_route"]
            assert found["clock_mhz"] == 75 and found["bitstream"] == {"clock_mhz": clock, "baud": baud}
            reached = {"routed": first} | {f"timed{aim}": mhz for aim, mhz in later.items() if mhz != MISSED}
            better = max(reached, key=lambda name: reached[name])
            assert found["fmax_mhz"] == round(reached[better], 2)
            assert packed == [
                f"word: CLKOP_CPHASE {multiple // 2:07b}\nword: CLKOP_DIV {multiple - 1:07b}\n"
                f"word: CLKOS_CPHASE {divider // 2:07b}\nword: CLKOS_DIV {divider - 1:07b}\n"
                f"word: CLKOS2_DIV 0000111\n# {better}\n"
            ]
    finally:
        (design / "report.json").write_text(kept)
        (folder / "gradloom.bit").unlink(missing_ok=True)
        shutil.rmtree(folder / "build", ignore_errors=True)
