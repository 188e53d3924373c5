"""Common parts of Vivado projects: Tcl quoting, ports of a module."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).parent
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = re.compile(r"[A-Za-z0-9_./:+-]+")

_LITE = {
    "awaddr": "input",
    "awvalid": "input",
    "awready": "output",
    "wdata": "input",
    "wstrb": "input",
    "wvalid": "input",
    "wready": "output",
    "bresp": "output",
    "bvalid": "output",
    "bready": "input",
    "araddr": "input",
    "arvalid": "input",
    "arready": "output",
    "rdata": "output",
    "rresp": "output",
    "rvalid": "output",
    "rready": "input",
}
_FLIP = {"input": "output", "output": "input"}
_FULL = {name: _FLIP[way] for name, way in _LITE.items()} | {
    "awlen": "output",
    "awsize": "output",
    "awburst": "output",
    "wlast": "output",
    "arlen": "output",
    "arsize": "output",
    "arburst": "output",
    "rlast": "input",
}


def tcl_word(value: object) -> str:
    """``value`` as one Tcl word that is substituted by nothing."""
    text = str(value)
    if _PLAIN.fullmatch(text):
        return text
    if any(c in text for c in "{}\\\n"):
        raise ValueError(f"a Tcl setting cannot hold braces, backslashes or line ends: {text!r}")
    return "{" + text + "}"


def tcl_settings(settings: Mapping[str, object]) -> str:
    """``set name value`` lines; a list or tuple becomes a Tcl list."""
    lines = []
    for name, value in settings.items():
        if isinstance(value, (list, tuple)):
            value = "[list " + " ".join(tcl_word(v) for v in value) + "]"
        else:
            value = tcl_word(value)
        lines.append(f"set {name} {value}")
    return "\n".join(lines) + "\n"


def shared_tcl() -> dict[str, str]:
    """Scripts that every board's project has, by file name."""
    return {name: (_HERE / name).read_text(encoding="utf-8") for name in ("implement.tcl", "package_ip.tcl")}


def design_name(report: Mapping) -> str:
    """Name of project and bitstream.

    It is ``name`` of the report, else its ``module``.
    """
    name = report.get("name") or report.get("module")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"report: name must match {_NAME.pattern}, not {name!r}")
    return name


@dataclass(frozen=True)
class TopPorts:
    """Names that a block design has to know of a generated module."""

    module: str
    clock: str
    reset: str
    reset_active_high: bool
    interrupt: str
    managers: tuple[str, ...]
    memory_bits: int
    memory_address_bits: int
    register_address_bits: int

    @classmethod
    def of(cls, report: Mapping) -> "TopPorts":
        """Reads ``module`` and ``ports`` of a report.

        :class:`ValueError` names a missing one.

        ``ports`` is a list of ``{"name", "direction", "width"}``. The module needs an AXI4 manager
        ``m_axi_*`` (further ones are ``m_axi_1_*`` and so on, as wide), an AXI4-Lite subordinate ``s_axi_*``
        of 32 bits, ``clk``, ``rst`` (or active low ``rst_n``), ``irq``.
        """
        module = report.get("module")
        if not isinstance(module, str) or not _IDENTIFIER.fullmatch(module):
            raise ValueError(f"report: module must be a Verilog identifier, not {module!r}")
        ports = {}
        for port in report.get("ports") or ():
            direction = str(port["direction"]).lower().removesuffix("put") + "put"
            ports[port["name"]] = (direction, int(port["width"]))

        def one_of(role: str, direction: str, *names: str) -> str:
            for name in names:
                if ports.get(name, ("",))[0] == direction:
                    return name
            raise ValueError(
                f"report: module {module} has no {direction} port for the {role}; it should be "
                f"called {' or '.join(names)}"
            )

        clock = one_of("clock", "input", "clk", "aclk")
        reset = one_of("reset", "input", "rst", "rst_n", "aresetn")
        interrupt = one_of("interrupt", "output", "irq", "interrupt")
        more = [f"m_axi_{n}" for n in range(1, 4) if f"m_axi_{n}_awvalid" in ports]
        managers = ("m_axi", *more)
        for prefix, signals in (*((name, _FULL) for name in managers), ("s_axi", _LITE)):
            for name, direction in signals.items():
                one_of(f"bus {prefix}", direction, f"{prefix}_{name}")

        def width(name: str) -> int:
            return ports[name][1]

        if width("s_axi_wdata") != 32:
            raise ValueError(f"report: s_axi_wdata must be 32 bits wide, not {width('s_axi_wdata')}")
        for name in more:
            if width(f"{name}_wdata") != width("m_axi_wdata"):
                raise ValueError(f"report: {name}_wdata must be as wide as m_axi_wdata, not {width(f'{name}_wdata')}")
        return cls(
            module,
            clock,
            reset,
            reset == "rst",
            interrupt,
            managers,
            width("m_axi_wdata"),
            width("m_axi_awaddr"),
            width("s_axi_awaddr"),
        )
