"""Everything that is emitted, by slang: the Verilog of two presets and of all units in each run, of all presets in a
deep one."""

import pytest

from gradloom.preset import PRESETS
from gradloom.rtl.catalog import UNITS
from gradloom.rtl.emit.verilog import emit
from gradloom.rtl.machines.accelerator import Accelerator

pytest.importorskip("pyslang", reason="pyslang is not installed: make setup")

from ...deep import DEEP
from .slang import findings  # noqa: E402

QUICK = ("digits-ulx3s", "lstm-zcu104")
#: A line of Verilog, and what slang calls it; empty where it is an error.
FAULTS = {
    "assign b = c;": "",
    "q q(.x(a), .y(b));": "",
    "assign b = a[0]; n n(.x(a));": "port-width-trunc",
    "assign b = a[0]; n n();": "unconnected-input-port",
    "wire [1:0] c = a; assign b = a[0]; n n(.x(c)); n n(.x(c));": "redefinition",
    "": "undriven-port",
    "assign b = a[2];": "index-oob",
}


@pytest.mark.parametrize("preset", [name for name in PRESETS if DEEP or name in QUICK])
def test_slang_finds_nothing_in_a_preset(tmp_path, preset):
    emit(Accelerator(PRESETS[preset].config), tmp_path, name="gradloom")
    files = list((tmp_path / "rtl").glob("*.v"))
    assert len(files) > 8 and findings(files, top="gradloom") == []


@pytest.mark.parametrize("unit", UNITS)
def test_slang_finds_nothing_in_a_unit(tmp_path, unit):
    name = unit.replace("-", "_")
    emit(UNITS[unit].build(), tmp_path, name=name)
    assert findings((tmp_path / "rtl").glob("*.v"), top=name) == []


@pytest.mark.parametrize("line", FAULTS)
def test_slang_finds_what_is_wrong(tmp_path, line):
    path = tmp_path / "faulty.v"
    path.write_text(f"module faulty(input [1:0] a, output b); {line} endmodule module n(input x); endmodule\n")
    assert FAULTS[line] in [option for option, _ in findings([path], top="faulty")]
