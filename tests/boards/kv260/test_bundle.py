"""The bundle that xmutil loads, made by the real bootgen and dtc where found; a script plays Vivado."""

import json
import re
import shutil
import struct
import subprocess
import sys

import pytest

from gradloom import boards

BOARD = boards.find("kv260")
NAME = "instantft-kv260"
SYNC = bytes.fromhex("aa995566")

# What a base device tree has that the overlay refers to.
BASE = """/dts-v1/;
/ {
    #address-cells = <2>; #size-cells = <2>;
    fpga_full: fpga-full { compatible = "fpga-region"; #address-cells = <2>; #size-cells = <2>; ranges; };
    amba: axi { compatible = "simple-bus"; #address-cells = <2>; #size-cells = <2>; ranges; };
    gic: interrupt-controller { interrupt-controller; #interrupt-cells = <3>; };
    zynqmp_clk: clock-controller { #clock-cells = <1>; };
    zynqmp_reset: reset-controller { #reset-cells = <1>; };
};
"""


def made_up_bitstream():
    """A .bit file as bootgen wants it: a header, then words of configuration."""

    def field(key, text):
        return key + struct.pack(">H", len(text) + 1) + text + b"\0"

    words = b"\xff" * 32 + bytes.fromhex("000000bb11220044") + b"\xff" * 8 + SYNC + bytes(1024)
    return (
        struct.pack(">H", 9)
        + bytes.fromhex("0ff00ff00ff00ff000")
        + struct.pack(">H", 1)
        + field(b"a", b"gradloom_design_wrapper;Version=2023.1")
        + field(b"b", b"xck26-sfvc784-2LV-c")
        + field(b"c", b"2001/01/01")
        + field(b"d", b"00:00:00")
        + b"e"
        + struct.pack(">I", len(words))
        + words
    )


@pytest.fixture
def project(design, report):
    boards.write_project(BOARD, design, report)
    return design


def play_vivado(tools, tmp_path):
    (tmp_path / "made_up.bit").write_bytes(made_up_bitstream())
    out = f"build/out/{NAME}"
    tools(
        "vivado",
        f"cp '{tmp_path}/made_up.bit' {out}.bit && echo '<hwh/>' > {out}.hwh && echo 199999998 > build/out/clock.txt",
    )


def need(*names):
    absent = [name for name in names if shutil.which(name) is None]
    if absent:
        pytest.skip(f"{', '.join(absent)} not installed")


def overlay(project, tmp_path):
    """The overlay applied to a base tree, as text."""
    need("dtc", "fdtoverlay")
    (tmp_path / "base.dts").write_text(BASE)
    source = project / "board" / f"{NAME}.dtso"
    for args in (
        ["dtc", "-@", "-q", "-I", "dts", "-O", "dtb", "-o", "base.dtb", "base.dts"],
        ["dtc", "-@", "-q", "-I", "dts", "-O", "dtb", "-o", "overlay.dtbo", str(source)],
        ["fdtoverlay", "-i", "base.dtb", "-o", "whole.dtb", "overlay.dtbo"],
    ):
        subprocess.run(args, cwd=tmp_path, check=True, capture_output=True)

    def prop(node, name, kind="x"):
        return subprocess.run(
            ["fdtget", "-t", kind, "whole.dtb", node, name], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    return prop


def test_the_overlay_applies_and_describes_the_design(project, tmp_path):
    prop = overlay(project, tmp_path)
    assert prop("/fpga-full", "firmware-name", "s") == f"{NAME}.bit.bin"
    registers = "/axi/gradloom@a0010000"
    assert prop(registers, "compatible", "s") == "generic-uio"
    assert prop(registers, "reg") == "0 a0010000 0 1000"
    assert prop(registers, "interrupts") == "0 68 4"  # SPI 104, level high: pl_ps_irq1[0]
    assert prop(registers, "interrupt-parent") == prop("/interrupt-controller", "phandle")


def test_what_kria_pynq_holds_is_left_alone(project):
    """Its node `fabric` takes 64 KB at 0xA000_0000 and interrupt 89 at every start; Linux shares neither."""
    text = (project / "board" / f"{NAME}.dtso").read_text()
    ((base, size),) = re.findall(r"reg = <0x0 (0x\w+) 0x0 (0x\w+)>", text)
    assert int(base, 16) >= 0xA001_0000 and int(base, 16) + int(size, 16) <= 0xB000_0000
    assert re.findall(r"interrupts = <0 (\d+) 4>", text) == ["104"]


def test_the_overlay_keeps_the_clock_on(project, tmp_path):
    prop = overlay(project, tmp_path)
    controller = prop("/clock-controller", "phandle")
    assert prop("/axi/gradloom-clock", "compatible", "s") == "xlnx,fclk"
    assert prop("/axi/gradloom-clock", "clocks") == f"{controller} 47"  # PL0_REF
    assert prop("/axi/gradloom-clock", "assigned-clock-rates", "u") == "199999998"


def test_the_overlay_makes_a_coherent_buffer_and_full_width_ports(project, tmp_path):
    prop = overlay(project, tmp_path)
    assert prop("/axi/gradloom-buffer", "compatible", "s") == "ikwzm,u-dma-buf"
    assert prop("/axi/gradloom-buffer", "device-name", "s") == "udmabuf-gradloom"
    assert prop("/axi/gradloom-buffer", "size") == "4000000"
    assert prop("/axi/gradloom-buffer", "sync-mode") == "2"
    assert prop("/axi/gradloom-afi", "config-afi") == "4 0 5 0 e 200"


def test_two_designs_of_a_board_have_names_of_their_own(report, tmp_path):
    """What Linux shows follows the name that ``generate`` was given: overlay, rules, loader, both hosts."""
    for module in ("gradloom", "loom2"):
        machine = {"table": "rows=4;;array:mac:a:o", "data_bits": 128}
        ports = {**report, "module": module, "machine": machine}
        boards.write_project(BOARD, tmp_path / module, ports)
        board, firmware = tmp_path / module / "board", tmp_path / module / "firmware"
        (recipe,) = board.glob("*.dtso")
        text = recipe.read_text()
        assert re.findall(r'(?:uio-name|device-name) = "([\w-]+)"', text) == [module, f"udmabuf-{module}"]
        nodes = [f"{module}{each}" for each in ("-afi", "-clock", "@a0010000", "-buffer")]
        labels = [f"{module}_{each}" for each in ("afi", "clock", "registers", "buffer")]
        assert re.findall(r"^\t(\w+): (\S+) {", text, re.M) == list(zip(labels, nodes))
        rules = (board / "60-gradloom.rules").read_text()
        assert f'ATTR{{name}}=="{module}"' in rules and f'KERNEL=="udmabuf-{module}"' in rules
        assert f"\ndevice={module}\n" in (board / "load.sh").read_text()
        header = (firmware / "driver/gradloom_design.h").read_text()
        assert f'#define GL_DESIGN_DEVICE "{module}"' in header
        code = "from gradloom_host.uio_transport import own_device; print(own_device())"
        done = subprocess.run([sys.executable, "-c", code], cwd=firmware, capture_output=True, text=True, check=True)
        assert done.stdout == f"{module}\n"


def test_build_makes_the_whole_bundle(project, tools, tmp_path):
    need("bootgen", "dtc")
    play_vivado(tools, tmp_path)
    boards.build(BOARD, project, echo=lambda line: None)
    bundle = project / "board" / "bundle"
    assert {file.name for file in bundle.iterdir()} == {
        f"{NAME}.bit",
        f"{NAME}.hwh",
        f"{NAME}.bit.bin",
        f"{NAME}.dtbo",
        "shell.json",
    }
    # The configuration engine takes words of the other byte order than .bit holds.
    assert SYNC[::-1] in (bundle / f"{NAME}.bit.bin").read_bytes()
    assert (bundle / f"{NAME}.dtbo").read_bytes()[:4] == bytes.fromhex("d00dfeed")
    assert json.loads((bundle / "shell.json").read_text()) == {"shell_type": "XRT_FLAT", "num_slots": "1"}
    # A second build replaces the first.
    boards.build(BOARD, project, echo=lambda line: None)


def test_a_dry_run_shows_every_command_and_does_nothing(project, monkeypatch):
    monkeypatch.setenv("PATH", "")
    before = sorted(project.rglob("*"))
    shown = []
    commands = boards.build(BOARD, project, dry_run=True, echo=shown.append)
    assert sorted(project.rglob("*")) == before
    text = "\n".join(commands)
    assert "vivado -mode batch" in text and "-source build.tcl" in text
    assert "bootgen -arch zynqmp -process_bitstream bin" in text
    assert "dtc -@" in text
    assert shown[: len(commands)] == commands
    assert [line.split()[1] for line in shown[len(commands) :]] == ["vivado", "bootgen", "dtc"]


def test_a_missing_tool_is_named_and_nothing_runs(project, tools, tmp_path, monkeypatch):
    play_vivado(tools, tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    with pytest.raises(boards.MissingToolError, match="apt install xilinx-bootgen") as fault:
        boards.build(BOARD, project, echo=lambda line: None)
    assert fault.value.tools == ("bootgen", "dtc")
    assert isinstance(fault.value, ValueError)
    assert not (project / "board" / "build").exists()


def test_a_failed_command_leaves_no_bundle(project, tools, tmp_path):
    for tool in ("bootgen", "dtc"):
        tools(tool, "exit 0")
    tools("vivado", "exit 3")
    with pytest.raises(boards.FlowError, match="vivado ended with exit code 3"):
        boards.build(BOARD, project, echo=lambda line: None)
    for script, absent in (("exit 0", "clock.txt"), ("echo 199999998 > build/out/clock.txt", f"{NAME}.bit")):
        tools("vivado", script)
        with pytest.raises(boards.FlowError, match=f"did not create {absent}"):
            boards.build(BOARD, project, echo=lambda line: None)
    assert not (project / "board" / "bundle").exists()


@pytest.mark.parametrize("verb", [boards.build, boards.flash])
def test_a_folder_without_a_design_is_refused(tmp_path, verb):
    with pytest.raises(ValueError, match="gradloom generate"):
        verb(BOARD, tmp_path)


def test_flash_needs_a_bundle_but_its_dry_run_does_not(project, tools, tmp_path):
    log = tmp_path / "log"
    for tool in ("ssh", "scp"):
        tools(tool, f'echo {tool} "$@" >> {log}')
    commands = boards.flash(BOARD, project, host="me@board", dry_run=True, echo=lambda line: None)
    assert any(f"sudo sh gradloom-designs/{NAME}/load.sh {NAME}" in line for line in commands)
    with pytest.raises(boards.FlowError, match="gradloom build kv260"):
        boards.flash(BOARD, project, host="me@board", echo=lambda line: None)
    assert not log.exists()

    bundle = project / "board" / "bundle"
    bundle.mkdir()
    for file in (f"{NAME}.bit", f"{NAME}.hwh", f"{NAME}.bit.bin", f"{NAME}.dtbo", "shell.json"):
        (bundle / file).touch()
    boards.flash(BOARD, project, host="me@board", echo=lambda line: None)
    lines = log.read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["ssh", "scp", "ssh"]
    assert (
        lines[1]
        == f"scp -r board/bundle board/load.sh board/60-gradloom.rules firmware me@board:gradloom-designs/{NAME}/"
    )
    assert lines[0].startswith("ssh -o ConnectTimeout=10 me@board ")
    assert lines[2] == f"ssh -t me@board sudo sh gradloom-designs/{NAME}/load.sh {NAME}"
    assert all("me@board" in line for line in lines)


def test_flash_deletes_nothing_that_it_did_not_make(project, tools, tmp_path):
    """A clone of this project may lie on the board."""
    home = shell(tools, tmp_path)
    clone = home / "gradloom"
    clone.mkdir(parents=True)
    (clone / "README.md").touch()
    tools("scp", f'touch {home}/gradloom-designs/$(basename "$(echo "$6" | cut -d: -f2)")/copied')
    fill(project)
    ours = home / "gradloom-designs" / NAME
    for _ in range(2):
        boards.flash(BOARD, project, echo=lambda line: None)
        assert sorted(file.name for file in ours.iterdir()) == [".gradloom-flash", "copied"]
        (ours / "copied").rename(ours / "left over")
    (ours / ".gradloom-flash").unlink()
    with pytest.raises(boards.FlowError, match="ssh ended with exit code 1"):
        boards.flash(BOARD, project, echo=lambda line: None)
    assert [file.name for file in ours.iterdir()] == ["left over"] and (clone / "README.md").exists()


def shell(tools, tmp_path, compatible="xlnx,zynqmp-sk-kv260-rev2"):
    """The board's home: a folder, in which a shell plays ssh. Its device tree has ``compatible``."""
    home, tree = tmp_path / "home", tmp_path / "tree"
    home.mkdir()
    tree.mkdir()
    (tree / "compatible").write_bytes(compatible.encode() + b"\0xlnx,zynqmp\0")
    tools(
        "ssh",
        f'cd {home}; if [ "$1" = -t ]; then echo loaded; exit; fi; [ "$1" = -o ] && shift 2; shift; '
        f'sh -c "$(echo "$*" | sed "s|/proc/device-tree|{tree}|g")"',
    )
    return home


def fill(project):
    bundle = project / "board" / "bundle"
    bundle.mkdir()
    for file in (f"{NAME}.bit", f"{NAME}.hwh", f"{NAME}.bit.bin", f"{NAME}.dtbo", "shell.json"):
        (bundle / file).touch()


def test_flash_leaves_another_board_alone(project, tools, tmp_path):
    home = shell(tools, tmp_path, "raspberrypi,4-model-b")
    fill(project)
    with pytest.raises(boards.FlowError, match="ssh ended with exit code 1"):
        boards.flash(BOARD, project, echo=lambda line: None)
    assert list(home.iterdir()) == []


def test_a_board_that_does_not_answer_is_one_line(project, tools, run):
    tools("ssh", 'echo "ssh: connect to host kria port 22: No route to host" >&2; exit 255')
    tools("scp", "exit 0")
    fill(project)
    code, _, err = run("flash", "kv260", project)
    assert code == 2 and err.splitlines()[-1] == (
        "gradloom: ubuntu@kria does not answer over ssh: is the board on, in this network, and its name right? "
        "(--host USER@HOST)"
    )


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "", "x;y"])
def test_a_host_that_ssh_would_misread_is_refused(project, host):
    with pytest.raises(ValueError, match="host must"):
        boards.flash(BOARD, project, host=host, dry_run=True)
