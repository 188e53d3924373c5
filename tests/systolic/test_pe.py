# amaranth: UnusedElaboratable=no
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from gradloom.rtl.emit.verilog import convert
from gradloom.rtl.emit.yosys import run_yosys, yosys_files
from gradloom.rtl.formats.pair import Pair
from gradloom.rtl.systolic.pe import ACCUMULATE, DRAIN, HOLD, PE, RESTART, WSUM, Precision
from gradloom.sim.bench.engine import simulate

HERE = Path(__file__).parent


def play(dut, beats):
    """``beats`` of ``(x, w, p, tag)``; the value of p_o in each cycle."""
    seen = []

    async def process(ctx):
        for x, w, p, tag in beats + [(0, 0, 0, HOLD)] * PE.latency:
            ctx.set(dut.x_i, x)
            ctx.set(dut.w_i, w)
            ctx.set(dut.p_i, p)
            ctx.set(dut.tag_i, {"load": 0, "swap": 0} | tag)
            seen.append(ctx.get(dut.p_o))
            await ctx.tick()

    simulate(dut, process)
    return seen


def model(beats):
    """p_o after each beat: the tag's bits, read off one by one."""
    waits = weight = own = 0
    sums = []
    for n, (x, w, _, tag) in enumerate(beats):
        if tag.get("swap"):
            weight = waits
        if tag.get("load"):
            waits = w
        above = beats[n + 2][2] if n + 2 < len(beats) else 0
        own = tag["use_m"] * x * weight + tag["from_above"] * above + tag["from_self"] * own
        own = (own + (1 << 47)) % (1 << 48) - (1 << 47)
        sums.append(own)
    return sums


@pytest.mark.parametrize("precision", [Precision(), Precision(x=8, w=4), Precision(x=25, w=18)])
def test_a_sum_is_what_the_tag_says(precision):
    rng = np.random.default_rng(5)
    modes = [WSUM, HOLD, ACCUMULATE, RESTART, DRAIN]
    top_x, top_w = 1 << (precision.x - 1), 1 << (precision.w - 1)
    beats = [
        (
            int(rng.integers(-top_x, top_x)),
            int(rng.integers(-top_w, top_w)),
            int(rng.integers(-1 << 47, 1 << 47)),
            modes[rng.integers(5)] | {"load": int(rng.integers(2)), "swap": int(rng.integers(2))},
        )
        for _ in range(600)
    ]
    assert play(PE(precision=precision), beats)[PE.latency :] == model(beats)


@pytest.mark.parametrize("apart", [17, 19])
def test_a_pair_is_two_products_that_share_an_operand(apart):
    """Every code beside extremes of the other ones: both lanes of a chain of one."""
    pair, rng = Pair(apart), np.random.default_rng(apart)
    codes = [-127, -1, 0, 1, 127, *rng.integers(-127, 128, 40).tolist()]
    triples = [
        (a, b, x) for a, b in zip(codes, reversed(codes)) for x in (-128, -127, 127, int(rng.integers(-128, 128)))
    ]
    beats = []
    for low, high, x in triples:
        stored = sum(int(code) % 256 << 8 * n for n, code in enumerate(pair.stored(np.array(low), np.array(high))))
        beats += [(0, stored, 0, HOLD | {"load": 1}), (x, 0, 0, RESTART | {"swap": 1})]
    sums = play(PE(precision=Precision.of_pairs(pair)), beats)[PE.latency :]
    assert sums[1::2] == [((high << apart) + low) * x for low, high, x in triples]


def test_the_weight_that_waits_is_not_yet_in_use():
    load, swap = {"load": 1}, {"swap": 1}
    beats = [(0, 5, 0, HOLD | load), (1, 7, 0, RESTART | load | swap), (1, 0, 0, RESTART), (1, 0, 0, RESTART | swap)]
    assert play(PE(), beats)[PE.latency :] == [0, 5, 5, 7]


def test_a_sum_that_holds_forgets_nothing():
    beats = [
        (0, 3, 0, HOLD | {"load": 1}),
        (2, 0, 0, RESTART | {"swap": 1}),
        *[(9, 9, 9, HOLD)] * 5,
        (4, 0, 0, ACCUMULATE),
    ]
    assert play(PE(), beats)[-1] == 18


def test_bad_widths_are_refused():
    for field, value in (("x", 26), ("w", 19), ("sum", 49), ("x", 1)):
        with pytest.raises(ValueError, match=f"{field}={value}"):
            Precision(**{field: value})
    assert Precision(x=24, w=18).longest_sum == 128
    assert [Precision.of_pairs(Pair(apart)).longest_sum for apart in (17, 19)] == [4, 16]
    for bad in (dict(x=8, w=18), dict(x=9, w=16), dict(x=8, w=16, sum=40)):
        with pytest.raises(ValueError, match="with pairs must be 8, 16 and 48"):
            Precision(**bad, pair=Pair())
    with pytest.raises(ValueError, match="rows=17: a chain of pairs 19 bits apart is at most 16 products"):
        Precision.of_pairs(Pair()).check_array(rows=17)
    for apart in (14, 20):
        with pytest.raises(ValueError, match=f"apart={apart}"):
            Pair(apart)


@pytest.mark.parametrize(("family", "slice_name", "luts"), [("xc7", "DSP48E1", 1), ("xcup", "DSP48E2", 0)])
def test_a_pe_is_one_slice(tmp_path, family, slice_name, luts):
    emission = convert(PE(), name="pe", family=family)
    path = tmp_path / "pe.v"
    path.write_text(emission.synth["pe"])
    ports = set(re.search(r"^module pe ?\((.*)\);", path.read_text(), re.MULTILINE)[1].split(", "))
    assert ports == {port.name for port in emission.ports}
    # The general flow, told of the slice, ends with the cells of `synth_xilinx` in a tenth of the time.
    run_yosys(
        [
            f"read_verilog {path}",
            f"read_verilog -lib +/xilinx/cells_{'sim' if family == 'xc7' else 'xtra'}.v",
            "synth -lut 6 -top pe",
            f"tee -q -o {tmp_path}/stat.json stat -json",
        ]
    )
    cells = json.loads((tmp_path / "stat.json").read_text())["modules"]["\\pe"]["num_cells_by_type"]
    assert cells.pop(slice_name) == 1
    assert cells.pop("$lut", 0) == luts
    assert cells == {"$_SDFF_PP0_": 24 + 18 + 5}


def test_no_primitive_is_made_up_for_other_chips():
    assert PE().primitive(family="ice40", name="pe") is None
    # More than 18 bits are more than one of its multipliers.
    assert PE().primitive(family="ecp5", name="pe") is None


@pytest.mark.skipif(shutil.which("g++") is None, reason="Verilator needs g++")
def test_the_slice_does_what_the_pe_does(tmp_path):
    from gradloom.sim.run.builds import runner

    cells = (yosys_files() / "share" / "xilinx" / "cells_sim.v").read_text()
    slice_model = re.search(r"^module DSP48E1 \(.*?^endmodule", cells, re.MULTILINE | re.DOTALL)[0]
    behaviour = convert(PE(), name="behaviour").files["behaviour"]
    sources = {
        "cells.v": slice_model.replace("(* clkbuf_sink *)", ""),
        "behaviour.v": behaviour,
        "sliced.v": PE().primitive(family="xc7", name="sliced"),
        "pe_bench.v": (HERE / "pe_bench.v").read_text(),
    }
    built = runner.build(sources, top="pe_bench")
    runner.run_cocotb(built, top="pe_bench", module="tests.systolic.pe_bench", directory=tmp_path)
