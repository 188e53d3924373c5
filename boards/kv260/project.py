"""The Vivado project and bundle sources of a design for a KV260, or a board of its :mod:`.carriers`.

Ports, and why: ``m_axi`` goes straight to ``S_AXI_HP0_FPD``, at 128 bits and the fabric's clock, further managers to
``HP3``, which has a way to the memory of its own, then to ``HP1`` and ``HP2``, which share one. ``HPC0``
would be coherent with the CPU's caches, but only if the boot firmware broadcasts inner-shareable traffic (a
register that must be set before the CPUs start, and Kria's boot firmware is not ours to change), and every
beat would pass the CCI-400, which the CPUs and the snoops share. A fine-tune touches each byte of the buffer
from the CPU once before the bell and once after, so the buffer is mapped uncached instead and HP0 has the
shorter way to DDR.
"""

from collections.abc import Mapping
from pathlib import Path

from gradloom.preset import Preset

from ..board import Board
from ..clocks import asked_mhz
from ..firmware_files import firmware_files
from ..links.usb import RULES, udev_rules
from ..vivado.project import TopPorts, design_name, shared_tcl, tcl_settings
from .bundle import overlay
from .bundle.notebook import notebook
from .carriers import CARRIERS
from .facts import CABLES
from .ps_clock import clock_of, slower

__all__ = ["check", "project_files"]

_HERE = Path(__file__).parent
_FILES = ("build.tcl", "design.tcl", "constraints.xdc", "load.sh")
_DEFAULT_WINDOW = 64 << 20
#: Number of the HP port of each manager. HP1 and HP2 share one way to the memory, HP0 and HP3 none.
HP_PORTS = (0, 3, 1, 2)
_PAGE = 4096
# Words of load.sh that are of the board, how its device tree is known, and its name; and of the design.
_TREE, _TITLE, _DEVICE = "-e kv260 -e k26", "KV260", "device=gradloom\n"


def check(board: Board, preset: Preset) -> None:
    """Refuses a clock that the processing system does not make.

    See :func:`gradloom.boards.check`.
    """
    clock_of(preset.config.clock_mhz, board.name, CARRIERS[board.name].usual)


def project_files(board: Board, report: Mapping) -> dict[str, str]:
    """Content of every project file, by its path in the design's folder.

    Writes nothing.
    """
    carrier = CARRIERS[board.name]
    name = design_name(report)
    ports = TopPorts.of(report)
    hp_ports = HP_PORTS[: len(ports.managers)]
    if ports.memory_bits not in (32, 64, 128):
        raise ValueError(
            f"report: m_axi_wdata must be 32, 64 or 128 bits wide on {board.name}, not {ports.memory_bits}; set ports=2"
        )
    window_bytes = report.get("window_bytes", _DEFAULT_WINDOW)
    if not 0 < window_bytes < 1 << 31 or window_bytes % _PAGE:
        raise ValueError(
            f"report: window_bytes must be a positive multiple of {_PAGE} below {1 << 31}, not {window_bytes}"
        )
    register_range = max(_PAGE, 1 << ports.register_address_bits)
    made = clock_of(asked_mhz(report, board.clock_hz), board.name, carrier.usual)
    clock_hz = made.hz

    settings = tcl_settings(
        {
            "name": name,
            "module": ports.module,
            "part": board.part.lower(),
            "board_store": carrier.store,
            "board_title": carrier.title,
            "ip_family": "zynquplus",
            "clock_mhz": f"{clock_hz / 1e6:g}",
            "clock_source": made.pll.name,
            "clocks": [each.hz for each in slower(made)],
            "clock_port": ports.clock,
            "reset_port": ports.reset,
            "reset_polarity": "ACTIVE_HIGH" if ports.reset_active_high else "ACTIVE_LOW",
            "reset_source": "peripheral_reset" if ports.reset_active_high else "peripheral_aresetn",
            "interrupt_port": ports.interrupt,
            "managers": ports.managers,
            "hp_ports": hp_ports,
            "memory_bits": ports.memory_bits,
            "register_base": f"{board.register_base:#x}",
            "register_range": f"{register_range:#x}",
            "allowed_rules": (),
        }
    )
    clock = (
        f"# Period of {clock_hz / 1e6:g} MHz, for the core on its own (out of context).\n"
        f"create_clock -name {ports.clock} -period {1e9 / clock_hz:.3f} "
        f"[get_ports {ports.clock}]\n"
    )

    files = {f"board/{file}": (_HERE / file).read_text(encoding="utf-8") for file in _FILES}
    loader = files["board/load.sh"]
    words = " ".join(f"-e {word}" for word in carrier.tree)
    for usual, own in ((_TREE, words), (_TITLE, carrier.title), (_DEVICE, f"device={ports.module}\n")):
        if usual not in loader:
            raise ValueError(f"load.sh has no {usual!r} to put {own!r} in its place")
        loader = loader.replace(usual, own)
    files["board/load.sh"] = loader
    files |= {f"board/{file}": text for file, text in shared_tcl().items()}
    files["board/settings.tcl"] = settings
    files["board/clock.xdc"] = clock
    files[f"board/{name}.bif"] = overlay.boot_image(name)
    files[f"board/{name}.dtso"] = overlay.device_tree(
        name=name,
        device=ports.module,
        register_base=board.register_base,
        register_range=register_range,
        clock_hz=clock_hz,
        memory_bits=ports.memory_bits,
        hp_ports=hp_ports,
        window_bytes=window_bytes,
    )
    files["board/shell.json"] = overlay.shell_json()
    files[RULES] = udev_rules(CABLES, board=overlay.device_files(ports.module))
    machine = report.get("machine")
    design = None if machine is None else {"name": name, **machine, "clock_mhz": made.mhz, "device": ports.module}
    files |= {f"firmware/{path}": text for path, text in firmware_files(design, ports.module).items()}
    files[f"firmware/{name}.ipynb"] = notebook(name)
    return files
