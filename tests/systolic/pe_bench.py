"""Runs the clock of ``pe_bench.v`` and reads its counts."""

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles


@cocotb.test()
async def two_pes(dut):
    Clock(dut.clk, 2, "ns").start()
    await ClockCycles(dut.clk, 20_000)
    assert dut.differing.value.to_unsigned() == 0
    assert dut.changes.value.to_unsigned() > 10_000
