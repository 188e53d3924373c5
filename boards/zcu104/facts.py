"""AMD Zynq UltraScale+ MPSoC ZCU104 evaluation kit."""

from ..board import Board
from ..dram import DramFacts

ZCU104 = Board(
    name="zcu104",
    summary="AMD ZCU104: Zynq UltraScale+ XCZU7EV, 2 GB DDR4 shared with four Cortex-A53 under Linux",
    part="xczu7ev-ffvc1156-2-e",
    family="xcup",
    lut=230_400,
    ff=460_800,
    dsp=1_728,
    bram36=312,
    uram=96,
    clock_hz=200_000_000,
    memory_bytes=2 << 30,
    memory_bandwidth=19_200_000_000,
    port_bits=128,
    # The AXI FIFO interface (AFI) of an HP port holds back further addresses.
    port_reads=8,
    ports=4,
    # JESD79-4, DDR4-2400 (17-17-17), four chips of 4 Gbit and 16 bits.
    dram=DramFacts(refresh_every=7800, refresh_for=260, turn=15, miss=28.3, page_bytes=8192, banks=8),
    host="4x Cortex-A53, Linux",
    register_base=0xA000_0000,
    shell="zynqmp",
)
