"""Two designs side by side: in one netlist, which Yosys elaborates, and on one memory card."""

import dataclasses
import json
import re

import pytest

import gradloom
from gradloom import boards
from gradloom.boards.budgets import budget
from gradloom.cli.design.designs import _budget
from gradloom.preset import find_preset
from gradloom.rtl.emit.names import module_name
from gradloom.rtl.emit.yosys import YosysError, run_yosys
from gradloom.sim.run.builds.designs import Design

#: Name and preset of two designs for one board.
PAIR = {"left": "instantft-kv260", "right": "lstm-kv260"}
#: One of them is small.
SMALL = {"hidden": "8", "inputs": "8", "window": "16", "sequences": "2", "rows": "4", "panels": "2", "rank": "2"}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The folder of both designs."""
    folder = tmp_path_factory.mktemp("pair")
    for name, preset in PAIR.items():
        gradloom.generate(preset, folder / name, name=name, settings=SMALL if name == "right" else {})
    return folder


def report(design):
    return json.loads((design / "report.json").read_text())


def sources(design):
    """Verilog for synthesis: a module of ``synth`` stands in for its namesake."""
    files = {path.name: path for folder in ("rtl", "synth") for path in (design / folder).glob("*.v")}
    return [files[name] for name in sorted(files)]


def around(designs):
    """Verilog of ``whole``, which holds the designs and has all their ports."""
    ports, inside = [], []
    for design in designs:
        made = report(design)
        module = made["module"]
        names = [port["name"] for port in made["ports"]]
        ports += [f"  {p['direction']} [{p['width'] - 1}:0] {module}_{p['name']}" for p in made["ports"]]
        inside.append(f"  {module} {module} ({', '.join(f'.{name}({module}_{name})' for name in names)});")
    return "\n".join(["module whole (", ",\n".join(ports), ");", *inside, "endmodule", ""])


def elaborate(folder, designs):
    """Modules of both designs and the module around them."""
    (folder / "whole.v").write_text(around(designs))
    commands = ["read_verilog -lib -specify +/xilinx/cells_sim.v", "read_verilog -lib +/xilinx/cells_xtra.v"]
    commands += [f"read_verilog {path}" for design in designs for path in sources(design)]
    commands += [
        "read_verilog whole.v",
        "hierarchy -check -top whole",
        "proc",
        "blackbox =A:whitebox",
        "write_json whole.json",
    ]
    run_yosys(commands, folder)
    return json.loads((folder / "whole.json").read_text())["modules"]


def test_yosys_elaborates_a_module_that_holds_both(pair):
    modules = elaborate(pair, [pair / name for name in PAIR])
    held = {cell["type"] for cell in modules["whole"]["cells"].values()}
    assert held == set(PAIR)
    for name in PAIR:
        mine = set(report(pair / name)["modules"])
        assert name in mine and all(each == name or each.startswith(f"{name}_") for each in mine)
        assert mine <= set(modules)


def test_two_designs_of_one_name_do_not_go_together(pair, tmp_path):
    """What the names are for."""
    with pytest.raises(YosysError, match="Re-definition of module"):
        elaborate(tmp_path, [pair / "left", pair / "left"])


def test_projects_share_no_name_on_a_card_or_in_a_device_tree(pair):
    found = {}
    for name in PAIR:
        design = pair / name
        (overlay,) = (design / "board").glob("*.dtso")
        text = overlay.read_text()
        settings = (design / "board/settings.tcl").read_text()
        assert overlay.stem == name and f'firmware-name = "{name}.bit.bin"' in text
        assert f"set name {name}\nset module {name}\n" in settings
        host = json.loads((design / "firmware/gradloom_host/design.json").read_text())
        assert host["name"] == name
        assert (design / "rtl" / f"{name}.v").is_file()
        found[name] = set(re.findall(r"^\t(\w+): ", text, re.MULTILINE))
    assert len(found["left"]) == 4 and not found["left"] & found["right"]


def test_a_named_design_is_the_unnamed_one_to_simulation_and_budgets(pair):
    design = Design(find_preset("instantft-kv260"), pair / "left")
    (top,) = [path for path in design.files() if not path.is_relative_to(pair)]
    own = (pair / "left/rtl/left.v").read_text()
    assert top.name == "gradloom.v" and top.read_text() == own.replace("\nmodule left(", "\nmodule gradloom(")
    assert len(design.files()) == len(design.made) == len(list((pair / "left/rtl").glob("*.v")))
    mine, usual = _budget(report(pair / "left")), budget("instantft-kv260")
    assert {name.replace("left", "gradloom", 1): levels for name, levels in mine.items()} == dict(usual)


def test_the_ulx3s_tuner_holds_the_named_accelerator(make_tuner):
    assert "    mine accelerator (" in make_tuner("mine") and "    gradloom accelerator (" in make_tuner("gradloom")


@pytest.fixture
def make_tuner():
    def make(module):
        preset = find_preset("digits-ulx3s")
        summary = {"preset": preset.name, "parameters": dataclasses.asdict(preset.config), "module": module}
        from gradloom.boards.ulx3s import project_files

        return project_files(boards.find("ulx3s"), summary)["board/tuner.v"]

    return make


@pytest.mark.parametrize(
    "name, bound",
    [
        ("", "must be a lower-case letter"),
        ("2x", "must be a lower-case letter"),
        ("a-b", "must be a lower-case letter"),
        ("A", "must be a lower-case letter"),
        ("a" * 41, "must be a lower-case letter, then such letters, digits and underscores, at most 40 in all"),
        ("../x", "must be a lower-case letter"),
        ("wire", "must not be a word of Verilog"),
        ("logic", "must not be a word of Verilog"),
        ("gradloom_soc", "must not begin with gradloom_ or picorv32"),
        ("picorv32", "must not begin with"),
    ],
)
def test_what_is_no_name_is_refused_and_nothing_is_written(tmp_path, name, bound):
    with pytest.raises(ValueError, match=f"^name={re.escape(name)}: {bound}"):
        gradloom.generate("mesh", tmp_path / "out", name=name)
    assert not (tmp_path / "out").exists()
    assert module_name("gradloom") == "gradloom"


def test_a_unit_takes_a_name(tmp_path):
    gradloom.generate("mesh", tmp_path / "out", settings={"rows": 2, "cols": 2}, name="mine")
    made = report(tmp_path / "out")
    assert (made["unit"], made["module"]) == ("mesh", "mine") and (tmp_path / "out/rtl/mine.v").is_file()
