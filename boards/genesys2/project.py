"""The Vivado project of a generated Genesys 2 design.

The board has no processor, so the design brings one: ``gradloom_soc`` (``rtl/soc``), the module that is simulated with
the accelerator. Only the memory controller and the interconnect are the vendor's.
"""

from collections.abc import Mapping
from pathlib import Path

from gradloom.firmware.chip.soc_image import memory_text
from gradloom.preset import Preset
from gradloom.rtl.soc import soc_sources

from ..board import Board
from ..clocks import asked_mhz
from ..firmware_files import soc_files
from ..flow import NoProjectError
from ..links.usb import RULES, udev_rules
from ..vivado.project import TopPorts, design_name, shared_tcl, tcl_settings
from .facts import CABLES
from .memory import DATA_BITS, mig_project, pace_of
from .openxc7 import CLOCK_HZ, openxc7_files

_HERE = Path(__file__).parent
_SCRIPTS = ("build.tcl", "design.tcl", "load.tcl", "pins.xdc")
#: Where processor and accelerator see the memory.
MEMORY_BASE = 0x8000_0000
BAUD = 115_200
#: Clock of the memory card: until it is known, and then. Cards bear 25 MHz; at 20 the firmware is about as fast.
CARD_SLOW_HZ, CARD_FAST_HZ = 400_000, 20_000_000
#: A card may sleep on for this long; a command and the wait for its answer are 17 bytes.
CARD_WAKES_S = 0.5
_COMMAND_BITS = 8 * 17


def _soc_settings(hz: int) -> dict[str, int]:
    """Parameters of ``gradloom_soc`` that depend on its clock."""
    return {
        "DIVISOR": round(hz / BAUD),
        "CARD_SLOW": -(-hz // (2 * CARD_SLOW_HZ)),
        "CARD_FAST": max(4, -(-hz // (2 * CARD_FAST_HZ))),
        "CARD_TRIES": -(-int(CARD_WAKES_S * CARD_SLOW_HZ) // _COMMAND_BITS),
    }


def check(board: Board, preset: Preset) -> None:
    """Refuses a clock that the memory controller does not make.

    See :func:`gradloom.boards.check`.
    """
    pace_of(preset.config.clock_mhz, board.name)


def project_files(board: Board, report: Mapping) -> dict[str, str]:
    """Content of every project file, by its path in the design's folder.

    Writes nothing.
    """
    name = design_name(report)
    ports = TopPorts.of(report)
    pace = pace_of(asked_mhz(report, board.clock_hz), board.name)
    if ports.memory_bits not in (32, 64, 128, DATA_BITS):
        raise ValueError(
            f"report: m_axi_wdata must be 32, 64, 128 or {DATA_BITS} bits wide on {board.name}, not {ports.memory_bits}"
        )
    if ports.memory_address_bits < 32:
        raise ValueError(
            f"report: m_axi_awaddr must be at least 32 bits wide on {board.name}, not {ports.memory_address_bits}"
        )
    if ports.register_address_bits > 12:
        raise ValueError(
            f"report: s_axi_awaddr must be at most 12 bits wide on {board.name}, not {ports.register_address_bits}"
        )
    try:
        sources = {path.name: path.read_text(encoding="utf-8") for path in soc_sources()}
    except ValueError as error:
        raise NoProjectError(f"board={board.name}: no board project: {error}") from None
    soc = _soc_settings(pace.hz)
    settings = tcl_settings(
        {
            "name": name,
            "module": ports.module,
            "part": board.part,
            "ip_family": "kintex7",
            "clock_port": ports.clock,
            "reset_port": ports.reset,
            "reset_polarity": "ACTIVE_HIGH" if ports.reset_active_high else "ACTIVE_LOW",
            "reset_source": "peripheral_reset" if ports.reset_active_high else "peripheral_aresetn",
            "interrupt_port": ports.interrupt,
            "managers": ports.managers,
            "register_range": "0x1000",
            "memory_base": f"{MEMORY_BASE:#x}",
            "memory_range": f"{board.memory_bytes:#x}",
            "uart_divisor": soc["DIVISOR"],
            "card_slow": soc["CARD_SLOW"],
            "card_fast": soc["CARD_FAST"],
            "card_tries": soc["CARD_TRIES"],
            "soc_files": sorted(sources),
            "allowed_rules": (),
        }
    )
    clock = (
        f"# Period of {pace.mhz:g} MHz, for the core on its own (out of context).\n"
        f"create_clock -name {ports.clock} -period {4 * pace.period_ps / 1e3:.3f} [get_ports {ports.clock}]\n"
    )
    firmware = soc_files()
    files = {f"board/{file}": (_HERE / file).read_text(encoding="utf-8") for file in _SCRIPTS}
    files |= {f"board/{file}": text for file, text in shared_tcl().items()}
    files |= {f"board/soc/{file}": text for file, text in sources.items()}
    files |= {
        "board/settings.tcl": settings,
        "board/clock.xdc": clock,
        "board/mig.prj": mig_project(pace),
        RULES: udev_rules(CABLES),
        "board/soc/soc_image.mem": memory_text(),
    }
    widths = {port["name"]: port["width"] for port in report["ports"]}
    files |= openxc7_files(ports, board.part, files["board/pins.xdc"], _soc_settings(CLOCK_HZ), widths)
    files |= {f"firmware/gradloom_soc/{path}": text for path, text in firmware.items()}
    return files
