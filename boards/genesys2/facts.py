"""Digilent Genesys 2."""

from ..board import Board
from ..dram import DramFacts

GENESYS2 = Board(
    name="genesys2",
    summary="Digilent Genesys 2: Kintex-7 325T, 1 GB DDR3, no processor: a soft core",
    part="xc7k325tffg900-2",
    family="xc7",
    lut=203_800,
    ff=407_600,
    dsp=840,
    bram36=445,
    uram=0,
    clock_hz=200_000_000,
    memory_bytes=1 << 30,
    # 32 bits at 1,800 MT/s.
    memory_bandwidth=7_200_000_000,
    port_bits=256,
    # JESD79-3, DDR3-1800 (13-13-13), two chips of 4 Gbit and 16 bits; MIG's pages of a bank follow each other.
    dram=DramFacts(refresh_every=7800, refresh_for=260, turn=16.5, miss=27.8, page_bytes=4096, banks=1),
    host="soft core, RISC-V",
    register_base=0x2000_0000,
)
#: Of the ports PROG and UART: FT2232, for JTAG; FT232R.
CABLES = ((0x0403, 0x6010), (0x0403, 0x6001))
