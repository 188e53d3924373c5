"""Runs the clock of ``ram_bench.v`` or of ``wide_bench.v`` and reads its counts."""

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles


@cocotb.test()
async def both_memories(dut):
    Clock(dut.clk, 2, "ns").start()
    # What was in the registers before the first words arrive is not asked for.
    await ClockCycles(dut.clk, 8)
    before = dut.differing.value.to_unsigned()
    await ClockCycles(dut.clk, 20_000)
    assert dut.differing.value.to_unsigned() == before
    assert dut.changes.value.to_unsigned() > 10_000
