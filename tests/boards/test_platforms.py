"""The boards as Amaranth platforms: presets become what ``generate`` makes, own designs what the platform makes."""

import pytest
from amaranth.build import Attrs, Pins, Resource
from amaranth.hdl import Elaboratable, Module
from amaranth.lib.io import Buffer

import gradloom
from gradloom import boards
from gradloom.boards.platforms import Genesys2Platform, KV260Platform, PresetDesign, ULX3SPlatform
from gradloom.rtl.units.decoder import NF4Decoder

from ..deep import deep

DESIGNS = {
    KV260Platform: ("lstm-kv260", {"hidden": 8, "inputs": 8, "rows": 4, "panels": 2, "rank": 2}),
    Genesys2Platform: ("edge-qlora-genesys2", {"edge": 16, "columns": 4, "outputs": 2, "rank": 4}),
    ULX3SPlatform: ("digits-ulx3s", {}),
}


def content(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "platform", [KV260Platform, ULX3SPlatform, pytest.param(Genesys2Platform, marks=deep)], ids=lambda each: each.board
)
def test_a_preset_becomes_the_files_of_generate(platform, tmp_path):
    name, settings = DESIGNS[platform]
    plan = platform().build(PresetDesign(name, settings), do_build=False)
    gradloom.generate(name, tmp_path / "design", settings=settings)
    made = dict(plan.files)
    script = made.pop("build_top.sh")
    assert script.splitlines()[-1] == f"gradloom build {platform.board} ." and made.pop("build_top.bat")
    assert plan.script == "build_top"
    assert made == content(tmp_path / "design")


def test_build_and_program_run_the_boards_own_commands(tmp_path, monkeypatch):
    called = []
    for verb in ("build", "flash"):
        monkeypatch.setattr(
            f"gradloom.boards.registry.{verb}",
            lambda board, folder, *, verb=verb, **options: called.append((verb, board.name, folder, options)),
        )
    design = PresetDesign("lstm-kv260", {"hidden": 8, "inputs": 8, "rows": 4, "panels": 2, "rank": 2})
    folder = tmp_path / "design"
    KV260Platform().build(design, build_dir=folder, do_program=True, program_opts={"host": "me@kria"})
    assert b'"preset": "lstm-kv260"' in (folder / "report.json").read_bytes()
    assert called == [("build", "kv260", folder, {}), ("flash", "kv260", folder, {"host": "me@kria"})]


def test_refusals_come_before_anything_is_written(tmp_path):
    design = PresetDesign("digits-ulx3s")
    for do_build in (True, False):
        with pytest.raises(ValueError, match="preset=digits-ulx3s: is for the board ulx3s, not kv260"):
            KV260Platform().build(design, build_dir=tmp_path / "design", do_build=do_build)
    assert not (tmp_path / "design").exists()
    with pytest.raises(ValueError, match="hiden: no such parameter"):
        PresetDesign("lstm-kv260", {"hiden": 8})
    with pytest.raises(ValueError, match="clock_hz=0: must be"):
        KV260Platform(clock_hz=0)


class Own(Elaboratable):
    """One unit of gradloom, whose lowest bits go to pins."""

    def __init__(self, pins):
        self.pins = pins

    def elaborate(self, platform):
        m = Module()
        m.submodules.decoder = unit = NF4Decoder()
        m.d.comb += [unit.i.valid.eq(1), unit.i.p.scale.eq(256), unit.o.ready.eq(1)]
        m.d.sync += unit.i.p.codes[0].eq(unit.i.p.codes[0] + 1)
        m.submodules.pins = pins = Buffer("o", platform.request(*self.pins, dir="-"))
        m.d.comb += pins.o.eq(unit.o.p.x[0])
        return m


def test_an_own_design_on_the_kv260():
    platform = KV260Platform(clock_hz=150_000_000)
    pmod = Resource("out", 0, Pins("1 2 3 4 7 8 9 10", dir="o", conn=("pmod", 0)), Attrs(IOSTANDARD="LVCMOS33"))
    platform.add_resources([pmod])
    files = platform.build(Own(("out", 0)), do_build=False).files
    assert f"-part {boards.find('kv260').part}" in files["top.tcl"]
    for pin, ball in enumerate("H12 E10 D10 C11 B10 E12 D11 B11".split()):
        assert f'set_property LOC {ball} [get_ports "out_0__io\\[{pin}]"]' in files["top.xdc"]
    period, net = files["top.xdc"].split("create_clock")[1].split("-period ")[1].split("]")[0].split(" [get_nets ")
    assert round(float(period), 3) == 6.667 and "pl_clk0" in net
    verilog = files["top.v"]
    assert [verilog.count(f"  {cell} ") for cell in ("PS8", "BUFG_PS", "STARTUPE3")] == [1, 1, 1]
    assert files["build_top.sh"] and "gradloom" not in files["build_top.sh"]


def test_own_designs_on_the_other_boards():
    files = ULX3SPlatform().build(Own(("led", 0)), do_build=False).files
    assert 'LOCATE COMP "led_0__io" SITE "B2"' in files["top.lpf"]
    files = Genesys2Platform().build(Own(("led", 0)), do_build=False).files
    assert "set_property LOC T28" in files["top.xdc"] and "-part xc7k325tffg900-2" in files["top.tcl"]
