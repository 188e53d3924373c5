"""Areas and levels of logic on designs small enough to count by hand."""

import pytest
from amaranth.hdl import Module, Signal, signed, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from gradloom import boards
from gradloom.boards.netlist.area import SynthesisError, _unit, area
from gradloom.boards.netlist.timing import Netlist, TimingError, worst_paths
from gradloom.rtl.emit.verilog import emit
from gradloom.rtl.hierarchy import place

KV260 = boards.find("kv260")


class Half(wiring.Component):
    """A register behind a six-input function."""

    def __init__(self):
        super().__init__({"i": In(6), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        held = Signal(6, reset_less=True)
        m.d.sync += [held.eq(self.i), self.o.eq(held.xor())]
        return m


class Whole(wiring.Component):
    """Two halves and a memory of two block RAMs' bits."""

    def __init__(self):
        super().__init__({"i": In(data.ArrayLayout(6, 2)), "o": Out(2), "put": In(11), "get": In(11), "word": Out(32)})

    def elaborate(self, platform):
        m = Module()
        for index in range(2):
            half = place(m, f"half{index}", Half(), platform, i=self.i[index])
            m.d.comb += self.o[index].eq(half.o)
        m.submodules.words = words = memory.Memory(shape=unsigned(32), depth=2048, init=[])
        write, read = words.write_port(), words.read_port()
        m.d.comb += [
            write.addr.eq(self.put),
            write.en.eq(self.i[0][0]),
            write.data.eq(self.i.as_value()),
            read.addr.eq(self.get),
            self.word.eq(read.data),
        ]
        return m


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    directory = tmp_path_factory.mktemp("area") / "design"
    emit(Whole(), directory, name="whole")
    return directory


@pytest.fixture(scope="module")
def result(whole):
    return area(whole, KV260)


def test_a_module_counts_as_often_as_it_is_used(result):
    half = result["units"]["whole_half"]
    assert (half["instances"], half["lut"], half["ff"], half["levels"]) == (2, 2, 14, 1)
    assert result["total"]["bram36"] == 2
    for key in ("lut", "ff", "dsp", "bram36", "uram", "lutram"):
        assert result["total"][key] == sum(unit[key] for unit in result["units"].values())
    assert result["share"]["bits"] == pytest.approx(100 * 72 / (144 * 36 + 64 * 288), abs=0.1)


def test_the_worst_path_is_named(result):
    inner = [path for path in result["paths"] if not path["ends_at_port"]]
    assert result["levels"] == inner[0]["levels"] == 1
    assert "held" in inner[0]["start"]


def test_a_unit_has_the_levels_of_paths_that_end_in_it():
    """Register to register in ``inner``; from there through a LUT and ``outer``'s own to a register of ``outer``."""
    whole = netlist(
        {
            "$flatten\\inner.$a": cell("FDRE", {"C": [2], "D": [3]}, {"Q": [4]}),
            "$flatten\\inner.$b": cell("LUT1", {"I0": [4]}, {"O": [5]}),
            "$flatten\\inner.$c": cell("FDRE", {"C": [2], "D": [5]}, {"Q": [6]}),
            "$d": cell("LUT2", {"I0": [5], "I1": [7]}, {"O": [8]}),
            "$e": cell("FDRE", {"C": [2], "D": [8]}, {"Q": [9]}),
            "$f": cell("LUT1", {"I0": [8]}, {"O": [10]}),
            "$g": cell("FDRE", {"C": [2], "D": [7]}, {"Q": [11]}),
        },
        ports={"p": {"direction": "input", "bits": [7]}, "q": {"direction": "output", "bits": [10]}},
    )
    modules = {"top": {"cells": {"inner": {"type": "unit"}}}, "unit": {"cells": {}}}
    assert Netlist(whole).by_unit(lambda name: _unit(name, "top", modules)) == {"unit": 1, "top": 2}


def test_an_instance_in_a_submodule_that_was_not_placed_is_found():
    modules = {
        "top": {"cells": {"outer.inner.unit": {"type": "engine"}}},
        "engine": {"cells": {"lane": {"type": "lane"}}},
        "lane": {"cells": {}},
    }
    names = {"$flatten\\outer.inner.unit.$a": "engine", "outer.inner.unit.lane.words.0": "lane", "outer.held": "top"}
    assert {name: _unit(name, "top", modules) for name in names} == names


def test_a_primitive_stands_in_for_its_module(whole, tmp_path):
    import shutil

    directory = tmp_path / "design"
    shutil.copytree(whole, directory)
    (directory / "synth").mkdir()
    (directory / "synth" / "whole_half.v").write_text(
        "module whole_half(input clk, input rst, input [5:0] i, output o);\n"
        "  FDRE r (.C(clk), .CE(1'b1), .R(rst), .D(i[0]), .Q(o));\nendmodule\n"
    )
    assert area(directory, KV260)["units"]["whole_half"]["ff"] == 2


def test_a_carry_chain_counts_one_and_one_for_16_bits(tmp_path):
    class Adder(wiring.Component):
        def __init__(self):
            super().__init__({"a": In(signed(32)), "b": In(signed(32)), "o": Out(signed(32))})

        def elaborate(self, platform):
            m = Module()
            a, b = Signal(signed(32), reset_less=True), Signal(signed(32), reset_less=True)
            m.d.sync += [a.eq(self.a), b.eq(self.b), self.o.eq(a + b)]
            return m

    emit(Adder(), tmp_path / "design", name="adder")
    # The LUT that adds two bits, the chain's entry, and 32 bits of chain.
    assert area(tmp_path / "design", KV260)["levels"] == 1 + 1 + 2


def netlist(cells, ports=None, names=None):
    return {
        "modules": {"top": {"attributes": {"top": "1"}, "ports": ports or {}, "cells": cells, "netnames": names or {}}}
    }


def cell(kind, inputs, outputs):
    return {
        "type": kind,
        "connections": inputs | outputs,
        "port_directions": dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output"),
    }


def register(d, q):
    return cell("FDRE", {"C": [2], "CE": ["1"], "R": ["0"], "D": [d]}, {"Q": [q]})


def test_luts_are_counted_between_registers():
    cells = {
        "start": register(3, 4),
        "one": cell("LUT2", {"I0": [4], "I1": [5]}, {"O": [6]}),
        "two": cell("LUT1", {"I0": [6]}, {"O": [7]}),
        "end": register(7, 8),
    }
    names = {"first": {"bits": [4]}, "last": {"bits": [8]}}
    path = worst_paths(netlist(cells, names=names))[0]
    assert (path.levels, path.start, path.end, path.cells) == (2, "first", "last", ("LUT2", "LUT1"))


def test_a_multiplexer_in_the_slice_counts_nothing():
    cells = {
        "start": register(3, 4),
        "one": cell("LUT1", {"I0": [4]}, {"O": [6]}),
        "two": cell("MUXF7", {"I0": [6], "I1": [4], "S": [4]}, {"O": [7]}),
        "end": register(7, 8),
    }
    assert worst_paths(netlist(cells))[0].levels == 1


def ecp5(d, q):
    return cell("TRELLIS_FF", {"CLK": [2], "DI": [d]}, {"Q": [q]})


@pytest.mark.parametrize("pairs, levels", [(1, 2), (8, 2), (9, 3), (16, 3), (17, 4)])
def test_a_chain_of_the_ecp5_counts_as_others_do(pairs, levels):
    """One to enter, one for each 16 bits: a CCU2C has two."""
    chain = {
        f"c{n}": cell("CCU2C", {"A0": [4], "A1": [4], "CIN": [100 + n]}, {"S0": [200 + n], "COUT": [101 + n]})
        for n in range(pairs)
    }
    path = worst_paths(netlist(chain | {"start": ecp5(3, 4), "end": ecp5(199 + pairs, 8)}))[0]
    assert (path.levels, len(path.cells)) == (levels, pairs)


def test_the_second_bit_of_a_chain_does_not_reach_the_first_sum():
    pair = cell("CCU2C", {"A0": [5], "A1": [4]}, {"S0": [6], "S1": [7]})
    cells = {"start": ecp5(3, 4), "one": pair, "end": ecp5(6, 8)}
    assert worst_paths(netlist(cells))[0].levels == 0


@pytest.mark.parametrize(
    "kind, inputs, outputs, levels",
    [
        ("PFUMX", {"ALUT": [4], "BLUT": [5], "C0": [5]}, {"Z": [6]}, 1),
        ("L6MUX21", {"D0": [4], "D1": [5], "SD": [5]}, {"Z": [6]}, 1),
        ("LUT4", {"A": [4]}, {"Z": [6]}, 2),
        ("TRELLIS_DPR16X4", {"RAD": [4], "WAD": [5], "WCK": [2]}, {"DO": [6]}, 2),
        ("MULT18X18D", {"A0": [4], "B0": [5]}, {"P0": [6]}, 5),
    ],
)
def test_cells_of_the_ecp5_are_counted(kind, inputs, outputs, levels):
    """Behind the cell there is a LUT."""
    cells = {
        "start": ecp5(3, 4),
        "one": cell(kind, inputs, outputs),
        "two": cell("LUT4", {"A": [6]}, {"Z": [7]}),
        "end": ecp5(7, 8),
    }
    assert worst_paths(netlist(cells))[0].levels == levels


@pytest.mark.parametrize("kind, parameters", [("MULT18X18D", {"REG_OUTPUT_CLK": "CLK0"}), ("DP16KD", {})])
def test_what_has_registers_of_its_own_is_an_end(kind, parameters):
    held = cell(kind, {"A0": [4]}, {"P0": [6]}) | {"parameters": parameters}
    cells = {"start": ecp5(3, 4), "one": held, "two": cell("LUT4", {"A": [6]}, {"Z": [7]}), "end": ecp5(7, 8)}
    assert worst_paths(netlist(cells))[0].levels == 1


def test_a_loop_without_a_register_is_an_error():
    cells = {"one": cell("LUT2", {"I0": [4], "I1": [5]}, {"O": [6]}), "two": cell("LUT1", {"I0": [6]}, {"O": [4]})}
    with pytest.raises(TimingError, match="loop"):
        worst_paths(netlist(cells))


def test_an_unknown_cell_is_an_error():
    with pytest.raises(TimingError, match="STARTUPE3"):
        worst_paths(netlist({"odd": cell("STARTUPE3", {"I": [4]}, {"O": [5]})}))


def test_a_directory_without_a_design_is_refused(tmp_path):
    with pytest.raises(SynthesisError, match="rtl"):
        area(tmp_path, KV260)


def test_verilog_that_is_damaged_is_refused(whole, tmp_path):
    import shutil

    directory = tmp_path / "design"
    shutil.copytree(whole, directory)
    path = directory / "rtl" / "whole.v"
    path.write_text(path.read_text()[:-40])
    with pytest.raises(SynthesisError, match="could not be synthesised"):
        area(directory, KV260)
