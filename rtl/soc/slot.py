"""Wraps an accelerator in the ports of a given slot.

Widths, ids, addresses and names are options.
"""

import argparse
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from gradloom.json_file import read_json

__all__ = ["Slot", "firmware_header", "slot_files", "wrapper"]

_HERE = Path(__file__).parent
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Signals of a channel: name, width (or what it is called below), and whether the manager drives it.
_ADDRESS = (
    ("id", "id", True),
    ("addr", "address", True),
    ("len", 8, True),
    ("size", 3, True),
    ("burst", 2, True),
    ("lock", 1, True),
    ("cache", 4, True),
    ("prot", 3, True),
    ("qos", 4, True),
    ("valid", 1, True),
    ("ready", 1, False),
)
_CHANNELS = {
    "aw": _ADDRESS,
    "w": (("data", "data", True), ("strb", "strobe", True), ("last", 1, True), ("valid", 1, True), ("ready", 1, False)),
    "b": (("id", "id", False), ("resp", 2, False), ("valid", 1, False), ("ready", 1, True)),
    "ar": _ADDRESS,
    "r": (
        ("id", "id", False),
        ("data", "data", False),
        ("resp", 2, False),
        ("last", 1, False),
        ("valid", 1, False),
        ("ready", 1, True),
    ),
}
_LITE = ("addr", "prot", "data", "strb", "resp", "valid", "ready")


@dataclass(frozen=True, kw_only=True)
class Slot:
    """Ports and widths of a slot.

    Parameters
    ----------
    module : str
        Name of the wrapper.
    data_bits, address_bits, id_bits : int
        The manager on memory: 32 to 512 bits, 32 to 64 bits, and 0 (no id ports) to 16 bits. An accelerator with
        wider beats gets them in parts; one with narrower beats is refused.
    control : str
        ``"lite"``: AXI4-Lite of 32 bits; ``"full"``: AXI4, single beats.
    control_bits, control_address_bits, control_id_bits : int
        Of the subordinate with the registers. An AXI4-Lite one has 32 bits and no ids.
    base_address : int
        Where the processor sees the registers; a multiple of 4096. Only its lowest 12 bits are decoded here, so the
        wrapper is the same for every base; the firmware's header has it.
    control_prefix, memory_prefix, interrupt, clock, reset : str
        Names of ports.
    reset_active_low : bool
    """

    module: str = "gradloom_slot"
    data_bits: int = 128
    address_bits: int = 64
    id_bits: int = 4
    control: str = "lite"
    control_bits: int = 32
    control_address_bits: int = 32
    control_id_bits: int = 0
    base_address: int = 0x2006_0000
    control_prefix: str = "s_axi_control_"
    memory_prefix: str = "m_axi_gmem_"
    interrupt: str = "interrupt"
    clock: str = "ap_clk"
    reset: str = "ap_rst_n"
    reset_active_low: bool = True

    def __post_init__(self) -> None:
        names = [self.module, self.control_prefix, self.memory_prefix, self.interrupt, self.clock, self.reset]
        for field, name in zip(("module", "control_prefix", "memory_prefix", "interrupt", "clock", "reset"), names):
            if not _IDENTIFIER.fullmatch(name):
                raise ValueError(f"{field} must be a Verilog identifier, not {name!r}")
        if self.control not in ("lite", "full"):
            raise ValueError(f"control must be lite or full, not {self.control!r}")
        for field, choices in (
            ("data_bits", (32, 64, 128, 256, 512)),
            ("control_bits", (32,) if self.control == "lite" else (32, 64, 128, 256, 512)),
        ):
            if getattr(self, field) not in choices:
                raise ValueError(f"{field} must be one of {', '.join(map(str, choices))}, not {getattr(self, field)}")
        for field, low, high in (
            ("address_bits", 32, 64),
            ("id_bits", 0, 16),
            ("control_address_bits", 12, 64),
            ("control_id_bits", 0, 0 if self.control == "lite" else 16),
        ):
            if not low <= getattr(self, field) <= high:
                raise ValueError(f"{field} must be {low} to {high}, not {getattr(self, field)}")
        if self.base_address < 0 or self.base_address % 4096:
            raise ValueError(f"base_address must be a multiple of 4096, not {self.base_address:#x}")
        if len({name for name, *_ in self.ports()}) != len(self.ports()):
            raise ValueError("two ports of the slot have the same name")
        for name, *_ in self.ports():
            if name.startswith("core_"):
                raise ValueError(f"{name}: names that begin with core_ are the wrapper's own")

    def ports(self) -> list[tuple[str, str, int]]:
        """``(name, direction, width)`` of every port."""
        found = [(self.clock, "input", 1), (self.reset, "input", 1), (self.interrupt, "output", 1)]
        for prefix, manager, widths in (
            (
                self.control_prefix,
                False,
                {"data": self.control_bits, "address": self.control_address_bits, "id": self.control_id_bits},
            ),
            (self.memory_prefix, True, {"data": self.data_bits, "address": self.address_bits, "id": self.id_bits}),
        ):
            widths["strobe"] = widths["data"] // 8
            for channel, signals in _CHANNELS.items():
                for signal, width, driven in signals:
                    if not manager and self.control == "lite" and signal not in _LITE:
                        continue
                    bits = widths[width] if isinstance(width, str) else width
                    if bits:
                        found.append((prefix + channel + signal, "output" if driven == manager else "input", bits))
        return found


def wrapper(
    slot: Slot, *, core: str = "gradloom", core_bits: int, core_address_bits: int, core_id_bits: int = 1
) -> str:
    """Verilog of ``slot.module`` around the accelerator ``core``.

    The core's manager has the widths given.
    """
    if core_bits < slot.data_bits:
        raise ValueError(
            f"data_bits={slot.data_bits}: the accelerator's beats have {core_bits} bits; "
            f"make it wider, or the slot narrower"
        )
    if core_bits // slot.data_bits > 16:
        raise ValueError(
            f"data_bits={slot.data_bits}: a burst of the accelerator ({core_bits} bits) would have more than 256 beats"
        )
    if core == slot.module:
        raise ValueError(f"module={slot.module!r} is the accelerator's own name")
    m = slot.memory_prefix
    ports = ",\n".join(
        f"    {way:6} wire {f'[{bits - 1}:0] ' if bits > 1 else ''}{name}" for name, way, bits in slot.ports()
    )
    size = (slot.data_bits // 8).bit_length() - 1

    def resized(name: str, there: int, here: int) -> str:
        """``name`` of ``here`` bits as ``there`` bits."""
        return (
            f"{name}[{there - 1}:0]"
            if here > there and there > 1
            else (f"{name}[0]" if here > there else (f"{{{there - here}'d0, {name}}}" if there > here else name))
        )

    lines = [
        "// Generated: an accelerator with the ports of a slot. Registers answer at "
        f"{slot.base_address:#x} + 0x000 to 0xfff.",
        f"module {slot.module} (",
        ports,
        ");",
        f"    wire core_clk = {slot.clock};",
        "    // The slot's reset, registered: it drives all that is here.",
        "    reg core_rst = 1'b1;",
        f"    always @(posedge core_clk) core_rst <= {'!' if slot.reset_active_low else ''}{slot.reset};",
        "",
        "    // ---- registers",
    ]
    lite = {
        "awaddr": 12,
        "awvalid": 1,
        "awready": 1,
        "wdata": 32,
        "wstrb": 4,
        "wvalid": 1,
        "wready": 1,
        "bresp": 2,
        "bvalid": 1,
        "bready": 1,
        "araddr": 12,
        "arvalid": 1,
        "arready": 1,
        "rdata": 32,
        "rresp": 2,
        "rvalid": 1,
        "rready": 1,
    }
    lines += [f"    wire {f'[{bits - 1}:0] ' if bits > 1 else ''}core_reg_{name};" for name, bits in lite.items()]
    lines += _control(slot, lite)
    lines += ["", "    // ---- memory"]
    inside = {
        "awaddr": core_address_bits,
        "araddr": core_address_bits,
        "awlen": 8,
        "arlen": 8,
        "wdata": core_bits,
        "wstrb": core_bits // 8,
        "wlast": 1,
        "wvalid": 1,
        "wready": 1,
        "rdata": core_bits,
        "rresp": 2,
        "rlast": 1,
        "rvalid": 1,
        "rready": 1,
        "awid": core_id_bits,
        "arid": core_id_bits,
    }
    lines += [f"    wire {f'[{bits - 1}:0] ' if bits > 1 else ''}core_mem_{name};" for name, bits in inside.items()]
    lines += [
        f"    assign {m}{x}addr = {resized(f'core_mem_{x}addr', slot.address_bits, core_address_bits)};"
        for x in ("aw", "ar")
    ]
    if slot.id_bits:
        lines += [
            f"    assign {m}{x}id = {resized(f'core_mem_{x}id', slot.id_bits, core_id_bits)};" for x in ("aw", "ar")
        ]
    lines += [f"    assign {m}{x}size = 3'd{size};" for x in ("aw", "ar")]
    moved = (
        "awlen",
        "wdata",
        "wstrb",
        "wlast",
        "wvalid",
        "wready",
        "arlen",
        "rdata",
        "rresp",
        "rlast",
        "rvalid",
        "rready",
    )
    if core_bits > slot.data_bits:
        lines += [
            f"    gradloom_slot_narrow #(.WIDE({core_bits}), .NARROW({slot.data_bits})) narrow (",
            "        .clk(core_clk), .rst(core_rst),",
            *(f"        .s_{name}(core_mem_{name}), .m_{name}({m}{name})," for name in moved[:-1]),
            f"        .s_{moved[-1]}(core_mem_{moved[-1]}), .m_{moved[-1]}({m}{moved[-1]})",
            "    );",
        ]
    else:
        inwards = ("wready", "rdata", "rresp", "rlast", "rvalid")
        pairs = (
            (f"core_mem_{name}", m + name) if name in inwards else (m + name, f"core_mem_{name}") for name in moved
        )
        lines += [f"    assign {target} = {source};" for target, source in pairs]
    identity = {
        x: (resized(f"{m}{x}id", core_id_bits, slot.id_bits) if slot.id_bits else f"{core_id_bits}'d0")
        for x in ("b", "r")
    }
    lines += [
        "",
        f"    {core} accelerator (",
        f"        .clk(core_clk), .rst(core_rst), .irq({slot.interrupt}), .trace(),",
        "        .s_axi_awprot(3'd0), .s_axi_arprot(3'd0),",
        "        " + ", ".join(f".s_axi_{name}(core_reg_{name})" for name in lite) + ",",
        "        " + ", ".join(f".m_axi_{name}(core_mem_{name})" for name in inside) + ",",
        "        .m_axi_awsize(), .m_axi_arsize(),",
        "        "
        + ", ".join(
            f".m_axi_{x}{name}({m}{x}{name})"
            for x in ("aw", "ar")
            for name in ("burst", "lock", "cache", "prot", "qos", "valid", "ready")
        )
        + ",",
        f"        .m_axi_bid({identity['b']}), .m_axi_bresp({m}bresp), .m_axi_bvalid({m}bvalid), "
        f".m_axi_bready({m}bready),",
        f"        .m_axi_rid({identity['r']})",
        "    );",
        "endmodule",
        "",
    ]
    return "\n".join(lines)


def _control(slot: Slot, lite: Iterable[str]) -> list[str]:
    """Connects the slot's control port to the accelerator's registers.

    The signals of the registers are those of ``lite``.
    """
    c = slot.control_prefix
    if slot.control == "full":
        some = slot.control_id_bits > 0
        ids = {x: f"{c}{x}id" if some else "" if x in ("b", "r") else "1'b0" for x in ("aw", "b", "ar", "r")}
        return [
            f"    gradloom_slot_control #(.ADDRESS_BITS({slot.control_address_bits}), .DATA_BITS({slot.control_bits}), "
            f".ID_BITS({max(slot.control_id_bits, 1)})) control (",
            "        .clk(core_clk), .rst(core_rst),",
            f"        .s_awid({ids['aw']}), .s_awaddr({c}awaddr), .s_awlen({c}awlen),",
            f"        .s_awvalid({c}awvalid), .s_awready({c}awready), .s_wdata({c}wdata), .s_wstrb({c}wstrb),",
            f"        .s_wlast({c}wlast), .s_wvalid({c}wvalid), .s_wready({c}wready),",
            f"        .s_bid({ids['b']}), .s_bresp({c}bresp), .s_bvalid({c}bvalid), .s_bready({c}bready),",
            f"        .s_arid({ids['ar']}), .s_araddr({c}araddr), .s_arlen({c}arlen),",
            f"        .s_arvalid({c}arvalid), .s_arready({c}arready), .s_rid({ids['r']}), .s_rdata({c}rdata),",
            f"        .s_rresp({c}rresp), .s_rlast({c}rlast), .s_rvalid({c}rvalid), .s_rready({c}rready),",
            "        " + ", ".join(f".m_{name}(core_reg_{name})" for name in lite),
            "    );",
        ]
    lines = []
    for name in lite:
        ours, theirs = f"core_reg_{name}", c + name
        back = name in ("awready", "wready", "arready", "bresp", "bvalid", "rdata", "rresp", "rvalid")
        source = f"{theirs}[11:0]" if name in ("awaddr", "araddr") and slot.control_address_bits > 12 else theirs
        lines.append(f"    assign {theirs} = {ours};" if back else f"    assign {ours} = {source};")
    return lines


def firmware_header(slot: Slot, *, memory: int, memory_bytes: int, user_header: str = "user_board.h") -> str:
    """A board header for the firmware.

    ``firmware/chip/base/soc_board.h`` describes its content.

    ``user_header`` is the user's own: it has ``gl_board_put``, which sends a byte, and ``gl_board_start``, which makes
    the shared memory non-cacheable.
    """
    if memory % 4096 or memory_bytes % 4096:
        raise ValueError(f"memory {memory:#x} and its {memory_bytes:#x} bytes must be multiples of 4096")
    if memory + memory_bytes > 1 << 32 or slot.base_address >= 1 << 32:
        raise ValueError("the firmware reaches 32 bits of addresses")
    return "\n".join(
        [
            "/* Generated: where the firmware finds registers and shared memory in this slot. */",
            "#ifndef GRADLOOM_SLOT_BOARD_H",
            "#define GRADLOOM_SLOT_BOARD_H",
            "",
            f"#define GL_REGISTERS {slot.base_address:#010x}u",
            f"#define GL_MEMORY {memory:#010x}u",
            f"#define GL_MEMORY_BYTES {memory_bytes:#010x}u",
            "",
            "/* void gl_board_put(char) and void gl_board_start(void). */",
            f'#include "{user_header}"',
            "",
            "#endif",
            "",
        ]
    )


def slot_files(slot: Slot, report: Mapping, *, memory: int, memory_bytes: int) -> dict[str, str]:
    """Files that go beside a generated design: file name to text.

    ``report.json`` has the design's ports.
    """
    widths = {port["name"]: port["width"] for port in report["ports"]}
    if "m_axi_1_awvalid" in widths:
        raise ValueError("ports: the design has several AXI4 managers, a slot takes one: generate it with ports=1")
    files = {
        f"{slot.module}.v": wrapper(
            slot,
            core=report["module"],
            core_bits=widths["m_axi_wdata"],
            core_address_bits=widths["m_axi_awaddr"],
            core_id_bits=widths.get("m_axi_awid", 1),
        )
    }
    for name in ("slot_control.v", "slot_narrow.v"):
        files[name] = (_HERE / name).read_text(encoding="utf-8")
    return files | {"slot_board.h": firmware_header(slot, memory=memory, memory_bytes=memory_bytes)}


def _integer(text: str) -> int:
    return int(text, 0)


def _switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"must be true or false, not {text!r}")
    return text == "true"


def main() -> None:
    """Writes :func:`slot_files` of a generated design.

    ``python -m gradloom.rtl.soc.slot DESIGN -o FOLDER``.
    """
    parser = argparse.ArgumentParser(
        description="Wraps a generated design for a slot.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("design", type=Path, help="folder with report.json")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument(
        "--memory", type=_integer, default=0x9000_0000, help="where processor and accelerator share memory"
    )
    parser.add_argument("--memory-bytes", type=_integer, default=1 << 28, help="how much")
    kinds: dict[type, Callable[[str], object]] = {int: _integer, bool: _switch, str: str}
    for field in fields(Slot):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}", type=kinds[type(field.default)], default=field.default, help=" "
        )
    options = vars(parser.parse_args())
    try:
        report = read_json(options["design"] / "report.json")
        slot = Slot(**{field.name: options[field.name] for field in fields(Slot)})
        files = slot_files(slot, report, memory=options["memory"], memory_bytes=options["memory_bytes"])
    except (ValueError, OSError) as error:
        parser.error(str(error))
    options["output"].mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (options["output"] / name).write_text(text, encoding="utf-8", newline="\n")
    print("\n".join(sorted(files)))


if __name__ == "__main__":
    main()
