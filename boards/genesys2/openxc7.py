"""A project for openXC7 in place of Vivado: Yosys, nextpnr-xilinx, Project X-Ray, all by the user's own tools.

LiteDRAM (BSD-2-Clause) with its K7DDRPHY stands in for Vivado's memory controller and interconnect. Nothing of it is
here: ``build.sh`` has it generated. Slower than Vivado's project, since LiteDRAM runs at a quarter of the memory's
clock and nextpnr-xilinx places and routes for less: 100 MHz, 800 MT/s. The chip's temperature is not measured, and
there is no way into memory by JTAG. Nobody has built it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..vivado.project import TopPorts
from .memory import PINS

__all__ = ["CLOCK_HZ", "FOLDER", "TOP", "core_ports", "openxc7_files"]

_HERE = Path(__file__).parent
#: Where the files lie in a design, its top module, and the clock of all of it.
FOLDER, TOP, CLOCK_HZ = "board/openxc7", "gradloom_openxc7", 100_000_000
#: LiteDRAM's names of the memory's signals.
_NAMES = {"addr": "a", "ck_n": "clk_n", "ck_p": "clk_p"}
_BOTH = ("dq", "dqs_n", "dqs_p")
#: Signals of the board beside the memory's: direction by name.
_LINES = {
    "sys_clk_p": "input",
    "sys_clk_n": "input",
    "reset_n": "input",
    "uart_txd": "output",
    "uart_rxd": "input",
    "sd_reset": "output",
    "sd_sclk": "output",
    "sd_mosi": "output",
    "sd_cs_n": "output",
    "sd_miso": "input",
    "mains_lost": "input",
    "led_memory": "output",
    "led_trap": "output",
    "led_fault": "output",
    "fan_pwm": "output",
}
#: Width of a port's signals, None for its data's; those of requests stand for writes and reads.
_REQUEST = {"valid": 1, "addr": 30, "burst": 2, "len": 8, "size": 4, "id": 1}
_WRITE, _READ = {"valid": 1, "last": 1, "data": None}, {"valid": 1, "last": 1, "resp": 2, "data": None, "id": 1}
#: Ports of LiteDRAM: that of the accelerator is as wide as it is, the other one has the processor's width.
_USERS = ("accelerator", "processor")


def core_ports(memory_bits: int) -> dict[str, tuple[str, int]]:
    """Direction and width of each port of the module that LiteDRAM generates."""
    found = {"clk": ("input", 1), "rst": ("input", 1)}
    found |= {name: ("output", 1) for name in ("init_done", "init_error", "pll_locked", "user_clk", "user_rst")}
    for name, (balls, _) in PINS.items():
        found[f"ddram_{_NAMES.get(name, name)}"] = ("inout" if name in _BOTH else "output", len(balls.split()))
    for user, bits in zip(_USERS, (memory_bits, 32), strict=True):

        def put(channel: str, names: Mapping[str, int | None], way: str, user: str = user, bits: int = bits) -> None:
            for name, width in names.items():
                found[f"user_port_{user}_{channel}{name}"] = (way, bits if width is None else width)
            back = "input" if way == "output" else "output"
            found[f"user_port_{user}_{channel}ready"] = (back, 1)

        for channel in ("aw", "ar"):
            put(channel, _REQUEST, "input")
        put("w", _WRITE | {"strb": bits // 8}, "input")
        put("b", {"valid": 1, "resp": 2, "id": 1}, "output")
        put("r", _READ, "output")
    return found


def openxc7_files(
    ports: TopPorts, part: str, pins: str, soc: Mapping[str, int], modules: Mapping[str, int]
) -> dict[str, str]:
    """Content of every file, by its path in the design's folder.

    ``pins``: the constraints of Vivado's project. ``soc``: parameters of ``gradloom_soc``. ``modules``: widths of the
    accelerator's ports.
    """
    script = (_HERE / "openxc7.sh").read_text(encoding="utf-8")
    return {
        f"{FOLDER}/build.sh": script.replace("@PART@", part)
        .replace("@TOP@", TOP)
        .replace("@MHZ@", f"{CLOCK_HZ // 10**6}"),
        f"{FOLDER}/memory.yml": _memory(ports.memory_bits),
        f"{FOLDER}/pins.xdc": "".join(f"{line}\n" for line in _constraints(pins)),
        f"{FOLDER}/{TOP}.v": _top(ports, soc, modules),
    }


def _memory(bits: int) -> str:
    """Settings of LiteDRAM's generator.

    Its own processor trains the memory's lines after power-up.
    """
    users = {user: {"type": "axi", "id_width": 1, "data_width": width} for user, width in zip(_USERS, (bits, 32))}
    settings = {
        "cpu": "vexriscv",
        "cpu_variant": "minimal",
        "uart": "fifo",
        "speedgrade": -2,
        "memtype": "DDR3",
        "cmd_latency": 0,
        "cmd_delay": 0,
        "sdram_module": "MT41J256M16",
        "sdram_module_nb": 4,
        "sdram_rank_nb": 1,
        "sdram_phy": "K7DDRPHY",
        "rtt_nom": "60ohm",
        "rtt_wr": "60ohm",
        "ron": "34ohm",
        "input_clk_freq": 200_000_000,
        "sys_clk_freq": CLOCK_HZ,
        "iodelay_clk_freq": 200_000_000,
        "cmd_buffer_depth": 16,
        "user_ports": users,
    }
    return "# Settings of litedram_gen.\n" + json.dumps(settings, indent=4) + "\n"


def _constraints(pins: str) -> Iterator[str]:
    """Pins as nextpnr-xilinx reads them: one property a line."""
    placed = {}
    for settings, port in re.findall(r"^set_property -dict \{(.*?)\} \[get_ports (\w+)\]$", pins, re.M):
        words = settings.split()
        placed[port] = dict(zip(words[::2], words[1::2], strict=True))
    placed |= {
        f"sys_clk_{side}": {"PACKAGE_PIN": ball, "IOSTANDARD": "LVDS"} for side, ball in (("p", "AD12"), ("n", "AD11"))
    }
    for name, (balls, standard) in PINS.items():
        every = balls.split()
        for index, ball in enumerate(every):
            port = f"ddram_{_NAMES.get(name, name)}" + (f"[{index}]" if len(every) > 1 else "")
            placed[port] = {"PACKAGE_PIN": ball, "IOSTANDARD": standard}
    for port, values in placed.items():
        for name, value in values.items():
            yield f"set_property {name.replace('PACKAGE_PIN', 'LOC')} {value} [get_ports {{{port}}}]"


def _range(width: int) -> str:
    return f"[{width - 1}:0] " if width > 1 else ""


def _top(ports: TopPorts, soc: Mapping[str, int], modules: Mapping[str, int]) -> str:
    core = core_ports(ports.memory_bits)
    pads = {name: (way, width) for name, (way, width) in core.items() if name.startswith("ddram_")}
    outside = {name: (way, 1) for name, way in _LINES.items()} | pads
    wires, memory = [], dict.fromkeys(pads)
    memory |= {"clk": "clock", "rst": "1'b0", "init_done": "led_memory", "user_clk": "clk", "user_rst": "busy"}
    own: dict[str, str | None] = {ports.clock: "clk", ports.reset: "rst" if ports.reset_active_high else "!rst"}
    processor: dict[str, str | None] = {
        "clk": "clk",
        "rst": "rst",
        "restart_n": "reset_n",
        "temperature": "12'd0",
        "trap": "led_trap",
        "fault": "led_fault",
    }
    processor |= dict.fromkeys(name for name in _LINES if name.startswith(("uart_", "sd_")) or name == "mains_lost")
    for name, (_, width) in core.items():
        user, _, signal = name.removeprefix("user_port_").partition("_")
        if not name.startswith("user_port_"):
            continue
        fixed = {"awid": "1'b0", "arid": "1'b0"}
        if user == "processor":
            # AXI4-Lite: one beat of four bytes.
            fixed |= {
                f"{way}{end}": value for way in ("aw", "ar") for end, value in (("len", "8'd0"), ("size", "4'd2"))
            }
            fixed |= {"awburst": "2'd1", "arburst": "2'd1", "wlast": "1'b1"}
        if signal in fixed:
            memory[name] = fixed[signal]
            continue
        if signal in ("bid", "rid") or (user == "processor" and signal == "rlast"):
            continue
        theirs, at = (own, "m_axi_") if user == "accelerator" else (processor, "m_axi_mem_")
        wire = f"{'a' if user == 'accelerator' else 'p'}_{signal}"
        wide = width
        if signal.endswith("addr"):
            # The memory counts from its first byte.
            wide = modules["m_axi_awaddr"] if user == "accelerator" else 32
            memory[name] = f"{wire}[{width - 1}:0]"
        elif signal.endswith("size"):
            wide = 3
            memory[name] = f"{{1'b0, {wire}}}"
        else:
            memory[name] = wire
        theirs[at + signal] = wire
        wires.append((wire, wide))
    for name, width in modules.items():
        if name.startswith("s_axi_"):
            signal = name.removeprefix("s_axi_")
            # The processor puts out 12 bits of an address.
            own[name] = f"r_{signal}" + (f"[{width - 1}:0]" if signal.endswith("addr") and width < 12 else "")
            processor[f"m_axi_reg_{signal}"] = f"r_{signal}"
            wires.append((f"r_{signal}", 12 if signal.endswith("addr") else width))
    lines = [
        "// The board with LiteDRAM in place of Vivado's memory controller: see build.sh. Nobody has built it.",
        f"module {TOP} (",
        ",\n".join(f"    {way} wire {_range(width)}{name}" for name, (way, width) in outside.items()),
        ");",
        "    wire clock, clk, busy;",
        *(f"    wire {_range(width)}{name};" for name, width in wires),
        "    // Nobody starts before the memory's lines are trained.",
        "    wire rst = busy || !led_memory;",
        "    // The fan turns while this is high.",
        "    assign fan_pwm = 1'b1;",
        "    IBUFDS board (.I(sys_clk_p), .IB(sys_clk_n), .O(clock));",
        *_instance("litedram_core", "memory", memory),
        *_instance(ports.module, "accelerator", own),
        *_instance("gradloom_soc", "soc", processor, soc),
        "endmodule",
    ]
    return "\n".join(lines) + "\n"


def _instance(
    module: str, name: str, connections: Mapping[str, str | None], parameters: Mapping[str, int] | None = None
) -> Iterator[str]:
    """An instance; a port without a value is connected to its namesake."""
    settings = "".join(f"\n        .{key}({value})," for key, value in (parameters or {}).items())
    yield f"    {module} " + (f"#({settings[:-1]}\n    ) " if settings else "") + f"{name} ("
    yield ",\n".join(f"        .{port}({value or port})" for port, value in connections.items())
    yield "    );"
