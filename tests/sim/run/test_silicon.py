"""Machines start as silicon does: registers hold anything before reset."""

import dataclasses
import re

import pytest

from gradloom.firmware.device.host import Accelerator
from gradloom.rtl.machines.configs.recurrent import RecurrentConfig
from gradloom.sim.run.builds.designs import _digest
from gradloom.sim.run.device import SimulatedDevice
from gradloom.sim.run.silicon import MEMORY_BYTES, as_silicon, silicon_device
from gradloom.sim.testbench.machines import programs
from gradloom.sim.testbench.starts import _break_off, _ran, check_starts

#: The smallest family; `make evidence` starts every preset.
CONFIG = RecurrentConfig(hidden=16, inputs=8, parallel=2, sequences=2, products=1)
TEXT = """module m(clk);
  reg [3:0] a = 4'h0;
  reg b = 1'h1;
  reg signed [31:0] \\odd.name  = 32'd7;
  (* keep *) reg c = 1'h0;
  reg [7:0] table [1:0];
  initial begin
    table[0] = 8'h01;
  end
  reg [7:0] store [1:0];
`ifndef SYNTHESIS
  initial begin : clear_store
    integer clear_store_at;
    for (clear_store_at = 0; clear_store_at <= 1; clear_store_at = clear_store_at + 1) store[clear_store_at] = 0;
  end
`endif
endmodule
"""


def test_only_what_a_chip_defines_is_left():
    text = as_silicon(TEXT)
    assert "reg [3:0] a;" in text and "reg signed [31:0] \\odd.name ;" in text and "reg c;" in text
    assert "table[0] = 8'h01" in text and "clear_store" not in text
    # A bitstream sets registers, and no memory that is written.
    kept = as_silicon(TEXT, reset=False)
    assert "reg [3:0] a = 4'h0;" in kept and "clear_store" not in kept


def test_an_unknown_form_is_refused():
    with pytest.raises(ValueError, match="cleared in an unknown way"):
        as_silicon("  initial begin : clear_x\n  end\n")
    with pytest.raises(ValueError, match="unknown form: reg a = 1, b;"):
        as_silicon("  reg a = 1, b;\n")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return silicon_device(CONFIG, tmp_path_factory.mktemp("silicon"))


def test_a_design_has_the_name_of_the_sources_that_are_imported(tmp_path):
    """A checkout that changes under a running test must not give the old Verilog the name of the new."""
    (tmp_path / "unit.py").write_text("a = 1\n")
    before = _digest(tmp_path)
    (tmp_path / "unit.py").write_text("a = 2\n")
    assert _digest(tmp_path) == before
    _digest.cache_clear()
    assert _digest(tmp_path) != before


def test_words_and_counters_do_not_depend_on_the_start(built):
    found = check_starts(built, programs(CONFIG), seeds=(1, 2, 3), resets=3)
    assert found.faults == () and (found.starts, found.resets) == (3, 9)


def test_a_wrong_word_is_found(built):
    *before, run = programs(CONFIG)
    offset, raw, mask = run.expected[0]
    wrong = [(offset, bytes([raw[0] ^ 1]) + raw[1:], mask), *run.expected[1:]]
    found = check_starts(built, [*before, dataclasses.replace(run, expected=wrong)], seeds=(1,), resets=0)
    assert len(found.faults) == 1 and f"1 bytes differ, the first at {offset:#x}" in found.faults[0]


def test_a_run_that_ends_before_its_reset_is_told(built):
    """A reset would then come upon a machine at rest."""
    runs = programs(CONFIG)
    with SimulatedDevice(built, memory_bytes=MEMORY_BYTES, seed=1) as device:
        accelerator = Accelerator(device)
        counters, wrong, _ = _ran(accelerator, runs)
        slower = [dataclasses.replace(each, cycles=10 * each.cycles) for each in counters]
        (line,) = _break_off(device, accelerator, runs, slower, 5 * counters[0].cycles)
    assert wrong == [] and re.fullmatch(r"run 0 ended within \d+ cycles, not \d+", line)
