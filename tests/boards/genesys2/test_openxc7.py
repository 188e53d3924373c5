"""The Genesys 2 project for open tools: its netlist by Yosys, around black boxes for accelerator and memory controller.

LiteDRAM's own generator makes the module that the second box stands for, where it is installed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest

from gradloom import boards
from gradloom.boards.genesys2.memory import PINS
from gradloom.boards.genesys2.openxc7 import TOP, core_ports
from gradloom.rtl.emit.yosys import YosysError, run_yosys

BOARD = boards.find("genesys2")


def box(module, ports):
    """A module without content, by direction and width of its ports."""
    listed = ", ".join(f"{way} [{width - 1}:0] {name}" for name, (way, width) in ports.items())
    return f"(* blackbox *) module {module} ({listed}); endmodule\n"


@pytest.fixture(params=[64, 256])
def openxc7(request, design, make_report):
    """The folder of a project whose accelerator has such a memory port, with both boxes."""
    report = make_report(data_bits=request.param, name="edge-qlora-genesys2")
    boards.write_project(BOARD, design, report)
    folder = design / "board/openxc7"
    ports = {port["name"]: (port["direction"], port["width"]) for port in report["ports"]}
    (folder / "boxes.v").write_text(
        box("litedram_core", core_ports(request.param))
        + box("gradloom", ports)
        + "(* blackbox *) module IBUFDS (output O, input I, input IB); endmodule\n"
    )
    return folder


def netlist(folder):
    """Modules of the netlist; every wire that is read has a driver, and no more than one."""
    sources = sorted(str(path) for path in (folder.parent / "soc").glob("*.v"))
    shutil.copyfile(folder.parent / "soc/soc_image.mem", folder / "soc_image.mem")
    run_yosys(
        [
            f"read_verilog boxes.v {TOP}.v {' '.join(sources)}",
            f"hierarchy -check -top {TOP}",
            "proc",
            f"select -module {TOP}",
            "check -assert",
            "select -clear",
            "write_json top.json",
        ],
        folder=folder,
    )
    return json.loads((folder / "top.json").read_text())["modules"]


def test_every_port_is_connected_at_its_width(openxc7):
    modules = netlist(openxc7)
    cells = {cell["type"].split("\\")[-1]: cell for cell in modules[TOP]["cells"].values()}
    (soc,) = (cell for name, cell in cells.items() if "gradloom_soc" in name)
    for cell, module in ((cells["litedram_core"], "litedram_core"), (cells["gradloom"], "gradloom")):
        for name, port in modules[module]["ports"].items():
            if port["direction"] != "output":
                bits = cell["connections"][name]
                assert len(bits) == len(port["bits"]) and "x" not in bits, name
    memory, accelerator = cells["litedram_core"]["connections"], cells["gradloom"]["connections"]
    ours = soc["connections"]
    for channel in ("aw", "ar"):
        for theirs, mine, user in ((accelerator, "m_axi", "accelerator"), (ours, "m_axi_mem", "processor")):
            assert memory[f"user_port_{user}_{channel}addr"] == theirs[f"{mine}_{channel}addr"][:30]
    assert memory["user_port_accelerator_wdata"] == accelerator["m_axi_wdata"]
    assert memory["user_port_processor_rdata"] == ours["m_axi_mem_rdata"]
    assert ours["m_axi_reg_wdata"] == accelerator["s_axi_wdata"]
    assert memory["user_clk"] == accelerator["clk"] == ours["clk"] and accelerator["rst"] == ours["rst"]
    pins = modules[TOP]["ports"]
    assert memory["init_done"] == pins["led_memory"]["bits"] and pins["fan_pwm"]["bits"] == ["1"]


def test_a_line_that_nobody_drives_is_found(openxc7):
    top = openxc7 / f"{TOP}.v"
    top.write_text(top.read_text().replace("        .m_axi_wvalid(a_wvalid),\n", ""))
    with pytest.raises(YosysError, match="a_wvalid is used but has no driver"):
        netlist(openxc7)


def test_every_pin_of_the_top_is_placed_once_as_in_the_other_project(openxc7):
    lines = (openxc7 / "pins.xdc").read_text().splitlines()
    found = {}
    for line in lines:
        name, value, port = re.fullmatch(r"set_property (\w+) (\S+) \[get_ports \{(.+)\}\]", line).groups()
        assert found.setdefault(port, {}).setdefault(name, value) == value
    ports = netlist(openxc7)[TOP]["ports"]
    wanted = {
        f"{name}[{n}]" if len(port["bits"]) > 1 else name
        for name, port in ports.items()
        for n in range(len(port["bits"]))
    }
    assert set(found) == wanted and all({"LOC", "IOSTANDARD"} <= set(values) for values in found.values())
    assert len({values["LOC"] for values in found.values()}) == len(found)
    theirs = re.findall(r"PACKAGE_PIN (\w+) .*\[get_ports (\w+)\]", (openxc7.parent / "pins.xdc").read_text())
    assert {port: found[port]["LOC"] for _, port in theirs} == {port: pin for pin, port in theirs}
    assert found["ddram_a[14]"]["LOC"] == PINS["addr"][0].split()[14] and found["ddram_we_n"]["LOC"] == "AG13"


def test_the_processor_keeps_its_rates_at_another_clock(openxc7):
    text = (openxc7 / f"{TOP}.v").read_text()
    settings = {name: int(value) for name, value in re.findall(r"\.([A-Z_]+)\((\d+)\)", text)}
    assert abs(100e6 / settings["DIVISOR"] / 115_200 - 1) < 0.001
    assert 100e6 / (2 * settings["CARD_SLOW"]) <= 400_000 and 100e6 / (2 * settings["CARD_FAST"]) <= 25e6
    assert settings["CARD_FAST"] >= 4


def test_the_memory_controllers_generator_makes_these_ports(openxc7):
    """LiteDRAM with its real PHY; without its processor, whose firmware takes a compiler."""
    for name in ("litex", "litedram"):
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    text = (openxc7 / "memory.yml").read_text().replace('"vexriscv"', '"None"')
    (openxc7 / "plain.yml").write_text(text)
    call = [sys.executable, "-c", "from litedram.gen import main; main()", "plain.yml", "--output-dir", "made"]
    done = subprocess.run(call, cwd=openxc7, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    made = (openxc7 / "made/gateware/litedram_core.v").read_text()
    head = made[made.index("module litedram_core (") : made.index(");")]
    found = {
        name: (way, int(high or 0) + 1)
        for way, high, name in re.findall(r"(input|output|inout)\s+wire\s+(?:\[(\d+):0\])?\s*(\w+)", head)
        if not name.startswith("wb_ctrl_")
    }
    bits = found["user_port_accelerator_wdata"][1]
    assert found == core_ports(bits) and f'"data_width": {bits}' in text


def test_the_script_names_a_tool_that_is_missing(openxc7, tmp_path):
    (tmp_path / "bin").mkdir()
    for name in ("dirname", "sh"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    place = {"PATH": str(tmp_path / "bin")}
    call = ["sh", str(openxc7 / "build.sh")]
    done = subprocess.run(call, env=place, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "CHIPDB" in done.stderr
    done = subprocess.run(
        call, env=place | {"CHIPDB": "x", "PRJXRAY_DB": "x"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "build.sh: yosys is not installed: see the first lines of build.sh\n")
    assert not (openxc7 / "build").exists()


#: Stand-ins for the tools: each says how it was called.
RECORDER = 'echo "${0##*/} $*" >> "$CALLS"\n'
GENERATOR = """mkdir -p build/litedram/gateware
echo "read_verilog {$PWD/build/litedram/gateware/litedram_core.v}" > build/litedram/gateware/litedram_core.tcl
echo "" > build/litedram/gateware/litedram_core.v
echo 0 > build/litedram/gateware/litedram_core_rom.init
"""


def test_the_script_gives_the_tools_every_file(openxc7, tmp_path):
    tools = {
        "litedram_gen": GENERATOR,
        "yosys": "echo > design.json",
        "nextpnr-xilinx": "echo > design.fasm",
        "fasm2frames": "echo frames",
        "xc7frames2bit": "echo > design.tmp",
    }
    (tmp_path / "bin").mkdir()
    for name, script in tools.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{RECORDER}{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    calls = tmp_path / "calls"
    place = {
        "CALLS": str(calls),
        "CHIPDB": "/c.bin",
        "PRJXRAY_DB": "/db",
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
    }
    subprocess.run(["sh", str(openxc7 / "build.sh")], env=place, check=True, capture_output=True)
    made, synthesis, routing, *_ = calls.read_text().splitlines()
    assert made.startswith("litedram_gen memory.yml")
    files = synthesis.split("read_verilog ")[1].split(";")[0].split()
    build = openxc7 / "build"
    assert all((build / file).is_file() for file in files) and (build / "litedram_core_rom.init").is_file()
    names = [file.rsplit("/", 1)[1] for file in files]
    assert len(names) == len(set(names)) and {f"{TOP}.v", "litedram_core.v", "gradloom.v", "soc.v"} <= set(names)
    # The primitives of the family stand in for their namesake.
    assert next(file for file in files if file.endswith("pe.v")).endswith("synth/pe.v")
    assert (build / "soc_image.mem").read_bytes() == (openxc7.parent / "soc/soc_image.mem").read_bytes()
    assert "--xdc ../pins.xdc" in routing and (build / "design.bit").is_file()
