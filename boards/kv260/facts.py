"""AMD Kria KV260 vision starter kit."""

from ..board import Board
from ..dram import DramFacts

KV260 = Board(
    name="kv260",
    summary="AMD Kria KV260: Zynq UltraScale+ XCK26, 4 GB DDR4 shared with four Cortex-A53 under Linux",
    part="xck26-sfvc784-2LV-c",
    family="xcup",
    lut=117_120,
    ff=234_240,
    dsp=1_248,
    bram36=144,
    uram=64,
    clock_hz=200_000_000,
    memory_bytes=4 << 30,
    memory_bandwidth=19_200_000_000,
    port_bits=128,
    # The AXI FIFO interface (AFI) of an HP port holds back further addresses.
    port_reads=8,
    # S_AXI_HP0_FPD to S_AXI_HP3_FPD; HP1 and HP2 share one way to the memory.
    ports=4,
    # JESD79-4, DDR4-2400 (17-17-17), four chips of 8 Gbit and 16 bits.
    dram=DramFacts(refresh_every=7800, refresh_for=350, turn=15, miss=28.3, page_bytes=8192, banks=8),
    host="4x Cortex-A53, Linux",
    # The first 64 KB of the port belong to a node that Kria-PYNQ puts into the device tree at every start.
    register_base=0xA001_0000,
    shell="zynqmp",
)
#: Of the port J4: FT4232, for JTAG and UART.
CABLES = ((0x0403, 0x6011),)
