"""Radiona ULX3S with the largest of its parts."""

from gradloom.preset import PRESETS

from ..board import Board

BAUD = 1_000_000
_CLOCK_HZ = 1_000_000 * PRESETS["digits-ulx3s"].config.clock_mhz

ULX3S = Board(
    name="ulx3s",
    summary="Radiona ULX3S: ECP5-85F, open tools from end to end; processor and memory on the chip",
    part="LFE5U-85F-6BG381C",
    family="ecp5",
    lut=83_640,
    ff=83_640,
    # Multipliers of 18 x 18 bits.
    dsp=156,
    # 208 blocks of 18 Kibit.
    bram36=104,
    uram=0,
    clock_hz=_CLOCK_HZ,
    # In block RAM; the board's SDRAM is not used.
    memory_bytes=1 << 17,
    memory_bandwidth=16 * _CLOCK_HZ,
    port_bits=128,
    host="soft core, RISC-V",
    register_base=0x2000_0000,
    listens=BAUD,
    build_time="40 to 60 minutes on one core",
)
#: Of the port US1: FT231X, for JTAG and UART.
CABLES = ((0x0403, 0x6015),)
