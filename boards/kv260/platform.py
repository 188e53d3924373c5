"""Pins and clock of the KV260 for designs in Amaranth."""

from typing import Any

from amaranth.build import Attrs, Connector, Pins, Resource, Subsignal
from amaranth.hdl import ClockDomain, ClockSignal, Instance, Module, Signal
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.vendor import XilinxPlatform

from .facts import KV260 as BOARD

__all__ = ["KV260"]

_DEVICE, _PACKAGE, _SPEED = BOARD.part.split("-", 2)
_LVCMOS33 = Attrs(IOSTANDARD="LVCMOS33")


class KV260(XilinxPlatform):
    """The KV260's programmable logic.

    It has one Pmod, the fan's pin, an I2C bus, and a clock of the processing system.

    No pin brings a clock to the programmable logic. Domain ``sync`` runs on ``pl_clk0`` of the processing system, which
    the board's firmware sets to 100 MHz, and is in reset until configuration has ended. Linux stops a clock that no
    node of the device tree claims: an overlay with an ``xlnx,fclk`` node keeps it on.

    Parameters
    ----------
    clock_hz : :class:`int`
        Frequency of ``pl_clk0``, for timing.
    """

    device, package, speed = _DEVICE, _PACKAGE, _SPEED
    default_clk = None
    resources = [
        # As the schematic calls it: low switches the fan on.
        Resource("fan_en_b", 0, Pins("A12", dir="o"), _LVCMOS33),
        Resource("i2c", 0, Subsignal("scl", Pins("G11", dir="io")), Subsignal("sda", Pins("F10", dir="io")), _LVCMOS33),
    ]
    #: Upper row, lower row; pins 5, 6, 11 and 12 are ground and supply.
    connectors = [Connector("pmod", 0, "H12 E10 D10 C11 - - B10 E12 D11 B11 - -")]

    def __init__(self, *, clock_hz: int = 100_000_000, **options: Any) -> None:
        if not 0 < clock_hz <= 400_000_000:
            raise ValueError(f"clock_hz={clock_hz}: must be 1 to 400000000")
        self.clock_hz = clock_hz
        super().__init__(**options)

    @property
    def default_clk_frequency(self) -> float:
        """Frequency of domain ``sync`` in Hz."""
        return float(self.clock_hz)

    def create_missing_domain(self, name: str) -> Module | None:
        """Domain ``sync`` from the processing system."""
        if name != "sync":
            return None
        m = Module()
        clocks, configured = Signal(4), Signal()
        clock = Signal(name="pl_clk0")
        m.submodules.ps = Instance("PS8", o_PLCLK=clocks)
        m.submodules.buffer = Instance("BUFG_PS", i_I=clocks[0], o_O=clock)
        m.submodules.startup = Instance("STARTUPE3", o_EOS=configured)
        m.domains.sync = ClockDomain("sync")
        m.d.comb += ClockSignal("sync").eq(clock)
        m.submodules.reset = ResetSynchronizer(~configured, domain="sync")
        self.add_clock_constraint(clock, self.clock_hz)
        return m
