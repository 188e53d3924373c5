"""Puts this design's accelerator into a LiteX system: ``add_gradloom(soc)``.

The file stays in the folder ``integrate`` of a generated design, whose ports it reads from ``report.json``. Made for
LiteX and LiteDRAM 2024.12.
"""

import json
from pathlib import Path

from litex.gen import LiteXModule
from litex.soc.integration.soc import SoCRegion
from litex.soc.interconnect.axi import AXIInterface, AXILiteInterface
from litex.soc.interconnect.csr_eventmanager import EventManager, EventSourceLevel
from migen import ClockSignal, Instance, ResetSignal, Signal

__all__ = ["DESIGN", "Gradloom", "add_gradloom", "board_header"]

#: The folder of the design.
DESIGN = Path(__file__).resolve().parents[1]
_CHANNELS = ("aw", "w", "b", "ar", "r")


class Gradloom(LiteXModule):
    """The accelerator's module, with its two buses and its interrupt.

    Attributes
    ----------
    registers : AXILiteInterface
        Of 32 bits; the accelerator answers.
    memory : AXIInterface
        As wide as the machine's port; the accelerator asks.
    ev : EventManager
        Its source ``line`` follows the interrupt, a level that IRQ_STATUS of the accelerator clears.

    Parameters
    ----------
    platform
        Gets the Verilog.
    address_width : int
        Bits of the system's addresses; those of the accelerator are cut to them.
    synthesis : bool
        Take the files with the primitives of the board's family. A simulator takes the others.
    """

    def __init__(self, platform, *, address_width=32, synthesis=True):
        report = json.loads((DESIGN / "report.json").read_text(encoding="utf-8"))
        ports = {port["name"]: port for port in report["ports"]}
        if "m_axi_1_awvalid" in ports:
            raise ValueError("ports: this core has several AXI4 managers, must be 1: generate it with --set ports=1")
        for path in sorted((DESIGN / "rtl").glob("*.v")):
            primitive = DESIGN / "synth" / path.name
            platform.add_source(str(primitive if synthesis and primitive.is_file() else path))
        self.registers = AXILiteInterface(data_width=32, address_width=address_width)
        self.memory = AXIInterface(
            data_width=ports["m_axi_wdata"]["width"], address_width=address_width, id_width=1, bursting=True
        )
        self.ev = EventManager()
        self.ev.line = EventSourceLevel(description="A program or a request has ended.")
        self.ev.finalize()
        reset = next(name for name in ("rst", "rst_n", "aresetn") if name in ports)
        clock = next(name for name in ("clk", "aclk") if name in ports)
        interrupt = next(name for name in ("irq", "interrupt") if name in ports)
        wires = {
            f"i_{clock}": ClockSignal("sys"),
            f"i_{reset}": ResetSignal("sys") if reset == "rst" else ~ResetSignal("sys"),
            f"o_{interrupt}": self.ev.line.trigger,
        }
        for bus, interface in (("s_axi", self.registers), ("m_axi", self.memory)):
            wires |= self._wires(ports, bus, interface)
        self.specials += Instance(report["module"], **wires)

    def _wires(self, ports, bus, interface):
        """Ports of the module on ``interface``, each by a signal of the port's own width."""
        wires = {}
        for name in ("aw", "w", "b", "ar", "r"):
            channel = getattr(interface, name)
            fields = ["valid", "ready", *(field[0] for field in channel.description.payload_layout)]
            fields += [field[0] for field in channel.description.param_layout if field[0] != "user"]
            fields += ["last"] if bus == "m_axi" and name in ("w", "r") else []
            for field in dict.fromkeys(fields):
                port = ports.get(f"{bus}_{name}{field}")
                if port is None:
                    continue
                wire, signal = Signal(port["width"], name=port["name"]), getattr(channel, field)
                if port["direction"] == "input":
                    self.comb += wire.eq(signal)
                else:
                    self.comb += signal.eq(wire)
                wires[f"{port['direction'][0]}_{port['name']}"] = wire
        return wires


def add_gradloom(soc, name="gradloom", *, origin=None, synthesis=True):
    """Adds the accelerator to ``soc`` and gives its :class:`Gradloom`.

    Registers are a region ``name`` of the system's bus, at ``origin`` or where LiteX finds room. Memory is a port of
    LiteDRAM of its own where ``soc`` has ``sdram``, else the system's bus. The interrupt has ``name``, too.

    :class:`ValueError` where an L2 cache lies between the processor and the memory: the accelerator would not see what
    the processor wrote. What a processor keeps in a data cache of its own, its program must flush.
    """
    if hasattr(soc, "l2_cache"):
        raise ValueError("l2_cache_size: must be 0 with the accelerator, which reads memory behind that cache")
    module = Gradloom(soc.platform, address_width=soc.bus.address_width, synthesis=synthesis)
    soc.add_module(name=name, module=module)
    soc.bus.add_slave(name=name, slave=module.registers, region=SoCRegion(origin=origin, size=0x1000, cached=False))
    if hasattr(soc, "sdram"):
        from litedram.frontend.axi import LiteDRAMAXI2Native

        soc.add_module(
            name=f"{name}_memory",
            module=LiteDRAMAXI2Native(
                axi=module.memory,
                port=soc.sdram.crossbar.get_port(data_width=module.memory.data_width),
                base_address=soc.bus.regions["main_ram"].origin,
            ),
        )
    else:
        soc.bus.add_master(name=name, master=module.memory)
    if soc.irq.enabled:
        soc.irq.add(name, use_loc_if_exists=True)
    return module


def board_header(soc, name="gradloom"):
    """C header of a finalised ``soc``, for gradloom's firmware on its processor.

    It is what ``python -m gradloom.firmware.chip.soc_image --board-header`` takes: the addresses of registers and
    memory, the UART, and the interrupt. The memory controller is switched to the hardware, which is all that a
    simulated memory needs; real memory is initialised by LiteX's own program.
    """

    def csr(module, register):
        region = soc.csr.regions[module]
        place = region.origin
        for each in region.obj:
            if each.name == register:
                return f"{place:#x}u"
            place += soc.csr.alignment // 8 * -(-each.size // region.busword)
        raise ValueError(f"{module} has no register {register}")

    memory = soc.bus.regions["main_ram"]
    start = f"    *(volatile uint32_t *){csr('sdram', 'dfii_control')} = 1;\n" if hasattr(soc, "sdram") else ""
    return f"""\
#include <stdint.h>
#define GL_REGISTERS {soc.bus.regions[name].origin:#x}u
#define GL_MEMORY {memory.origin:#x}u
#define GL_MEMORY_BYTES {memory.size:#x}u

static inline void gl_board_put(char character)
{{
    while (*(volatile uint32_t *){csr("uart", "txfull")})
        ;
    *(volatile uint32_t *){csr("uart", "rxtx")} = (uint8_t)character;
}}

/* Whether the interrupt is high, as LiteX's event manager sees it. */
#define GL_BOARD_INTERRUPT(expected) (*(volatile uint32_t *){csr(name, "ev_status")})

static inline void gl_board_start(void)
{{
{start}}}
"""
