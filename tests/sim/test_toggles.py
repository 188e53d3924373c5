"""What is counted of toggles, what is left out by rule, and what is told."""

import re

import pytest

from gradloom.sim.activity import counts as toggle_counts
from gradloom.sim.activity import covered as toggle_runs

INNER = """\
module inner(clk, i, \\o.low , o);
  input clk;
  wire clk;
  input [3:0] i;
  wire [3:0] i;
  output \\o.low ;
  wire \\o.low ;
  output [3:0] o;
  reg [3:0] o = 4'h0;
  reg [1:0] _04_;
  reg [7:0] memory [3:0];
  wire [3:0] between;
  assign between = i & 4'h7;
  assign \\o.low  = between[0];
  always @(posedge clk) o <= between;
  always @(posedge clk) _04_ <= i[1:0];
endmodule
"""
OUTER = """\
module outer(clk, i, o);
  input clk;
  wire clk;
  input [1:0] i;
  wire [1:0] i;
  output [7:0] o;
  wire [7:0] o;
  inner \\first.one  (
    .clk(clk), .i({ 1'h0, i, 1'h1 }), .o(o[3:0]), .\\o.low ()
  );
  inner second (
    .clk(clk), .i({ 2'h0, i }), .o(o[7:4]), .\\o.low ()
  );
endmodule
"""


def counts(*found):
    """Lines as Verilator writes them."""
    return [
        f"C '\1f\2inner.v\1l\0023\1t\2toggle\1page\2v_toggle/{module}\1o\2{name}\1h\2top' {count}\n"
        for module, name, count in found
    ]


def test_ports_and_named_registers_are_counted_and_nothing_else():
    found = toggle_counts.signals(INNER)["inner"]
    assert {name: (each.width, each.port) for name, each in found.items()} == {
        "clk": (1, True),
        "i": (4, True),
        "o.low": (1, True),
        "o": (4, True),
    }
    told = toggle_counts.instrument(INNER)
    assert re.sub(r"/\*verilator coverage_o(n|ff)\*/", "", told) == "\n" + INNER
    counting = [line for line in told.splitlines() if line.startswith("/*verilator coverage_on*/")]
    assert len(counting) == 8 and not any("between" in line or "memory" in line or "_04_" in line for line in counting)


def test_a_bit_is_covered_that_rises_and_falls_in_any_instance():
    seen = toggle_counts.counted(
        [
            "# SystemC::Coverage-3\n",
            *counts(
                ("inner", "i[0]:0->1", 3),
                ("inner", "i[0]:1->0", 2),
                ("inner", "i[1]:0->1", 1),
                ("inner", "i[1]:1->0", 0),
                ("inner", "o.low:0->1", 1),
                ("inner", "o.low:1->0", 1),
                ("inner___05Fqueue__0247", "x___05F0__0247[1]:0->1", 4),
            ),
        ]
    )
    assert seen == {
        ("inner__queue$7", "x__0$7", 1): (4, 0),
        ("inner", "i", 0): (3, 2),
        ("inner", "i", 1): (1, 0),
        ("inner", "o.low", 0): (1, 1),
    }


def test_what_is_constant_in_every_instance_is_left_out(tmp_path):
    files = []
    for name, text in (("inner", INNER), ("outer", OUTER)):
        files.append(tmp_path / f"{name}.v")
        files[-1].write_text(text)
    fixed = toggle_counts.constants(files, "outer")
    # i[3] is 0 in both; i[0] is 1 in the one, and an input in the other. o begins at 0.
    assert fixed == {("inner", "i", 3), ("inner", "o", 3), ("outer", "o", 3), ("outer", "o", 6), ("outer", "o", 7)}
    known = toggle_counts.signals(INNER) | toggle_counts.signals(OUTER)
    moved = [("inner", "i[0]"), ("inner", "i[2]"), ("inner", "clk"), ("outer", "clk")]
    seen = toggle_counts.counted(
        counts(*((module, f"{bit}:{way}", 1) for module, bit in moved for way in ("0->1", "1->0")))
    )
    said = toggle_counts.report(known, seen, fixed)
    assert said["units"]["inner"] == {
        "points": 8,
        "covered": 3,
        "excluded": {"constant": 2},
        "holes": ["i[1]", "o.low", "o[2:0]"],
    }
    assert (said["points"], said["covered"], said["excluded"]) == (16, 4, {"constant": 5})
    assert said["share"] == 25.0


@pytest.mark.parametrize("preset", sorted(toggle_runs.RUNS))
def test_every_preset_has_runs(preset):
    assert callable(toggle_runs.RUNS[preset])
