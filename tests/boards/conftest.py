"""A generated design to write projects for, and a Tcl interpreter that plays Vivado."""

import json
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from gradloom import boards

STUB = Path(__file__).with_name("vivado") / "stub.tcl"

# Every command of Vivado that a build may use: a misspelt one is not in the list.
VIVADO = set(
    """
    add_files apply_bd_automation assign_bd_address close_project connect_bd_intf_net connect_bd_net create_bd_cell
    create_bd_design create_clock create_bd_intf_port create_bd_port create_project exclude_bd_addr_seg
    generate_target get_board_parts launch_runs make_wrapper open_run read_saif report_drc report_methodology
    report_power
    report_timing_summary report_utilization save_bd_design set_input_jitter set_msg_config set_property
    update_compile_order update_ip_catalog validate_bd_design wait_on_run write_hw_platform ipx::add_bus_parameter
    ipx::associate_bus_interfaces ipx::check_integrity ipx::create_xgui_files ipx::infer_bus_interface
    ipx::package_project ipx::remove_bus_parameter ipx::save_core ipx::update_checksums
""".split()
)


def timing_report(*, wns="0.123", whs="0.020", wpws="2.000", failing=(0, 0, 0), **checks):
    """What ``report_timing_summary`` writes, as far as somebody reads it. ``checks``: counts of ``check_timing``."""
    names = (
        "no_clock",
        "constant_clock",
        "pulse_width_clock",
        "unconstrained_internal_endpoints",
        "no_input_delay",
        "no_output_delay",
        "multiple_clock",
        "generated_clocks",
        "loops",
        "partial_input_delay",
        "partial_output_delay",
        "latch_loops",
    )
    counts = dict.fromkeys(names, 0) | {"no_input_delay": 3, "pulse_width_clock": 7} | checks
    row = "".join(f"{slack:>11}{'0.000':>13}{count:>23}{12345:>21}" for slack, count in zip((wns, whs, wpws), failing))
    return "\n".join(
        [
            "Timing Summary Report",
            "",
            "check_timing report",
            "",
            "Table of Contents",
            "-----------------",
            *(f"{number}. checking {name} ({count})" for number, (name, count) in enumerate(counts.items(), 1)),
            "",
            "| Design Timing Summary",
            "| ---------------------",
            "",
            "    WNS(ns)      TNS(ns)  TNS Failing Endpoints  TNS Total Endpoints      WHS(ns)      THS(ns)  "
            "THS Failing Endpoints  THS Total Endpoints     WPWS(ns)     TPWS(ns)  TPWS Failing Endpoints  "
            "TPWS Total Endpoints  ",
            "    -------      -------  ---------------------  -------------------      -------      -------  "
            "---------------------  -------------------     --------     --------  ----------------------  "
            "--------------------  ",
            row,
            "",
            "",
            "Clock             WNS(ns)      TNS(ns)  TNS Failing Endpoints     WPWS(ns)     TPWS(ns)",
            "",
        ]
    )


def rules_report(*rows, found="Violations"):
    """What ``report_drc`` and ``report_methodology`` write: rows of rule, severity, description and count."""
    rule = "+----------+------------------+----------------------------------+------------+"
    return "\n".join(
        [
            "Report DRC",
            "",
            "1. REPORT SUMMARY",
            "-----------------",
            "            Netlist: netlist",
            f"             Max {found.lower()}: <unlimited>",
            f"             {found} found: {sum(row[3] for row in rows)}",
            rule,
            f"| {'Rule':8} | {'Severity':16} | {'Description':32} | {found:10} |",
            rule,
            *(f"| {name:8} | {severity:16} | {text:32} | {count:<10} |" for name, severity, text, count in rows),
            rule,
            "",
            "2. REPORT DETAILS",
            "-----------------",
            "",
        ]
    )


#: Reports of a design that passes.
PASSED = {
    "timing_summary": timing_report(),
    "drc": rules_report(("DPOP-4", "Warning", "MREG Output pipelining", 12)),
    "methodology": rules_report(("LUTAR-1", "Warning", "LUT drives async reset alert", 1), found="Checks"),
}


def axi_ports(prefix, *, address_bits, data_bits, lite):
    """Ports of an AXI4 manager, or of an AXI4-Lite subordinate, as a report lists them."""
    out, back = ("input", "output") if lite else ("output", "input")
    ports = []
    for channel in ("aw", "ar"):
        ports.append((f"{channel}addr", out, address_bits))
        if not lite:
            ports += [(f"{channel}len", out, 8), (f"{channel}size", out, 3), (f"{channel}burst", out, 2)]
        ports += [(f"{channel}valid", out, 1), (f"{channel}ready", back, 1)]
    ports += [
        ("wdata", out, data_bits),
        ("wstrb", out, data_bits // 8),
        ("wvalid", out, 1),
        ("wready", back, 1),
        ("bresp", back, 2),
        ("bvalid", back, 1),
        ("bready", out, 1),
        ("rdata", back, data_bits),
        ("rresp", back, 2),
        ("rvalid", back, 1),
        ("rready", out, 1),
    ]
    if not lite:
        ports += [("wlast", out, 1), ("rlast", back, 1)]
    return [{"name": f"{prefix}_{name}", "direction": way, "width": width} for name, way, width in ports]


def _report(*, reset="rst", data_bits=128, managers=("m_axi",), **more):
    """What ``generate`` says of a design."""
    ports = [
        {"name": "clk", "direction": "input", "width": 1},
        {"name": reset, "direction": "input", "width": 1},
        {"name": "irq", "direction": "output", "width": 1},
        *(port for name in managers for port in axi_ports(name, address_bits=64, data_bits=data_bits, lite=False)),
        *axi_ports("s_axi", address_bits=12, data_bits=32, lite=True),
    ]
    return {"module": "gradloom", "name": "instantft-kv260", "ports": ports} | more


class Journal(list):
    """Commands that the interpreter recorded, each a list of words."""

    def calls(self, name):
        """Arguments of each call of a command."""
        return [line[1:] for line in self if line[0] == name]

    def nets(self, command="connect_bd_net"):
        """Sinks of each driver."""
        found = {}
        for source, sink in self.calls(command):
            found.setdefault(source, set()).add(sink)
        return found


def run_tcl(script, scenario, journal):
    """Runs ``script`` against the stub: ``(commands, error message or None)``."""
    lines = [
        f"set journal_file {{{journal}}}",
        f"set scenario {{{scenario}}}",
        f"source {{{STUB}}}",
        f"set failed [catch {{source {{{script}}}}} message]",
        "write_journal",
        "if {$failed} {puts stderr $message; exit 1}",
    ]
    done = subprocess.run(
        ["tclsh"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=False, cwd=journal.parent
    )
    commands = Journal(json.loads(journal.read_text()))
    return commands, done.stderr.strip() if done.returncode else None


@pytest.fixture
def tcl():
    """:func:`run_tcl`."""
    if shutil.which("tclsh") is None:
        pytest.skip("tclsh is not installed")
    return run_tcl


@pytest.fixture
def make_report():
    """Makes reports that differ in one thing."""
    return _report


@pytest.fixture
def report():
    return _report()


@pytest.fixture
def design(tmp_path):
    """A folder with two Verilog files, one of which has a stand-in of primitives."""
    folder = tmp_path / "design"
    for path in ("rtl/gradloom.v", "rtl/pe.v", "synth/pe.v"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("module m; endmodule\n")
    return folder


@pytest.fixture
def vivado(tcl, tmp_path):
    """Runs a project's build.tcl: gives the recorded commands, all of them Vivado's, and the error if there was one."""

    def run(
        folder,
        *,
        board_parts="xilinx.com:kv260_som:part0:1.4",
        inferred="m_axi s_axi m_axi_bus s_axi_bus",
        log=None,
        period="5.000",
        **reports,
    ):
        scenario = (
            f"board_parts {{{board_parts}}} inferred {{{inferred}}} properties {{PROGRESS 100% PERIOD {period} "
            "INPUT_JITTER 0.05 SOURCE_PINS ps/PLCLK\\[0\\] "
            f"IP_DIR {{{tmp_path / 'ip of mig' / 'that is new'}}}}} reports {{"
        )
        scenario += " ".join(f"{name} {{{text}}}" for name, text in (PASSED | reports).items()) + "}"
        scenario += "" if log is None else f" run_log {{{log}}}"
        commands, error = tcl(folder / "board" / "build.tcl", scenario, tmp_path / "journal.json")
        assert {line[0] for line in commands} <= VIVADO
        return commands, error

    return run


@pytest.fixture
def journal(request, design, report, vivado):
    """Commands that build a project of the test module's ``BOARD``."""
    boards.write_project(request.module.BOARD, design, report)
    commands, error = vivado(design)
    assert error is None
    return commands


#: What tools print where they are asked for their version.
VERSIONS = {
    "vivado": "Vivado v2023.2 (64-bit)",
    "dtc": "Version: DTC 1.6.1",
    "bootgen": "****** Bootgen v2023.2",
    "openFPGALoader": "openFPGALoader v1.1.1",
    "ssh": "OpenSSH_9.2p1 Debian-2",
}


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A folder in front of PATH: ``tools(name, script)`` puts a shell script there.

    It answers with ``version`` where it is asked for that: None leaves it to the script.
    """
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def put(name, script, *, version=""):
        said = VERSIONS.get(name, "") if version == "" else version
        asked = f'case "$1" in -version|--version|--Version|-V|-help) echo "{said}"; exit;; esac' if said else ""
        path = folder / name
        path.write_text(f"#!/bin/sh\n{asked}\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    return put


def by_name(checks):
    """Checks of ``doctor`` by their names."""
    return {each.check: each for each in checks}


@pytest.fixture
def nobody(tmp_path_factory):
    """Runs a function without root's rights: the kernel then refuses what a mode forbids."""

    def call(function):
        if os.geteuid():
            return function()
        os.seteuid(65534)
        try:
            return function()
        finally:
            os.seteuid(0)

    return call


@pytest.fixture
def open_folder():
    """A folder that everybody may enter; pytest's own are for their owner."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)
