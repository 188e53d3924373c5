"""The Tcl that makes a bitstream runs in a real interpreter; Vivado's own commands are recorded."""

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from gradloom import boards
from gradloom.boards.clocks import REACHED, reached
from gradloom.boards.kv260.project import project_files
from gradloom.preset import PRESETS

BOARD = boards.find("kv260")
DOCS = Path(__file__).parents[3] / "docs"


def ps_config(journal):
    """Settings of the processing system."""
    settings = {}
    for args in journal.calls("set_property"):
        if args[-1] == "ps":
            words = args[1].split()
            settings |= dict(zip(words[::2], words[1::2]))
    return settings


def test_every_added_file_exists_and_primitives_stand_in_for_their_namesakes(journal, design):
    added = [Path(file) for args in journal.calls("add_files") for file in args[-1].split()]
    assert all(file.is_file() for file in added)
    names = [file.relative_to(design).as_posix() for file in added]
    assert names == ["rtl/gradloom.v", "synth/pe.v", "board/clock.xdc", "board/constraints.xdc"]


def test_part_and_board_are_the_kv260(journal):
    parts = {args[args.index("-part") + 1] for args in journal.calls("create_project")}
    assert parts == {"xck26-sfvc784-2lv-c"}
    assert ["*:kv260*", "-latest_file_version"] in journal.calls("get_board_parts")
    chosen = ["board_part", "xilinx.com:kv260_som:part0:1.4", "current_project"]
    assert chosen in journal.calls("set_property")


def test_every_bus_is_connected_once(journal):
    assert journal.nets("connect_bd_intf_net") == {
        "ps/M_AXI_HPM0_FPD": {"registers/S00_AXI"},
        "registers/M00_AXI": {"accelerator/s_axi"},
        "accelerator/m_axi": {"ps/S_AXI_HP0_FPD"},
    }


@pytest.mark.parametrize("hp_ports", [(0, 3), (0, 3, 1, 2)], ids=str)
def test_several_managers_have_a_port_each(design, make_report, vivado, hp_ports):
    """HP0 and HP3 first, which share no way to the memory; each on, clocked, as wide, with DDR alone."""
    managers = ["m_axi", *(f"m_axi_{n}" for n in range(1, len(hp_ports)))]
    boards.write_project(BOARD, design, make_report(managers=managers))
    journal, error = vivado(design, inferred=" ".join((*managers, "s_axi", "clk")))
    assert error is None
    nets, config = journal.nets("connect_bd_intf_net"), ps_config(journal)
    tied, assigned = journal.calls("ipx::associate_bus_interfaces"), journal.calls("assign_bd_address")
    excluded = journal.calls("exclude_bd_addr_seg")
    for manager, hp in zip(managers, hp_ports, strict=True):
        assert nets[f"accelerator/{manager}"] == {f"ps/S_AXI_HP{hp}_FPD"}
        assert config[f"CONFIG.PSU__USE__S_AXI_GP{hp + 2}"] == "1"
        assert config[f"CONFIG.PSU__SAXIGP{hp + 2}__DATA_WIDTH"] == "128"
        assert f"ps/saxihp{hp}_fpd_aclk" in journal.nets()["ps/pl_clk0"]
        assert ["-busif", manager, "-clock", "clk", "core"] in tied
        reached = {args[-2] for args in assigned if f"accelerator/{manager}" in args}
        assert reached == {f"ps/SAXIGP{hp + 2}/HP{hp}_DDR_{end}" for end in ("LOW", "HIGH")}
        held_back = {args[-1] for args in excluded if f"accelerator/{manager}" in args}
        assert held_back == {f"ps/SAXIGP{hp + 2}/HP{hp}_{what}" for what in ("QSPI", "LPS_OCM")}
    text = (design / "board/instantft-kv260.dtso").read_text(encoding="utf-8")
    sides = [4 + 2 * hp + side for hp in sorted(hp_ports) for side in (0, 1)]
    assert f"config-afi = {', '.join(f'<{side} 0>' for side in sides)}, <14 0x200>;" in text


def test_managers_of_different_widths_are_refused(make_report):
    report = make_report(managers=["m_axi", "m_axi_1"])
    for port in report["ports"]:
        if port["name"] == "m_axi_1_wdata":
            port["width"] = 64
    with pytest.raises(ValueError, match="m_axi_1_wdata must be as wide as m_axi_wdata, not 64"):
        project_files(BOARD, report)


def test_more_ports_than_a_board_has_are_refused():
    preset = PRESETS["edge-qlora-genesys2"]
    preset = dataclasses.replace(preset, config=preset.config.replace(ports=2))
    boards.check(BOARD, preset)
    with pytest.raises(ValueError, match="ports=2: genesys2 has 1 for a design; must be at most that"):
        boards.check(boards.find("genesys2"), preset)


def test_the_ports_in_use_are_on_and_every_other_is_off(journal):
    config = ps_config(journal)
    assert config["CONFIG.PSU__USE__M_AXI_GP0"] == "1"  # M_AXI_HPM0_FPD
    assert config["CONFIG.PSU__USE__S_AXI_GP2"] == "1"  # S_AXI_HP0_FPD
    assert config["CONFIG.PSU__USE__M_AXI_GP1"] == "0"  # M_AXI_HPM1_FPD, on in the preset
    assert config["CONFIG.PSU__USE__M_AXI_GP2"] == "0"  # M_AXI_HPM0_LPD
    assert config["CONFIG.PSU__SAXIGP2__DATA_WIDTH"] == "128"
    assert (config["CONFIG.PSU__USE__IRQ0"], config["CONFIG.PSU__USE__IRQ1"]) == ("0", "1")
    # The preset comes first, so that it cannot switch anything on again.
    order = [line[0] for line in journal]
    preset = order.index("apply_bd_automation")
    assert all(i > preset for i, line in enumerate(journal) if line[0] == "set_property" and line[-1] == "ps")


def test_one_clock_of_200_mhz_drives_everything(journal):
    assert ps_config(journal)["CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ"] == "200"
    assert journal.nets()["ps/pl_clk0"] == {
        "ps/maxihpm0_fpd_aclk",
        "ps/saxihp0_fpd_aclk",
        "accelerator/clk",
        "reset/slowest_sync_clk",
        "registers/aclk",
    }


@pytest.mark.parametrize("preset, mhz", [(name, mhz) for name, (mhz, _) in REACHED.items()])
def test_clocks_that_presets_reach_are_those_of_the_documents(preset, mhz):
    pages = [DOCS / "evidence/timing.md", DOCS / "evidence/results.md"]
    like = {"instantft-llm-genesys2": "edge-qlora-genesys2"}.get(preset, preset)
    rows = [row for page in pages for row in page.read_text().splitlines() if f"`{like}`" in row]
    assert any(f"{mhz:g} MHz" in row for row in rows), rows


def test_more_than_a_preset_reaches_is_said():
    assert reached("instantft-kv260", 206)["short"] is None and reached("lstm-zcu104", 900) is None
    assert reached("instantft-kv260", 207)["short"].startswith(
        "clock_mhz=207: instantft-kv260 as it comes reaches 206 MHz"
    )


@pytest.mark.parametrize(
    "port, source, polarity",
    [("rst", "reset/peripheral_reset", "ACTIVE_HIGH"), ("rst_n", "reset/peripheral_aresetn", "ACTIVE_LOW")],
)
def test_the_reset_has_the_ports_polarity(design, make_report, vivado, port, source, polarity):
    boards.write_project(BOARD, design, make_report(reset=port))
    journal, error = vivado(design)
    assert error is None
    assert f"accelerator/{port}" in journal.nets()[source]
    assert "registers/aresetn" in journal.nets()["reset/peripheral_aresetn"]
    assert journal.nets()["ps/pl_resetn0"] == {"reset/ext_reset_in"}
    assert ["value", polarity, f"{port}.POLARITY"] in journal.calls("set_property")


def test_the_interrupt_reaches_the_processor(journal):
    assert journal.nets()["accelerator/irq"] == {"ps/pl_ps_irq1"}
    assert ["irq", "xilinx.com:signal:interrupt_rtl:1.0"] in journal.calls("ipx::infer_bus_interface")
    assert ["value", "LEVEL_HIGH", "irq.SENSITIVITY"] in journal.calls("set_property")


def test_registers_and_memory_have_addresses(journal):
    assigned = journal.calls("assign_bd_address")
    registers = next(args for args in assigned if "accelerator/s_axi/*" in args)
    assert registers[registers.index("-offset") + 1] == "0xa0010000"
    assert registers[registers.index("-range") + 1] == "0x1000"
    assert registers[registers.index("-target_address_space") + 1] == "ps/Data"
    memory = {args[-2] for args in assigned if "accelerator/m_axi" in args}
    assert memory == {"ps/SAXIGP2/HP0_DDR_LOW", "ps/SAXIGP2/HP0_DDR_HIGH"}
    excluded = {args[-1] for args in journal.calls("exclude_bd_addr_seg")}
    assert excluded == {"ps/SAXIGP2/HP0_QSPI", "ps/SAXIGP2/HP0_LPS_OCM"}


def test_the_core_ties_both_buses_to_its_clock(journal):
    tied = journal.calls("ipx::associate_bus_interfaces")
    for bus in ("m_axi", "s_axi"):
        assert ["-busif", bus, "-clock", "clk", "core"] in tied
    assert ["-clock", "clk", "-reset", "rst", "core"] in tied
    order = [line[0] for line in journal]
    assert order.index("ipx::save_core") < order.index("create_bd_design")


def test_a_fixed_frequency_of_the_core_is_removed_where_there_is_one(design, report, vivado, journal):
    assert journal.calls("ipx::remove_bus_parameter") == []
    commands, error = vivado(design, inferred="m_axi s_axi m_axi_bus s_axi_bus clk clk.FREQ_HZ")
    assert error is None and commands.calls("ipx::remove_bus_parameter") == [["FREQ_HZ", "clk"]]


def test_interfaces_that_vivado_infers_itself_are_not_inferred_again(design, report, vivado):
    boards.write_project(BOARD, design, report)
    journal, error = vivado(design, inferred="m_axi s_axi clk rst irq rst.POLARITY")
    assert error is None
    assert journal.calls("ipx::infer_bus_interface") == []
    assert ["value", "ACTIVE_HIGH", "rst.POLARITY"] in journal.calls("set_property")


def test_bitstream_and_handoff_leave_under_one_name(journal, design):
    out = design / "board" / "build" / "out"
    assert {file.name for file in out.iterdir() if file.suffix != ".rpt"} == {
        "instantft-kv260.bit",
        "instantft-kv260.hwh",
        "clock.txt",
    }
    reports = {line[0] for line in journal if line[0].startswith("report_")}
    assert reports == {f"report_{name}" for name in ("timing_summary", "utilization", "power", "drc", "methodology")}
    assert ["synth_1"] in journal.calls("wait_on_run")
    assert ["impl_1"] in journal.calls("wait_on_run")


def test_missing_board_files_are_named(design, report, vivado):
    boards.write_project(BOARD, design, report)
    _, error = vivado(design, board_parts="")
    assert "no board files of the KV260" in error


def test_a_bus_that_vivado_cannot_infer_is_named(design, report, vivado):
    boards.write_project(BOARD, design, report)
    _, error = vivado(design, inferred="m_axi")
    assert "no interface s_axi" in error


def test_a_design_without_verilog_is_refused(design, report, vivado):
    boards.write_project(BOARD, design, report)
    shutil.rmtree(design / "rtl")
    _, error = vivado(design)
    assert "no Verilog found" in error


def test_the_project_is_the_same_in_every_place_and_names_none(tmp_path, report):
    texts = []
    for folder in ("here", "some where/else"):
        files = boards.write_project(BOARD, tmp_path / folder, report)
        assert files == sorted(files) and not any(file.is_absolute() for file in files)
        texts.append({file: (tmp_path / folder / file).read_bytes() for file in files})
    assert texts[0] == texts[1]
    for file, text in texts[0].items():
        assert str(tmp_path).encode() not in text, file
        assert not re.search(rb"\b20\d\d-\d\d-\d\d\b|\b\d\d:\d\d:\d\d\b", text), file


def test_a_folder_with_spaces_works(tmp_path, design, report, vivado):
    folder = tmp_path / "a design"
    shutil.copytree(design, folder)
    boards.write_project(BOARD, folder, report)
    _, error = vivado(folder)
    assert error is None


@pytest.mark.parametrize("port", ["clk", "rst", "irq", "m_axi_wlast", "s_axi_bresp"])
def test_a_missing_port_is_named_and_nothing_is_written(tmp_path, report, port):
    report["ports"] = [p for p in report["ports"] if p["name"] != port]
    with pytest.raises(ValueError, match=port):
        boards.write_project(BOARD, tmp_path, report)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "change, message",
    [
        ({"module": "2x"}, "module"),
        ({"name": "a b"}, "name"),
        ({"name": "../x"}, "name"),
        ({"window_bytes": 100}, "window_bytes"),
        ({"window_bytes": 1 << 31}, "window_bytes"),
    ],
)
def test_a_bad_report_is_refused(tmp_path, report, change, message):
    with pytest.raises(ValueError, match=message):
        boards.write_project(BOARD, tmp_path, report | change)


def test_a_memory_bus_that_the_port_cannot_take_is_refused(tmp_path, make_report):
    with pytest.raises(ValueError, match="m_axi_wdata must be 32, 64 or 128 bits wide on kv260, not 256; set ports=2"):
        boards.write_project(BOARD, tmp_path, make_report(data_bits=256))


def test_the_driver_and_host_come_with_the_design(tmp_path, report):
    files = {file.as_posix() for file in boards.write_project(BOARD, tmp_path, report)}
    assert {
        "firmware/driver/gradloom.c",
        "firmware/driver/gradloom_regs.h",
        "firmware/gradloom_host/selftest.py",
        "firmware/gradloom_host/registers.py",
    } <= files
