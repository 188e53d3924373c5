"""Arithmetic that is a DSP slice: what stands in for it in synthesis does the same, as far as models of slices tell."""

# amaranth: UnusedElaboratable=no
import re
import shutil
from pathlib import Path

import pytest

from gradloom.rtl.emit.verilog import convert
from gradloom.rtl.emit.yosys import yosys_files
from gradloom.rtl.formats.interpolation import Interpolation
from gradloom.rtl.formats.pair import Pair
from gradloom.rtl.stream.interpolator import Interpolator
from gradloom.rtl.systolic.pe import PE, Precision
from gradloom.rtl.systolic.slices import Accumulate, Add, MultiplyAdd

HERE = Path(__file__).parent
UNITS = {
    "add": Add,
    "narrow": lambda: Add(width=42),
    "mac": lambda: MultiplyAdd(a=24, b=18, width=45),
    "total": lambda: Accumulate(a=25, b=9, width=38),
    "round": lambda: MultiplyAdd(a=27, b=18, width=45, half=15),
    "pe": lambda: PE(both=True),
    "duo": lambda: PE(precision=Precision.of_pairs(Pair(17))),
    "far": lambda: PE(precision=Precision.of_pairs(Pair(19))),
}
OF_MULTIPLIERS = {
    "total": lambda: Accumulate(a=8, b=9, width=24),
    "mac": lambda: MultiplyAdd(a=16, b=18, width=45),
    "round": lambda: MultiplyAdd(a=18, b=18, width=45, half=15),
    "wide": lambda: MultiplyAdd(a=27, b=18, width=46, half=15),
    "both": lambda: MultiplyAdd(a=24, b=18, width=45),
    "pe": lambda: PE(precision=Precision(x=18)),
    "power": lambda: Interpolator(table=Interpolation(function="exp2")),
    "log": lambda: Interpolator(table=Interpolation(function="log2", frac_in=21)),
}
ONLY_E2 = {"round", "pe", "far"}


def modelled(cell, path):
    """Yosys' model of a cell, alone."""
    return re.search(rf"^module {cell}\b.*?^endmodule", path.read_text(), re.MULTILINE | re.DOTALL)[0]


@pytest.mark.skipif(shutil.which("g++") is None, reason="Verilator needs g++")
@pytest.mark.parametrize("family", ["xc7", "xcup"])
def test_the_slice_does_what_the_unit_does(tmp_path, family):
    from gradloom.sim.run.builds import runner

    bench = (HERE / "slices_bench.v").read_text()
    if family == "xc7":
        model = modelled("DSP48E1", yosys_files() / "share" / "xilinx" / "cells_sim.v")
        bench = "`define NO_ROUND\n" + bench
    else:
        model = (HERE / "dsp48e2.v").read_text()
    sources = {"cells.v": model.replace("(* clkbuf_sink *)", ""), "slices_bench.v": bench}
    for name, make in UNITS.items():
        if family == "xcup" or name not in ONLY_E2:
            sources[f"{name}_b.v"] = convert(make(), name=f"{name}_behaviour").files[f"{name}_behaviour"]
            sources[f"{name}_s.v"] = make().primitive(family=family, name=f"{name}_sliced")
    built = runner.build(sources, top="slices_bench")
    runner.run_cocotb(built, top="slices_bench", module="tests.systolic.slices_bench", directory=tmp_path)


@pytest.mark.skipif(shutil.which("g++") is None, reason="Verilator needs g++")
def test_the_ecp5s_multiplier_does_what_the_unit_does(tmp_path):
    from gradloom.sim.run import device
    from gradloom.sim.run.builds import runner

    blocks = Path(device.__file__).parents[1] / "bench/harness/ecp5_blocks.sv"
    models = yosys_files() / "share" / "lattice"
    cells = [
        modelled(name, models / file)
        for name, file in (("LUT4", "common_sim.vh"), ("LUT2", "common_sim.vh"), ("CCU2C", "ccu2c_sim.vh"))
    ]
    sources = {
        "ecp5_blocks.sv": blocks.read_text(),
        "ecp5_bench.v": (HERE / "ecp5_bench.v").read_text(),
        "cells.v": "\n".join(cells),
    }
    for name, make in OF_MULTIPLIERS.items():
        sources[f"{name}_b.v"] = convert(make(), name=f"{name}_behaviour").files[f"{name}_behaviour"]
        sources[f"{name}_s.v"] = make().primitive(family="ecp5", name=f"{name}_sliced")
    built = runner.build(sources, top="ecp5_bench")
    runner.run_cocotb(built, top="ecp5_bench", module="tests.systolic.slices_bench", directory=tmp_path)


def test_what_only_a_dsp48e2_can_do_has_no_other_stand_in():
    for name, make in UNITS.items():
        assert (make().primitive(family="xc7", name=name) is None) == (name in ONLY_E2)
        # A PE's operand is wider than its multiplier; a sum takes two of them.
        assert (make().primitive(family="ecp5", name=name) is None) == (
            name in ("add", "narrow", "pe", "total", "duo", "far")
        )
    assert Accumulate(a=27, b=9).primitive(family="xc7", name="total") is None
    # Pieces that a multiplier does not take stay in LUTs.
    assert Interpolator(table=Interpolation(function="exp2", index=2)).primitive(family="ecp5", name="few") is None
    # Half a unit has no place beside the upper product.
    assert MultiplyAdd(a=27, b=18, width=45, half=17).primitive(family="ecp5", name="round") is None
    assert all(make().primitive(family="ecp5", name=name) for name, make in OF_MULTIPLIERS.items())


@pytest.mark.parametrize(
    "bad", [dict(a=28, b=18), dict(a=24, b=19), dict(a=24, b=18, width=49), dict(a=24, b=18, width=45, half=44)]
)
def test_what_no_slice_holds_is_refused(bad):
    with pytest.raises(ValueError, match="=(28|19|49|44):"):
        MultiplyAdd(**bad)
