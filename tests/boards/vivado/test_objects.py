"""The emitted scripts name what is there: files, folders, runs, pins, interfaces and settings of cores."""

import pytest

from gradloom import boards

#: A board, a script, a change of it, and the error.
CHANGES = [
    ("kv260", "design", "CONFIG.PSU__USE__IRQ1 1", "CONFIG.PSU__USE_IRQ1 1", "no setting of cell ps: CONFIG.PSU__USE_"),
    ("kv260", "design", "CONFIG.PSU__USE__IRQ1 1", "CONFIG.PSU__USE__IRQ1 0", "no pin ps/pl_ps_irq1"),
    ("kv260", "design", "CONFIG.NUM_MI 1", "CONFIG.NUM_MI 0", "no interface registers/M00_AXI"),
    ("kv260", "design", "registers/aclk", "registers/clk", "no pin registers/clk"),
    ("kv260", "design", "ip:smartconnect", "ip:smart_connect", "no core xilinx.com:ip:smart_connect"),
    ("kv260", "build", "\nupdate_ip_catalog\n", "\n", "no core gradloom:accelerator:gradloom:1.0"),
    ("kv260", "build", "file mkdir $work_dir $out_dir", "file mkdir $work_dir", "no folder "),
    ("kv260", "build", "[list [file join $here constraints.xdc]]", "none.xdc", "no file none.xdc"),
    ("kv260", "implement", "[get_runs impl_1]", "[get_runs impl_2]", "no run impl_2"),
    ("kv260", "package_ip", "get_files clock.xdc", "get_files clocks.xdc", "no file clocks.xdc"),
    ("kv260", "package_ip", "set_property version", "set_property versions", "no setting of a core: versions"),
    ("genesys2", "design", "CONFIG.C_EXT_RESET_HIGH", "CONFIG.EXT_RESET_HIGH", "no setting of cell reset: CONFIG.EXT_"),
    ("genesys2", "design", "CONFIG.DIVISOR", "CONFIG.DIVIDER", "no setting of cell soc: CONFIG.DIVIDER"),
    ("genesys2", "design", "-reference gradloom_soc", "-reference gradloom_socs", "no module gradloom_socs"),
    ("genesys2", "design", "[get_bd_pins soc/restart_n]", "[get_bd_pins soc/restart]", "no pin soc/restart"),
    ("genesys2", "design", "[get_bd_ports sd_miso]", "[get_bd_ports sd_mis]", "no port sd_mis"),
    ("genesys2", "design", "memory/S02_AXI", "memory/S01_AXI", "memory/S01_AXI is connected already"),
]


@pytest.mark.parametrize("board, script, text, change, said", CHANGES)
def test_what_is_not_there_ends_the_build(design, make_report, vivado, board, script, text, change, said):
    report = make_report() if board == "kv260" else make_report(data_bits=256, name="edge-qlora-genesys2")
    boards.write_project(boards.find(board), design, report)
    path = design / "board" / f"{script}.tcl"
    before = path.read_text()
    assert text in before
    path.write_text(before.replace(text, change, 1))
    _, error = vivado(design)
    assert error is not None and error.startswith(said)
