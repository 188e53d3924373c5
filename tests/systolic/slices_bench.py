"""Runs the clock of ``slices_bench.v`` and reads its counts."""

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles


@cocotb.test()
async def pairs(dut):
    Clock(dut.clk, 2, "ns").start()
    await ClockCycles(dut.clk, 20_000)
    assert dut.differing.value.to_unsigned() == 0
    assert dut.changes.value.to_unsigned() > 10_000
    assert dut.ties.value.to_unsigned() > 500
